"""`shardwire segment`, `reassemble` and `inspect` on real files."""

from __future__ import annotations

import os
import random
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shardwire import keccak256
from shardwire.cli.app import run


def payload_file(directory: Path, size: int, seed: int = 1) -> Path:
    path = directory / "payload.bin"
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


@pytest.mark.parametrize("wire", ["raw", "draft", "lip243"])
@pytest.mark.parametrize("code", ["leopard", "vandermonde"])
def test_file_survives_the_loss_of_as_many_segments_as_there_is_parity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wire: str, code: str
) -> None:
    payload = payload_file(tmp_path, 10_001)
    options = ["-w", wire, "-c", code]
    segments = tmp_path / "segments"
    arguments = ["segment", str(payload), "-o", str(segments), "-s", "1024", "-p", "0.5", *options]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert keccak256(payload.read_bytes()).hex() in said
    data, parity = sorted(segments.glob("data-*")), sorted(segments.glob("parity-*"))
    assert len(data) >= 10
    assert len(parity) >= 5
    # The short last segment goes too: its length is on no wire but lip243's.
    for lost in [data[0], data[-1], *data[2 : len(parity)]]:
        lost.unlink()
    rebuilt = tmp_path / "rebuilt.bin"
    assert run(["reassemble", str(segments), "-o", str(rebuilt), *options]) == 0
    assert rebuilt.read_bytes() == payload.read_bytes()
    said = capsys.readouterr().out
    assert f"{len(parity)} recovered through parity ({code})" in said


@pytest.mark.parametrize(
    ("wire", "size"), [(wire, size) for wire in ("raw", "draft", "lip243") for size in (1, 1024, 1025)] + [("raw", 0)]
)
def test_small_files(tmp_path: Path, wire: str, size: int) -> None:
    payload = payload_file(tmp_path, size)
    segments, rebuilt = tmp_path / "segments", tmp_path / "rebuilt.bin"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024", "-w", wire]) == 0
    assert run(["reassemble", str(segments), "-o", str(rebuilt), "-w", wire]) == 0
    assert rebuilt.read_bytes() == payload.read_bytes()


