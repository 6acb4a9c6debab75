"""Live traffic becomes an archive that `reconstruct` and `summarize` read."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from virtual_nodes import OTHER_TOPIC, TOPIC, start, virtual

from shardwire import ChannelConfig, ConfigError, NodeError, create_reliable_channel
from shardwire.archive import Recorder, reconstruct, summarize
from shardwire.archive import recorder as recorder_module
from shardwire.node import MemoryNetwork, MemoryNode, MessageEnvelope, NetworkConditions, run_virtual
from shardwire.node.event_stream import EventStream
from shardwire.node.protocol import MessageReceived, MessagesMissed


async def publish(node: MemoryNode, count: int, topic: str = TOPIC, size_bytes: int = 10) -> None:
    for number in range(count):
        await node.send(MessageEnvelope(topic, bytes([number % 256]) * size_bytes, meta=b"mark"))
        await asyncio.sleep(0.01)


def files(directory: Path) -> list[Path]:
    """What is there, with what other readers pass over."""
    return sorted(directory.iterdir())


def test_a_channel_is_recorded_and_reconstructed(tmp_path: Path) -> None:
    config = ChannelConfig.logos()

    async def scenario() -> None:
        network = MemoryNetwork(NetworkConditions(loss=0.1, delay_ms=(5, 40)), seed=7)
        listener = network.create_node("listener")
        await listener.start()
        # Nobody sends anything again for a listener, which hears what all others do.
        listener.conditions = NetworkConditions()
        async with Recorder(listener, [TOPIC], tmp_path / "archive") as recorder:
            channels = []
            for name in ("alice", "bob"):
                node = network.create_node(name)
                await node.start()
                channels.append(await create_reliable_channel(node, "room", TOPIC, name, config=config))
            for number in range(3):
                await channels[0].delivered(await channels[0].send(bytes([number]) * 300_000), timeout_ms=600_000)
            for channel in channels:
                await channel.close()
        assert recorder.rows_written > 9
        assert recorder.gaps == 0

    run_virtual(scenario(), limit_ms=3_600_000)
    [file] = files(tmp_path / "archive")
    rows = pq.read_table(file)
    assert rows.column_names == ["content_topic", "timestamp", "payload", "meta", "message_hash"]
    assert set(rows["content_topic"].to_pylist()) == {TOPIC}
    messages = reconstruct(tmp_path / "archive", config.segmentation, by=["content_topic"], unwrap=["sds"])
    assert [status for status in messages["status"].to_pylist() if status != "complete"] == []
    assert sorted(messages["payload"].to_pylist()) == [bytes([number]) * 300_000 for number in range(3)]
    assert summarize(tmp_path / "archive", config.segmentation, unwrap=["sds"]).kinds["content"].messages >= 9


@virtual
async def test_files_are_whole_and_come_by_rows_and_by_time() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "below" / "archive"
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener", OTHER_TOPIC)
        async with Recorder(listener, [TOPIC], directory, rows_per_file=20, interval_ms=5_000) as recorder:
            await publish(alice, 3, OTHER_TOPIC)
            await publish(alice, 45)
            await asyncio.sleep(1)
            assert (recorder.rows_written, len(files(directory))) == (40, 2)
            await asyncio.sleep(6)
            assert (recorder.rows_written, len(files(directory))) == (45, 3)
            await publish(alice, 2)
            assert recorder.is_hearing
        assert not recorder.is_hearing
        assert (recorder.rows_written, len(files(directory))) == (47, 4)
        # Another life goes on in the same directory.
        async with Recorder(listener, [TOPIC], directory) as again:
            await publish(alice, 1)
        assert (again.rows_written, len(files(directory))) == (1, 5)
        tables = [pq.read_table(file) for file in files(directory)]
        assert [table.num_rows for table in tables] == [20, 20, 5, 2, 1]
        times = [time for table in tables for time in table["timestamp"].to_pylist()]
        assert times == sorted(times)
        assert set(tables[0]["meta"].to_pylist()) == {b"mark"}


def test_what_the_node_has_queued_is_written_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = await start(MemoryNetwork(seed=7), "listener")
        stream = EventStream()
        listener.events = lambda: stream  # type: ignore[method-assign]
        async with Recorder(listener, [TOPIC], tmp_path) as recorder:
            for number, time_ns in enumerate((1 << 80, 7, -(1 << 80))):
                # A time beyond what a column holds is a peer's own.
                stream.put(MessageReceived(MessageEnvelope(TOPIC, b"x"), bytes([number]) * 32, time_ns))
        assert recorder.rows_written == 3

    run_virtual(scenario(), limit_ms=60_000)
    [file] = files(tmp_path)
    assert pq.read_table(file)["timestamp"].to_pylist() == [(1 << 63) - 1, 7, -(1 << 63)]


def test_what_comes_with_the_subscription_or_while_a_file_is_written_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun, release = pyarrow.parquet.write_table, threading.Event(), threading.Event()

    def write(*arguments: Any) -> None:
        begun.set()
        assert release.wait(60)
        real(*arguments)

    monkeypatch.setattr(pyarrow.parquet, "write_table", write)

    async def scenario() -> None:
        listener = await start(MemoryNetwork(seed=7), "listener")
        streams: list[EventStream] = []

        def events() -> EventStream:
            streams.append(EventStream())
            return streams[-1]

        def put(number: int) -> None:
            for stream in streams:
                stream.put(MessageReceived(MessageEnvelope(TOPIC, b"x"), bytes([number]) * 32, number))

        async def subscribe(content_topics: Any) -> None:
            put(1)

        listener.events = events  # type: ignore[method-assign]
        listener.subscribe = subscribe  # type: ignore[method-assign]
        async with Recorder(listener, [TOPIC], tmp_path, rows_per_file=1) as recorder:
            assert await asyncio.to_thread(begun.wait, 60)
            put(2)
            asyncio.get_running_loop().call_later(0.05, release.set)
        assert recorder.rows_written == 2

    asyncio.run(scenario())
    assert [pq.read_table(file)["timestamp"].to_pylist() for file in files(tmp_path)] == [[1], [2]]


@virtual
async def test_nothing_heard_is_an_empty_directory() -> None:
    with tempfile.TemporaryDirectory() as name:
        listener = await start(MemoryNetwork(seed=7), "listener")
        async with Recorder(listener, [TOPIC], Path(name) / "archive") as recorder:
            await asyncio.sleep(120)
        assert recorder.rows_written == 0
        assert files(Path(name) / "archive") == []


def full_disk(monkeypatch: pytest.MonkeyPatch, *, once: bool = False) -> list[bool]:
    """A disk that takes no file while the list has anything in it; `once`, only the first is refused."""
    real, full = pyarrow.parquet.write_table, [True]

    def write(*arguments: Any) -> None:
        if full:
            if once:
                full.clear()
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(pyarrow.parquet, "write_table", write)
    return full


def test_a_disk_that_is_full_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = full_disk(monkeypatch)

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener")
        async with Recorder(listener, [TOPIC], tmp_path, rows_per_file=5) as recorder:
            for times in (1, 2):
                await publish(alice, 40)
                await asyncio.sleep(10)
                # What waits is bounded: the rest waits in the node.
                assert len(recorder._rows) == 11
                assert recorder.rows_written == 40 * (times - 1)
                full.clear()
                await asyncio.sleep(100)
                assert recorder.rows_written == 40 * times
                full.append(True)
            full.clear()
        with pytest.raises(OSError, match="No space left"):
            async with Recorder(listener, [TOPIC], tmp_path):
                full.append(True)
                await publish(alice, 1)

    run_virtual(scenario(), limit_ms=3_600_000)
    told = [record.message for record in caplog.records if "cannot write" in record.message]
    # Once for each time that it was full, of a file that was to be.
    assert [line.rpartition("/")[0] for line in told] == [
        f"the recorder cannot write, and tries again: No space left on device: '{tmp_path}"
    ] * 2
    assert sum(pq.read_table(file).num_rows for file in files(tmp_path)) == 80


def test_what_could_not_be_written_is_tried_again_soon_and_not_an_interval_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = full_disk(monkeypatch, once=True)

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener")
        async with Recorder(listener, [TOPIC], tmp_path, interval_ms=600_000) as recorder:
            await publish(alice, 3)
            await asyncio.sleep(610)
            assert not full
            assert recorder.rows_written == 3

    run_virtual(scenario(), limit_ms=3_600_000)


def test_many_bytes_make_a_file_before_many_rows_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "BYTES_PER_FILE", 1_000)
    real, full = pyarrow.parquet.write_table, [True]

    def write(*arguments: Any) -> None:
        if full:
            raise OSError(28, "No space left on device")
        real(*arguments)

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener")
        async with Recorder(listener, [TOPIC], tmp_path) as recorder:
            await publish(alice, 25, size_bytes=100)
            await asyncio.sleep(1)
            assert recorder.rows_written == 20
            monkeypatch.setattr(pyarrow.parquet, "write_table", write)
            await publish(alice, 40, size_bytes=100)
            await asyncio.sleep(10)
            # What waits is bounded by its bytes too.
            assert len(recorder._rows) == 21
            full.clear()

    run_virtual(scenario(), limit_ms=3_600_000)
    assert [pq.read_table(file).num_rows for file in files(tmp_path)][:2] == [10, 10]


def test_names_sort_as_files_were_written_and_are_synced_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, synced = os.fsync, Counter[int]()

    def sync(descriptor: int) -> None:
        synced[os.fstat(descriptor).st_ino] += 1
        fsync(descriptor)

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener")
        # A clock that stands still.
        monkeypatch.setattr(recorder_module.time, "time_ns", lambda: 9_000)
        monkeypatch.setattr(os, "fsync", sync)
        async with Recorder(listener, [TOPIC], tmp_path, rows_per_file=1):
            await publish(alice, 3)

    run_virtual(scenario(), limit_ms=3_600_000)
    found = files(tmp_path)
    assert [pq.read_table(file)["payload"].to_pylist() for file in found] == [[bytes([n]) * 10] for n in range(3)]
    # Another process that writes there at the same moment has other names.
    assert {file.stem.partition("-")[2] for file in found} == {str(os.getpid())}
    assert synced == {tmp_path.stat().st_ino: 3, **{file.stat().st_ino: 1 for file in found}}


def test_whoever_leaves_it_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener")
        async with asyncio.timeout(60), Recorder(listener, [TOPIC], tmp_path, interval_ms=3_000_000) as recorder:
            await publish(alice, 1)
        assert recorder.rows_written == 1

    run_virtual(scenario(), limit_ms=3_600_000)


def test_what_keeps_it_from_writing_for_good_is_told_and_ends_the_hearing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*arguments: Any) -> None:
        raise ValueError("no column holds that")

    monkeypatch.setattr(pyarrow.parquet, "write_table", write)

    heard: list[bool] = []

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        alice, listener = await start(network, "alice"), await start(network, "listener")
        with pytest.raises(ValueError, match="no column holds that"):
            async with Recorder(listener, [TOPIC], tmp_path, rows_per_file=5) as recorder:
                await publish(alice, 8)
                await asyncio.sleep(10)
                # What leaving raises would hide that this fails.
                heard.append(recorder.is_hearing)

    run_virtual(scenario(), limit_ms=3_600_000)
    assert heard == [False]
    assert [record.message for record in caplog.records if "recorder" in record.message] == [
        "the recorder writes nothing more: ValueError: no column holds that"
    ]


def test_gaps_are_told_and_a_node_that_fails_is_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listener = await start(MemoryNetwork(seed=7), "listener")

        async def events() -> Any:
            yield MessagesMissed(0)
            await asyncio.sleep(1)
            raise RuntimeError("gone")

        listener.events = events  # type: ignore[method-assign]
        recorder = Recorder(listener, [TOPIC], tmp_path)
        with pytest.raises(RuntimeError, match="gone"):
            async with recorder:
                await asyncio.sleep(2)
        assert recorder.gaps == 1

    run_virtual(scenario(), limit_ms=3_600_000)
    assert [record.message for record in caplog.records if "recorder" in record.message] == [
        "messages may have passed the recorder by: its archive has a gap",
        "the recorder hears nothing more: gone",
    ]


@virtual
async def test_wrong_arguments_are_refused_at_once() -> None:
    node = MemoryNetwork(seed=7).create_node("listener")
    for match, arguments in {
        r"rows_per_file is 0: it must be an integer of at least 1": {"rows_per_file": 0},
        r"interval_ms is 1\.5: it must be an integer of at least 1": {"interval_ms": 1.5},
        r"content_topics is the text '/a/1/b/proto': give a list": {"content_topics": "/a/1/b/proto"},
        r"content_topics is empty: name the topics": {"content_topics": []},
        r"node is a str: it must be a shardwire\.node\.Node": {"node": "nats://localhost"},
        r"directory is '/dev/null', a file: give a directory": {"directory": "/dev/null"},
    }.items():
        given: dict[str, Any] = {"node": node, "content_topics": [TOPIC], "directory": "archive", **arguments}
        with pytest.raises(ConfigError, match=match):
            Recorder(**given)


def test_it_is_entered_once_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = MemoryNetwork(seed=7).create_node("listener")
        recorder = Recorder(node, [TOPIC], tmp_path)
        # One that failed to enter was not entered.
        with pytest.raises(NodeError, match="is not started"):
            await recorder.__aenter__()
        await node.start()
        for _ in range(2):
            async with recorder:
                with pytest.raises(ConfigError, match="the recorder is entered already: make another one, or leave it"):
                    await recorder.__aenter__()
                assert recorder.is_hearing
        await node.stop()

    run_virtual(scenario())
