"""`shardwire record` in a terminal, over a real network, and what other commands make of its archive."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pyarrow.parquet
import pytest
from cli_terminals import Terminal, command, environment
from live_nodes import real_time
from live_servers import NatsServer, free_port

from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.output import Output
from shardwire.cli.network.record import record
from shardwire.node import MemoryNetwork, MessageEnvelope
from shardwire.node.transport import TransportNode

TOPIC, OTHER = "/app/1/notes/proto", "/app/1/news/proto"


def member(url: str, sender: str, topic: str = TOPIC) -> tuple[str, ...]:
    return ("--node", url, "--channel", "notes", "--topic", topic, "--sender", sender)


@pytest.mark.parametrize("ends_by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_two_say_is_reconstructed_from_what_a_third_recorded(tmp_path: Path, ends_by: signal.Signals) -> None:
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(tmp_path, "record", "kept/archive", "-n", server.url, "-t", TOPIC, "-t", OTHER, "--json") as recorder,
    ):
        assert recorder.until_event("recording")[0]["topics"] == [TOPIC, OTHER]
        for topic in (TOPIC, OTHER):
            with Terminal(tmp_path, "listen", *member(server.url, "bob", topic), "--count", "1") as listen:
                listen.until(lambda listen=listen: bool(listen.err), "bob is there")  # type: ignore[misc]
                sent = command(tmp_path, "send", "-", *member(server.url, "alice", topic), given=b"a" * 300_000)
                assert sent.returncode == 0, sent.stderr
                assert listen.wait() == 0, str(listen)
        recorder.signal(ends_by)
        assert recorder.wait() == 0, str(recorder)
        [recorded] = recorder.events("recorded")
        assert recorded["gaps"] == 0
        rows = pyarrow.parquet.read_table(tmp_path / "kept" / "archive")
        assert recorded["rows"] == rows.num_rows >= 6
        assert set(rows["content_topic"].to_pylist()) == {TOPIC, OTHER}
    found = command(tmp_path, "reconstruct", "kept/archive", "--unwrap", "sds", "--output", "out", "--json")
    assert found.returncode == 0, found.stderr
    [told] = [json.loads(line) for line in found.stdout.splitlines()]
    assert told["messages"]["complete"] == 2, told


def test_a_file_is_told_of_when_it_is_written_and_time_ends_it(tmp_path: Path) -> None:
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(
            tmp_path, "record", "a", "-n", server.url, "-t", TOPIC, "--interval", "0.1", "--for", "15", "--json"
        ) as recorder,
    ):
        recorder.until_event("recording")
        command(tmp_path, "send", "-", *member(server.url, "alice"), "--until", "sent", given=b"a word")
        [written, *_] = recorder.until_event("written")
        assert written["rows"] >= 1
        assert len(list((tmp_path / "a").glob("*.parquet"))) >= 1
        assert recorder.wait() == 0, str(recorder)


def test_people_are_told_where_it_goes_and_where_nothing_came(tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    answer = command(tmp_path, "record", "a", "-n", url, "-t", TOPIC, "--for", "0.2")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == b"0 messages in a\n"
    said = answer.stderr.decode().splitlines()
    assert said[0].endswith(f"hears of {TOPIC} goes into a; Ctrl-C ends it")
    assert said[-1].startswith("nothing came: do others send on this topic")


@real_time
async def test_a_node_that_ends_ends_it_with_what_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = MemoryNetwork()
    node, other = network.create_node("listener"), network.create_node("other")
    await other.start()
    recording = asyncio.create_task(
        record(
            cast(TransportNode, node),
            Interruption(),
            Output(as_json=False),
            topics=(TOPIC,),
            directory=tmp_path / "a",
            rows_per_file=10,
            interval_ms=60_000,
            for_s=None,
        )
    )
    await asyncio.sleep(0.5)
    await other.send(MessageEnvelope(TOPIC, b"a word"))
    await asyncio.sleep(0.1)
    await node.stop()
    assert await recording == 1
    assert capsys.readouterr().out == f"1 message in {tmp_path / 'a'}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("file", "-t", TOPIC), "it wants a directory, and 'file' is a file"),
        (("a", "-t", "no topic"), "--topic"),
        (("a", "-t", TOPIC, "--for", "-1"), "--for"),
        (("a", "-t", TOPIC, "--rows-per-file", "0"), "--rows-per-file"),
        (("a",), "--topic"),
    ],
)
def test_wrong_usage_is_told_before_the_network_is_used(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    (tmp_path / "file").touch()
    answer = command(tmp_path, "record", *arguments, "-n", "nats://127.0.0.1:1")
    assert answer.returncode == 2
    assert says in answer.stderr.decode()


def test_without_pyarrow_one_line_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyarrow'] = None\nfrom shardwire.cli import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", program, "record", "a", "-n", "udp://127.0.0.1:0", "-t", TOPIC],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("shardwire: ")
    assert "pip install 'shardwire[archive]'" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
