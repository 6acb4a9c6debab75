"""A standard output that nobody reads: what is told waits, the channel goes on, and the command ends when asked."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_terminals import PATIENCE_S, command, environment
from live_nodes import real_time
from live_servers import NatsServer

from shardwire.cli.network.doctor import examine
from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.line_writer import LineWriter
from shardwire.cli.network.output import Output
from shardwire.node import create_node

CHANNEL = ("--channel", "notes", "--topic", "/app/1/notes/proto")
FILLING = b"."


def member(url: str, sender: str) -> tuple[str, ...]:
    return ("--node", url, *CHANNEL, "--sender", sender)


@contextlib.contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe that takes no more byte until it is read: its two ends."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)
    for size_bytes in (1 << 16, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, FILLING * size_bytes)
    fcntl.fcntl(writing, fcntl.F_SETFL, 0)
    try:
        yield reading, writing
    finally:
        for end in (reading, writing):
            with contextlib.suppress(OSError):
                os.close(end)


@contextlib.contextmanager
def unread(
    directory: Path, writing: int, *arguments: str, errors: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose standard output is the end of a pipe; once it takes part."""
    with subprocess.Popen(
        [sys.executable, "-m", "shardwire.cli", *arguments],
        cwd=directory,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=errors,
    ) as process:
        try:
            os.close(writing)
            yield process
        finally:
            process.kill()


def read_all(descriptor: int) -> list[str]:
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read().lstrip(FILLING).decode().splitlines()


