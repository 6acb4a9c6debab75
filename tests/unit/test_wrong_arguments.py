"""One kind of error for one mistake, wherever it is made: an argument of a wrong kind raises `ConfigError`.

Bytes are the exception, as everywhere in Python: what is no buffer is a `TypeError`.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwire import (
    Changes,
    ConfigError,
    MemoryPersistence,
    MissingLibraryError,
    create_reliable_channel,
    erasure,
    keccak256,
)
from shardwire.archive import Recorder, decrypt, reconstruct, reconstruct_files, report_page, summarize
from shardwire.encryption import ChaCha20Poly1305Encryption, read_key_file, read_key_variable
from shardwire.monitor import Monitor
from shardwire.node import MemoryNetwork, MqttNode, NatsNode, UdpNode, WakuRestNode
from shardwire.persistence import SqlitePersistence, read_channels
from shardwire.segmentation import Reassembler, segment, segment_many

Call = Callable[[Any], Any]
TABLE = pa.table({"payload": [b"x"]})
CIPHER = ChaCha20Poly1305Encryption(bytes(32))


def awaited(call: Call) -> Call:
    """A call in an event loop, with a started node."""

    def run(value: Any) -> None:
        async def main() -> None:
            async with MemoryNetwork().create_node("alice") as node:
                await call((node, value))

        asyncio.run(main())

    return run


async def monitored(node: Any, **given: Any) -> Monitor:
    async with create_reliable_channel(node, "c", "/a/1/b/p", "a") as channel:
        return Monitor(channel, **given)


CONFIGS: dict[str, Call] = {
    "segment": lambda value: segment(b"x", value),
    "segment_many": lambda value: segment_many([b"x"], value),
    "Reassembler": Reassembler,
    "reconstruct": lambda value: reconstruct(TABLE, value),
    "summarize": lambda value: summarize(TABLE, value),
    "MemoryNetwork": MemoryNetwork,
    "MemoryNetwork.create_node": lambda value: MemoryNetwork().create_node("alice", value),
    "NatsNode": lambda value: NatsNode("nats://localhost", config=value),
    "MqttNode": lambda value: MqttNode("mqtt://localhost", config=value),
    "UdpNode": lambda value: UdpNode("udp://localhost", config=value),
    "WakuRestNode": lambda value: WakuRestNode("http://localhost", config=value),
    "create_reliable_channel": awaited(
        lambda given: create_reliable_channel(given[0], "c", "/a/1/b/p", "a", None, given[1])
    ),
    "clock": awaited(lambda given: create_reliable_channel(given[0], "c", "/a/1/b/p", "a", clock=given[1])),
    "rng": awaited(lambda given: create_reliable_channel(given[0], "c", "/a/1/b/p", "a", rng=given[1])),
}
PATHS: dict[str, Call] = {
    "SqlitePersistence": SqlitePersistence,
    "read_channels": read_channels,
    "read_key_file": read_key_file,
    "from_key_file": ChaCha20Poly1305Encryption.from_key_file,
    "decrypt": lambda value: decrypt(key_file=value),
    "reconstruct": lambda value: reconstruct(value),
    "reconstruct several": lambda value: reconstruct([value]),
    "reconstruct_files": lambda value: reconstruct_files("archive.parquet", value),
    "the archive of reconstruct_files": lambda value: reconstruct_files(value, "messages"),
    "summarize": summarize,
    "write_key_file": CIPHER.write_key_file,
    "Recorder": lambda value: Recorder(MemoryNetwork().create_node("alice"), ["/a/1/b/p"], value),
}
LISTS: dict[str, Call] = {
    "unwrap": lambda value: reconstruct(TABLE, unwrap=value),
    "peers": lambda value: UdpNode("udp://localhost", peers=value),
    "by": lambda value: reconstruct(TABLE, by=value),
    "kinds": lambda value: read_channels(__file__, value),
    "allow_hosts": awaited(lambda given: monitored(given[0], allow_hosts=given[1])),
    "subscribe": awaited(lambda given: given[0].subscribe(given[1])),
    "unsubscribe": awaited(lambda given: given[0].unsubscribe(given[1])),
    "partition": lambda value: MemoryNetwork().partition(value),
    "a group": lambda value: MemoryNetwork().partition([value]),
}
TEXTS: dict[str, Call] = {
    "read_key_variable": read_key_variable,
    "from_environment": ChaCha20Poly1305Encryption.from_environment,
    "decrypt key_env": lambda value: decrypt(key_env=value),
    "decrypt channel_id": lambda value: decrypt(key_env="A", channel_id=value),
    "bind": CIPHER.bind,
    "payload": lambda value: reconstruct(TABLE, payload=value),
    "key": lambda value: reconstruct(TABLE, key=value),
    "a column of by": lambda value: reconstruct(TABLE, by=[value]),
    "report_page": lambda value: report_page(summarize(TABLE), value),
    "the summary of report_page": lambda value: report_page(value, "title"),
    "SqlitePersistence.load": lambda value: SqlitePersistence("state.sqlite").load(value),
    "SqlitePersistence.commit": lambda value: SqlitePersistence("state.sqlite").commit(value, Changes()),
    "the changes of SqlitePersistence": lambda value: SqlitePersistence("state.sqlite").commit("room", value),
    "MemoryPersistence.load": lambda value: MemoryPersistence().load(value),
    "MemoryPersistence.commit": lambda value: MemoryPersistence().commit(value, Changes()),
    "the changes of MemoryPersistence": lambda value: MemoryPersistence().commit("room", value),
    "erasure.encode": lambda value: erasure.encode([bytes(64)], 1, value),
    "erasure.reconstruct": lambda value: erasure.reconstruct([bytes(64), None], 1, 1, value),
    "Monitor": lambda value: Monitor(value),
    "the host of Monitor": awaited(lambda given: monitored(given[0], host=given[1])),
    "create_node": lambda value: MemoryNetwork().create_node(value),
}


@pytest.mark.parametrize("value", ["text", 5, {}], ids=repr)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_no_configuration(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=type(value).__name__):
        CONFIGS[name](value)


@pytest.mark.parametrize("value", [5, 1.5, object()], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", PATHS)
def test_what_is_no_path(name: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "archive.parquet")
    with pytest.raises(ConfigError, match=type(value).__name__):
        PATHS[name](value)


@pytest.mark.parametrize("value", ["a\0b", "a\ud800b", Path("a\0b")], ids=ascii)
@pytest.mark.parametrize("name", PATHS)
def test_what_no_path_holds(name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "archive.parquet")
    with pytest.raises(ConfigError, match=re.escape(repr(str(value)))):
        PATHS[name](value)


@pytest.mark.parametrize("value", [b"archive.parquet", TABLE.to_pandas()], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["reconstruct", "the archive of reconstruct_files", "summarize"])
def test_what_would_be_taken_apart_for_paths(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"the archive is a {type(value).__name__}: give paths or an Arrow table"):
        PATHS[name](value)


@pytest.mark.parametrize("value", ["text", 5, None], ids=repr)
@pytest.mark.parametrize("name", LISTS)
def test_what_is_no_list(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=repr(value) if isinstance(value, str) else type(value).__name__):
        LISTS[name](value)


@pytest.mark.parametrize("name", sorted(LISTS.keys() - {"peers", "partition"}))
def test_an_iterator_is_no_list_to_whoever_reads_it_twice(name: str) -> None:
    with pytest.raises(ConfigError, match="is a list_iterator: it must be a list of "):
        LISTS[name](iter(["/app/1/a/proto"]))


@pytest.mark.parametrize("value", [5, b"bytes"], ids=repr)
@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_text(name: str, value: object) -> None:
    with pytest.raises(ConfigError):
        TEXTS[name](value)


@pytest.mark.parametrize("value", [None, 1, "no"], ids=repr)
def test_what_is_neither_true_nor_false(value: Any) -> None:
    with pytest.raises(ConfigError, match=f"include_payload is {value!r}: it must be True or False"):
        reconstruct(TABLE, include_payload=value)


def test_an_archive_of_nothing() -> None:
    for call in (reconstruct, summarize):
        with pytest.raises(ConfigError, match="the archive is an empty list: give at least one file or directory"):
            call([])


@pytest.mark.parametrize("threads", [0, "2", 1.5, True])
def test_what_is_no_number_of_threads(threads: Any) -> None:
    with pytest.raises(ConfigError, match=f"threads is {threads!r}: it must be an integer of at least 1"):
        reconstruct(TABLE, threads=threads)


@pytest.mark.parametrize("call", [keccak256, CIPHER.encrypt, lambda value: Reassembler().receive(value, now_ms=0)])
def test_what_is_no_buffer(call: Call) -> None:
    with pytest.raises(TypeError):
        call("text")


def test_a_missing_library_is_that_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *arguments: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("pyarrow", "pyspark", "starlette", "matplotlib", "google"):
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **more)

    for room in ("archive", "spark", "monitor"):
        with monkeypatch.context() as patch:
            for loaded in [name for name in sys.modules if name.startswith(f"shardwire.{room}")]:
                patch.delitem(sys.modules, loaded)
            patch.setattr(builtins, "__import__", importing)
            with pytest.raises(MissingLibraryError, match=rf"shardwire\.{room} needs the library \w+: pip install"):
                importlib.import_module(f"shardwire.{room}")
