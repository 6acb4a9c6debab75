"""What every command has: --json, -v, -q, -, completion, exit code 2 in the words of the line, a full disk told."""

from __future__ import annotations

import io
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from shardwire import keccak256
from shardwire.cli.app import app, run

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PAYLOAD = bytes(range(256)) * 40


def options_of(name: str) -> set[str]:
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_the_common_options(name: str) -> None:
    assert options_of(name) >= {"--json", "--verbose", "-v", "--quiet", "-q"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_explains_every_option_and_has_an_example(name: str) -> None:
    assert f"\nshardwire {name}" in COMMANDS[name].help
    assert [parameter.name for parameter in COMMANDS[name].params if not parameter.help] == []


def test_python_runs_the_package() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "shardwire", "--version"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("shardwire ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    environment = {**os.environ, "_SHARDWIRE_COMPLETE": f"source_{shell}"}
    program = "import sys; from shardwire.cli import main; sys.argv = ['shardwire']; main()"
    source = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "shardwire" in source.stdout
    asked = {
        **os.environ,
        "_SHARDWIRE_COMPLETE": "complete_bash",
        "COMP_WORDS": "shardwire re",
        "COMP_CWORD": "1",
    }
    answer = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, check=True)
    assert {"reassemble", "reconstruct"} <= set(answer.stdout.split())


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_of_segment_inspect_and_reassemble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    parts = tmp_path / "parts"
    assert run(["segment", str(tmp_path / "a"), "-o", str(parts), "-s", "1024", "-p", "0.5", "--json"]) == 0
    assert lines(capsys) == [
        {
            "event": "segmented",
            "file": str(tmp_path / "a"),
            "size_bytes": len(PAYLOAD),
            "directory": str(parts),
            "data_segments": 10,
            "parity_segments": 5,
            "keccak256": keccak256(PAYLOAD).hex(),
        }
    ]
    assert run(["inspect", str(parts / "data-003.segment"), "--json"]) == 0
    [told] = lines(capsys)
    assert (told["event"], told["data_segment_index"], told["data_segment_count"]) == ("segment", 3, 10)
    (parts / "data-003.segment").unlink()
    assert run(["reassemble", str(parts), "-o", str(tmp_path / "b"), "--json"]) == 0
    [told] = lines(capsys)
    assert (told["event"], told["recovered"], told["keccak256"]) == ("reassembled", 1, keccak256(PAYLOAD).hex())


def test_a_segment_is_not_overwritten_by_what_is_made_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    parts = tmp_path / "parts"
    assert run(["segment", str(tmp_path / "a"), "-o", str(parts), "-q"]) == 0
    part = parts / "data-000.segment"
    before = part.read_bytes()
    assert run(["reassemble", str(parts), "-o", str(part)]) == 1
    assert "is one of the segments" in capsys.readouterr().err
    assert part.read_bytes() == before


def test_quiet_says_nothing_where_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    assert run(["segment", str(tmp_path / "a"), "-o", str(tmp_path / "parts"), "-q"]) == 0
    assert run(["reassemble", str(tmp_path / "parts"), "-o", str(tmp_path / "b"), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["reassemble", str(tmp_path / "nothing"), "-o", str(tmp_path / "b"), "-q"]) == 1
    assert "nothing" in capsys.readouterr().err


def test_a_dash_is_the_standard_input_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    class Input:
        buffer = io.BytesIO(PAYLOAD)

    monkeypatch.setattr(sys, "stdin", Input)
    assert run(["segment", "-", "-o", str(tmp_path / "parts"), "-s", "1024"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"standard input: 10,240 bytes")
    answer = subprocess.run(
        [sys.executable, "-m", "shardwire", "reassemble", str(tmp_path / "parts"), "-o", "-"],
        capture_output=True,
        check=True,
    )
    assert answer.stdout == PAYLOAD
    assert answer.stderr.startswith(b"standard output: 10,240 bytes")
    Input.buffer = io.BytesIO((tmp_path / "parts" / "data-001.segment").read_bytes())
    assert run(["inspect", "-", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["data_segment_index"] == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("segment", "a", "-o", "b", "-s", "1000"),
            "--segment-size is 1000: it must be a multiple of 64 for --erasure",
        ),
        (("segment", "a", "-o", "b", "-s", "100", "-w", "lip243"), "--segment-size is 100"),
        (("segment", "a", "-o", "b", "-p", "2"), " less than or equal to 1, got 2 ("),
        (("segment", "a", "-o", "b", "-w", "wav"), ": 'wav' is not one of 'raw', 'draft', 'lip243' (see 'shardwire "),
        (("segment", "a", "-o", "b", "-p", "half"), ", got half (see 'shardwire segment --help')"),
        (("segment",), "(see 'shardwire segment --help')"),
        (("send", "a"), "(see 'shardwire send --help')"),
        (("nothing",), "(see 'shardwire --help')"),
    ],
)
def test_wrong_usage_is_told_in_the_words_of_the_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHARDWIRE_NODE", raising=False)
    Path("a").write_bytes(PAYLOAD)
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert "segment_size_bytes" not in error


def test_what_does_not_fit_is_told_in_the_words_of_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(bytes(64 * 256))
    assert run(["segment", str(tmp_path / "a"), "-o", str(tmp_path / "b"), "-s", "64", "-p", "0"]) == 1
    error = capsys.readouterr().err
    assert "segment_size_bytes" not in error
    assert "parity_rate" not in error


def limit_files() -> None:
    """As a full disk: no file may grow beyond 3,000 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))


@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_names_the_file_and_leaves_no_segments(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    parts = tmp_path / "parts"
    if exists:
        parts.mkdir()
    # The first segment is larger than what may be written.
    command = [sys.executable, "-m", "shardwire", "segment", "a", "-o", "parts", "-s", "4096"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit_files)
    assert answer.returncode == 1
    assert answer.stderr.startswith("shardwire: parts/data-000.segment: ")
    assert answer.stderr.count("\n") == 1
    assert (list(parts.iterdir()) if exists else parts.exists()) in ([], False)


def test_a_full_disk_leaves_the_old_file_where_one_is_rebuilt(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    (tmp_path / "b").write_bytes(b"old")
    assert run(["segment", str(tmp_path / "a"), "-o", str(tmp_path / "parts"), "-s", "1024"]) == 0
    command = [sys.executable, "-m", "shardwire", "reassemble", "parts", "-o", "b"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit_files)
    assert answer.returncode == 1
    assert answer.stderr.startswith("shardwire: b: ")
    assert (tmp_path / "b").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "parts"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("inspect parts/data-000.segment >&-", ""),
        ("inspect parts/data-000.segment --json >&-", ""),
        ("inspect parts/data-000.segment --json > /dev/full", "standard output: No space left on device"),
        ("inspect parts/data-000.segment > /dev/full", "standard output: No space left on device"),
        ("segment a -o more > /dev/full", "standard output: No space left on device"),
        ("reassemble parts -o - >&-", "standard output: it is closed"),
        ("reassemble parts -o - > /dev/full", "standard output: No space left on device"),
        ("segment - -o other <&-", "standard input: it is closed"),
    ],
)
def test_a_standard_stream_that_is_closed_or_full(tmp_path: Path, line: str, error: str) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    assert run(["segment", str(tmp_path / "a"), "-o", str(tmp_path / "parts"), "-s", "1024", "-q"]) == 0
    command = f"{shlex.quote(sys.executable)} -m shardwire {line}"
    answer = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.stderr == (f"shardwire: {error}\n" if error else "")
    assert answer.returncode == int(bool(error))


def test_errors_go_nowhere_where_their_stream_is_closed(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m shardwire segment missing -o parts 2>&-"
    answer = subprocess.run(["bash", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert (answer.returncode, answer.stdout) == (1, b"")


def test_nothing_that_is_opened_takes_the_place_of_a_closed_stream() -> None:
    program = (
        "import os, sys\n"
        "from shardwire import cli\n"
        "def look():\n"
        "    null = os.stat(os.devnull)\n"
        "    print(*(number for number in (0, 2) if os.path.samestat(os.fstat(number), null)))\n"
        "    return 0\n"
        "cli._run = look\n"
        "cli.main()\n"
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} <&- 2>&-"
    answer = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "0 2\n")


ODD_NAME = os.fsdecode(b"two\nlines \x1b[2J \xff")
ODD_NAME_SHOWN = "two\\nlines \\x1b[2J \\udcff"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (("segment", ODD_NAME, "-o", "new"), 0),
        (("segment", "a", "-o", ODD_NAME + "new"), 0),
        (("reassemble", "parts", "-o", ODD_NAME), 0),
        (("reassemble", ODD_NAME + "parts", "-o", "-"), 0),
        (("segment", ODD_NAME + "missing", "-o", "new"), 1),
        (("reassemble", ODD_NAME + "empty", "-o", "b"), 1),
        (("segment", "a", "-o", "new", "-w", ODD_NAME), 2),
        (("state", ODD_NAME + "missing"), 1),
    ],
)
def test_odd_names_are_escaped_on_one_line(tmp_path: Path, line: tuple[str, ...], code: int) -> None:
    (tmp_path / "a").write_bytes(PAYLOAD)
    (tmp_path / ODD_NAME).write_bytes(PAYLOAD)
    (tmp_path / f"{ODD_NAME}empty").mkdir()
    for parts in ("parts", f"{ODD_NAME}parts"):
        assert run(["segment", str(tmp_path / "a"), "-o", str(tmp_path / parts), "-s", "1024", "-q"]) == 0
        (tmp_path / parts / ODD_NAME).touch()
    for option in ((), ("--json",)):
        for place in ("new", f"{ODD_NAME}new"):
            shutil.rmtree(tmp_path / place, ignore_errors=True)
        answer = subprocess.run(
            [sys.executable, "-m", "shardwire", *line, *option], cwd=tmp_path, capture_output=True, check=False
        )
        assert answer.returncode == code
        aside = line[-2:] == ("-o", "-")
        told = answer.stderr if code or aside else answer.stdout
        assert (answer.stdout if aside else answer.stdout + answer.stderr) == (PAYLOAD if aside else told)
        [shown] = told.decode().splitlines()
        if option and not code:
            # As other programs read it: they take no half of a surrogate pair.
            json.dumps(json.loads(shown), ensure_ascii=False).encode()
        else:
            assert shown.isprintable()
            assert ODD_NAME_SHOWN in shown or code