@pytest.mark.parametrize(
    ("name", "options", "number", "code"),
    [
        ("listen", (), signal.SIGINT, 0),
        ("listen", ("--count", "1"), signal.SIGHUP, 130),
        ("listen", ("--json",), signal.SIGTERM, 0),
        ("chat", (), signal.SIGTERM, 0),
    ],
)
def test_a_command_that_nobody_reads_receives_and_ends(
    tmp_path: Path, name: str, options: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    with NatsServer(tmp_path / "nats") as server, full_pipe() as (_, writing):
        bob = (*member(server.url, "bob"), "--state", "state")
        with unread(tmp_path, writing, name, *bob, *options) as process:
            assert process.stderr is not None
            if "--json" not in options:
                assert process.stderr.readline().startswith(b"bob takes part")
            sent = command(tmp_path, "send", "-", *member(server.url, "alice"), "--to", "bob", given=b"hello")
            assert sent.returncode == 0, sent.stderr
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == code
            assert (
                "shardwire: the standard output was not read until the end, so a message of 5 bytes from alice was not "
                "shown: it is kept in state, and shown by the next command that has this --state\n"
            ) in process.stderr.read().decode()
        again = command(tmp_path, "listen", *bob, "--count", "1", "--quiet")
        assert again.stdout.endswith(b"alice (again, after a crash): hello\n")


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--count", "1", "--verbose"), 130)])
def test_a_command_of_which_not_even_the_errors_are_read(tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    with NatsServer(tmp_path / "nats") as server, full_pipe() as (_, writing):
        bob = (*member(server.url, "bob"), "--state", "state")
        with unread(tmp_path, writing, "listen", *bob, *options, errors=writing) as process:
            alice = (*member(server.url, "alice"), "--to", "bob", "--timeout", "30")
            sent = command(tmp_path, "send", "-", *alice, given=b"hello")
            assert sent.returncode == 0, sent.stderr
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == code


def test_what_waited_for_its_reader_is_shown_in_order_once(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server, full_pipe() as (reading, writing):
        bob = (*member(server.url, "bob"), "--state", "state")
        with unread(tmp_path, writing, "listen", *bob, "--count", "3") as process:
            for text in (b"one", b"two", b"three"):
                sent = command(tmp_path, "send", "-", *member(server.url, "alice"), "--to", "bob", given=text)
                assert sent.returncode == 0, sent.stderr
            shown = read_all(reading)
            assert process.wait(PATIENCE_S) == 0
    assert [line.partition(" ")[2] for line in shown] == ["alice: one", "alice: two", "alice: three"]


def test_what_a_spool_has_is_received_though_nobody_reads_of_it(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server, full_pipe() as (_, writing):
        bob = (*member(server.url, "bob"), "--state", "state")
        with unread(tmp_path, writing, "serve", *bob, "--spool", "spool") as process:
            sent = command(tmp_path, "send", "-", *member(server.url, "alice"), "--to", "bob", given=b"hello")
            assert sent.returncode == 0, sent.stderr
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        [message] = (tmp_path / "spool").glob("*.message")
        assert message.read_bytes() == b"hello"
        again = command(tmp_path, "listen", *bob, "--timeout", "1", "--quiet")
        assert (again.returncode, again.stdout) == (0, b"")


def test_a_recording_that_nobody_reads_of_ends(tmp_path: Path) -> None:
    recording = ("record", "a", "-n", "udp://127.0.0.1:0", "-t", "/app/1/notes/proto")
    with full_pipe() as (_, writing), unread(tmp_path, writing, *recording) as process:
        assert process.stderr is not None
        assert b"Ctrl-C ends it" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@real_time
async def test_looking_at_a_node_ends_though_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    interruption = Interruption()
    with full_pipe() as (_, writing), os.fdopen(writing, "w", closefd=False) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        node = create_node("udp://127.0.0.1:0")
        told = Output(as_json=True)
        looking = asyncio.create_task(examine(node, interruption, told, topic=None, timeout_s=30, neighbours_wait_s=0))
        while "shardwire output" not in {thread.name for thread in threading.enumerate()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        interruption.want()
        assert await looking == 0
        assert told.why_closed == "the standard output was not read until the end"


@real_time
async def test_a_stream_that_does_not_block_gets_a_line_as_a_whole() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    line = "x" * 1_000_000
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb") as reader:
        writer = LineWriter(stream, pytest.fail)
        writer.put(line)
        assert await asyncio.to_thread(reader.read, len(line) + 1) == line.encode() + b"\n"
        assert await writer.written()
        writer.end()


@real_time
async def test_whoever_reads_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is to end waits while there is progress, however little."""
    monkeypatch.setattr("shardwire.cli.network.output.UNREAD_S", 0.2)
    reading, writing = os.pipe()
    interruption = Interruption()
    got = bytearray()

    def read_slowly() -> None:
        while piece := os.read(reading, 30_000):
            got.extend(piece)
            pause.wait(0.05)

    pause = threading.Event()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        output = Output(as_json=False)
        async with output.without_blocking(interruption):
            interruption.want()
            output.result("x" * 600_000)
            slow = asyncio.create_task(asyncio.to_thread(read_slowly))
            assert await output.written()
    await slow
    os.close(reading)
    assert got == b"x" * 600_000 + b"\n"


@real_time
async def test_a_failure_is_told_once_and_to_all_who_wait() -> None:
    told: list[OSError] = []
    with os.fdopen(os.open("/dev/full", os.O_WRONLY), "w") as full:
        writer = LineWriter(full, told.append)
        writer.put("one")
        writer.put("two")
        assert not await writer.written()
        writer.put("three")
        assert not await writer.written()
    assert [error.strerror for error in told] == ["No space left on device"]


@real_time
async def test_remarks_go_above_the_bars_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output(as_json=False)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as terminal, os.fdopen(reading) as shown:
        monkeypatch.setattr(sys, "stderr", terminal)
        async with output.without_blocking(Interruption()):
            output.remark("before")
            drawn = io.StringIO()
            monkeypatch.setattr(sys, "stderr", drawn)
            output.remark("meanwhile")
            monkeypatch.setattr(sys, "stderr", terminal)
        assert (drawn.getvalue(), shown.readline()) == ("meanwhile\n", "before\n")