def test_too_many_lost_segments_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = payload_file(tmp_path, 10_000)
    segments, rebuilt = tmp_path / "segments", tmp_path / "rebuilt.bin"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024", "-p", "0.2"]) == 0
    for lost in sorted(segments.glob("data-*"))[:4]:
        lost.unlink()
    assert run(["reassemble", str(segments), "-o", str(rebuilt)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "needs 2 more segments" in error
    assert not rebuilt.exists()


def test_segments_of_two_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments = tmp_path / "segments"
    assert run(["segment", str(payload_file(tmp_path, 3_000, seed=1)), "-o", str(segments), "-s", "1024"]) == 0
    for path in sorted(segments.glob("*.segment")):
        path.rename(path.with_suffix(".first"))
    assert run(["segment", str(payload_file(tmp_path, 3_000, seed=2)), "-o", str(segments), "-s", "1024"]) == 0
    assert run(["reassemble", str(segments), "-o", str(tmp_path / "rebuilt.bin")]) == 1
    assert "several payloads" in capsys.readouterr().err


@pytest.mark.parametrize("made", ["raw", "draft", "lip243"])
@pytest.mark.parametrize("read", ["raw", "draft", "lip243"])
def test_a_wrong_wire_is_told_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str, read: str) -> None:
    segments = tmp_path / "segments"
    assert run(["segment", str(payload_file(tmp_path, 10_001)), "-o", str(segments), "-s", "1024", "-w", made]) == 0
    capsys.readouterr()
    code = run(["reassemble", str(segments), "-o", str(tmp_path / "rebuilt.bin"), "-w", read])
    said = capsys.readouterr().err
    # Data segments of draft are read as raw ones, which say how many there are.
    if made == read or (made, read) == ("draft", "raw"):
        assert code == 0
    else:
        assert code == 1
        assert said.strip().endswith("is --wire-format the one they were made with?")


def test_foreign_files_among_the_segments_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = payload_file(tmp_path, 3_000)
    segments, rebuilt = tmp_path / "segments", tmp_path / "rebuilt.bin"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024"]) == 0
    (segments / "README").write_text("nothing of the kind")
    assert run(["reassemble", str(segments), "-o", str(rebuilt)]) == 0
    assert rebuilt.read_bytes() == payload.read_bytes()
    assert "ignored 1: README (Undecodable" in capsys.readouterr().out


def test_files_that_are_no_segments_are_told_in_one_line(tmp_path: Path) -> None:
    for name in ("README", "notes", "photo"):
        (tmp_path / name).write_text("nothing of the kind")
    # In a process of its own: a test's own logging would hide what logging says where nobody set it up.
    command = [sys.executable, "-m", "shardwire.cli", "reassemble", str(tmp_path), "-o", str(tmp_path / "rebuilt")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (1, "", 1)
    assert "ignored 3: README (Undecodable" in said.stderr


def test_whole_messages_among_segments_of_draft_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = payload_file(tmp_path, 3_000)
    segments, rebuilt = tmp_path / "segments", tmp_path / "rebuilt.bin"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024", "-w", "draft"]) == 0
    (segments / "README").write_text("under draft these bytes are a message")
    assert run(["reassemble", str(segments), "-o", str(rebuilt), "-w", "draft"]) == 0
    assert rebuilt.read_bytes() == payload.read_bytes()
    assert "ignored 1: README (a whole message)" in capsys.readouterr().out


def test_file_larger_than_any_segment_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = payload_file(tmp_path, 3_000)
    segments, rebuilt = tmp_path / "segments", tmp_path / "rebuilt.bin"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024"]) == 0
    with (segments / "core").open("wb") as sparse:
        sparse.truncate((1 << 30) + 1)
    assert run(["reassemble", str(segments), "-o", str(rebuilt)]) == 0
    assert rebuilt.read_bytes() == payload.read_bytes()
    assert "ignored 1: core (too large for a segment)" in capsys.readouterr().out


def segments_of(directory: Path, payload: Path) -> Path:
    segments = directory / "segments"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024"]) == 0
    return segments


def test_output_is_as_private_as_the_user_wants(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, payload_file(tmp_path, 3_000))
    new, secret = tmp_path / "new.bin", tmp_path / "secret.bin"
    secret.touch(mode=0o600)
    before = os.umask(0o077)
    try:
        assert run(["reassemble", str(segments), "-o", str(new)]) == 0
    finally:
        os.umask(before)
    assert run(["reassemble", str(segments), "-o", str(secret)]) == 0
    assert [stat.S_IMODE(path.stat().st_mode) for path in (new, secret)] == [0o600, 0o600]


def test_output_through_a_link_and_into_a_pipe(tmp_path: Path) -> None:
    payload = payload_file(tmp_path, 3_000)
    segments = segments_of(tmp_path, payload)
    target, link, pipe = tmp_path / "target.bin", tmp_path / "link.bin", tmp_path / "pipe"
    link.symlink_to(target)
    assert run(["reassemble", str(segments), "-o", str(link)]) == 0
    assert link.is_symlink()
    assert target.read_bytes() == payload.read_bytes()
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(["reassemble", str(segments), "-o", str(pipe)]) == 0
        assert os.read(reader, 1 << 16) == payload.read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_output_to_the_standard_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    payload = payload_file(tmp_path, 3_000)
    segments = segments_of(tmp_path, payload)
    capfdbinary.readouterr()
    assert run(["reassemble", str(segments), "-o", "-"]) == 0
    out, error = capfdbinary.readouterr()
    assert out == payload.read_bytes()
    assert b"3,000 bytes from 3 data segments" in error


def test_names_of_any_length_and_bytes(tmp_path: Path) -> None:
    payload = payload_file(tmp_path, 100)
    directory = tmp_path / os.fsdecode(b"\xff") / ("d" * 200) / ("e" * 200) / ("f" * 200) / ("g" * 200)
    directory.mkdir(parents=True)
    output = tmp_path / ("o" * 255)
    assert run(["segment", str(payload), "-o", str(directory), "-s", "1024"]) == 0
    assert run(["reassemble", str(directory), "-o", str(output)]) == 0
    assert output.read_bytes() == payload.read_bytes()


def test_segment_refuses_a_directory_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = payload_file(tmp_path, 3_000)
    arguments = ["segment", str(payload), "-o", str(tmp_path / "segments")]
    assert run(arguments) == 0
    assert run(arguments) == 1
    assert "holds .segment files already" in capsys.readouterr().err


def test_inspect_shows_a_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = payload_file(tmp_path, 10_000)
    segments = tmp_path / "segments"
    assert run(["segment", str(payload), "-o", str(segments), "-s", "1024", "-p", "0.5"]) == 0
    capsys.readouterr()
    assert run(["inspect", str(segments / "parity-003.segment")]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["kind"] == "parity segment"
    assert shown["entire_message_hash"] == keccak256(payload.read_bytes()).hex()
    assert shown["parity_segment_index"] == "3"
    assert shown["parity_segment_count"] == "5"
    assert shown["data_segment_count"] == "10"


def test_inspect_tells_a_whole_message_of_the_draft_wire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "message.bin"
    message.write_bytes(b"\xff not a protobuf message")
    assert run(["inspect", str(message), "-w", "draft"]) == 0
    assert "whole message" in capsys.readouterr().out


@pytest.mark.parametrize("rate", ["0", "0.5"])
@pytest.mark.parametrize("source", ["-", "/dev/zero"])
def test_no_more_is_read_than_one_message_holds(tmp_path: Path, source: str, rate: str) -> None:
    """An input without an end."""
    command = [sys.executable, "-m", "shardwire.cli", "segment", source, "-o", str(tmp_path / "s"), "-s", "64"]
    with open("/dev/zero", "rb") as endless:
        said = subprocess.run(
            [*command, "-p", rate],
            stdin=endless,
            capture_output=True,
            text=True,
            check=False,
            # Without an end the memory of the machine would be it.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
        )
    name = "standard input" if source == "-" else source
    limit = "16,320" if rate == "0" else "8,192"
    assert (said.returncode, said.stderr) == (
        1,
        f"shardwire: {name} has more bytes than the {limit} that one message holds: enlarge --segment-size, lower "
        "--parity-rate or split it\n",
    )
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("-s", "1000"), 2, "--segment-size is 1000: it must be a multiple of 64"),
        (("-s", "64", "-w", "lip243"), 2, "--segment-size is 64"),
        ((), 1, "holds .segment files already"),
    ],
)
def test_what_can_be_refused_at_once_is_before_anything_is_read(
    tmp_path: Path, options: tuple[str, ...], code: int, says: str
) -> None:
    (tmp_path / "data-000.segment").touch()
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "shardwire.cli", "segment", "-", "-o", str(tmp_path), *options]
    said = subprocess.run(command, stdin=reading, capture_output=True, text=True, check=False, timeout=60)
    assert (said.returncode, said.stderr.count("\n")) == (code, 1)
    assert says in said.stderr
    for descriptor in (reading, writing):
        os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        (["segment", "payload.bin", "-o", "parts", "-s", "1024"], "shardwire.cli.segment_files.inspect_segment"),
        (["reassemble", "segments", "-o", "rebuilt.bin"], "shardwire.cli.segment_files._mode_of"),
    ],
)
def test_a_signal_in_the_middle_leaves_nothing_half_done(
    tmp_path: Path, arguments: list[str], step: str, number: signal.Signals
) -> None:
    payload = payload_file(tmp_path, 10_000)
    assert run(["segment", str(payload), "-o", str(tmp_path / "segments"), "-s", "1024"]) == 0
    # The signal comes at the third call, or at the only one.
    program = f"""
import signal, sys
from unittest import mock
from shardwire.cli.app import run
import {step.rpartition(".")[0]} as place
before, calls = place.{step.rpartition(".")[2]}, []
def interrupted(*given, **named):
    calls.append(given)
    if len(calls) == {3 if arguments[0] == "segment" else 1}:
        signal.raise_signal({int(number)})
    return before(*given, **named)
with mock.patch("{step}", interrupted):
    sys.exit(run({arguments!r}))
"""
    answer = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (130, "shardwire: interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["payload.bin", "segments"]


@pytest.mark.parametrize("command", ["segment", "reconstruct", "demo"])
def test_the_standard_output_is_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    payload_file(tmp_path, 10_000)
    assert run([command, "payload.bin", "-o", "-"]) == 2
    assert "'-'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["payload.bin"]
