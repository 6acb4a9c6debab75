"""Whatever goes wrong, the command line says it in one line, with an exit code, and never with a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardwire import __version__
from shardwire.cli import segment_files
from shardwire.cli.app import run
from shardwire.cli.explanation import empty_argument, one_line


def say(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(arguments)
    error = capsys.readouterr().err
    assert error.startswith("shardwire: ")
    assert error.count("\n") == 1, error
    return code, error


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert run([option]) == 0
    assert capsys.readouterr().out == f"shardwire {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("segment", "missing.bin", "-o", "segments"),
        ("reassemble", "missing", "-o", "rebuilt.bin"),
        ("inspect", "missing.segment"),
        ("demo", "missing.bin"),
        ("segment", ".", "-o", "segments"),
        ("inspect", "."),
    ],
)
def test_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, error = say(capsys, *arguments)
    assert code == 1
    assert arguments[1] in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("segment",), "Missing argument"),
        (("segment", "a"), "Missing option"),
        (("nothing",), "nothing"),
        (("segment", "a", "-o", "b", "-p", "2"), "--parity-rate"),
        (("segment", "a", "-o", "b", "-s", "many"), "valid integer"),
        (("segment", "a", "-o", "b", "-w", "morse"), "morse"),
        (("--nothing",), "--nothing"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str) -> None:
    code, error = say(capsys, *arguments)
    assert code == 2
    assert expected in error


def test_segment_size_that_leopard_cannot_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(bytes(5_000))
    code, error = say(capsys, "segment", str(tmp_path / "a"), "-o", str(tmp_path / "b"), "-s", "1000")
    assert code == 2
    assert "the nearest is 1024" in error


def test_empty_file_has_no_form_under_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").touch()
    code, error = say(capsys, "segment", str(tmp_path / "a"), "-o", str(tmp_path / "b"), "-w", "draft")
    assert code == 1
    assert "use --wire-format raw" in error


def test_file_that_does_not_fit_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(bytes(64 * 256))
    code, error = say(capsys, "segment", str(tmp_path / "a"), "-o", str(tmp_path / "b"), "-s", "64", "-p", "0")
    assert code == 1
    assert str(64 * 256) in error.replace(",", "")
    assert str(64 * 255) in error.replace(",", "")


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff" * 100, b"\x0a\x20" + bytes(10)])
def test_bytes_that_are_no_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (tmp_path / "a.segment").write_bytes(content)
    for arguments in (["inspect", "a.segment"], ["reassemble", ".", "-o", "rebuilt"]):
        code, _ = say(capsys, arguments[0], str(tmp_path / arguments[1]), *arguments[2:])
        assert code == 1


def test_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = say(capsys, "reassemble", str(tmp_path), "-o", str(tmp_path / "rebuilt"))
    assert code == 1
    assert "holds no files" in error


def test_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    assert run(["segment", str(tmp_path / "a"), "-o", str(tmp_path / "b")]) == 0
    capsys.readouterr()
    code, error = say(capsys, "reassemble", str(tmp_path / "b"), "-o", str(tmp_path / "nowhere" / "rebuilt"))
    assert code == 1
    assert "nowhere" in error


def test_errors_become_one_line() -> None:
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(KeyError()) == "KeyError"
    assert one_line(FileNotFoundError(2, "No such file or directory", "a.bin")) == "a.bin: No such file or directory"


def test_defects_and_interruptions_are_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raising(error: BaseException) -> Callable[..., None]:
        def describe(*arguments: object) -> None:
            raise error

        return describe

    monkeypatch.setattr(segment_files, "describe_segment", raising(RuntimeError("two\nlines")))
    code, line = say(capsys, "inspect", "a")
    assert code == 1
    assert "a defect of shardwire, please report it: RuntimeError: two lines" in line
    monkeypatch.setenv("SHARDWIRE_TRACEBACK", "1")
    assert run(["inspect", "a"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.delenv("SHARDWIRE_TRACEBACK")
    monkeypatch.setattr(segment_files, "describe_segment", raising(KeyboardInterrupt()))
    assert say(capsys, "inspect", "a") == (130, "shardwire: interrupted\n")


@pytest.mark.parametrize("command", [[], ["demo"], ["segment"], ["reassemble"], ["inspect"]])
def test_help_explains_every_command(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: shardwire" in shown
    assert "--help" in shown


def test_no_arguments_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    run([])
    captured = capsys.readouterr()
    assert "Usage: shardwire" in captured.out + captured.err


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_the_extra_the_command_says_what_to_install(library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from shardwire.cli import main; main()"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr == f"shardwire: the command line needs {library}: pip install 'shardwire[cli]'\n"


def test_an_interruption_while_modules_are_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = Path(sys.executable).with_name("shardwire")
    answer = subprocess.run([command, "--version"], capture_output=True, text=True, check=False, env=environment)
    assert (answer.returncode, answer.stderr) == (130, "shardwire: interrupted\n")


@pytest.mark.parametrize("library", ["pyarrow", "pyspark"])
def test_demo_without_spark_says_what_to_install(library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from shardwire.cli.app import run; sys.exit(run(['demo']))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr == f"shardwire: this command needs {library}: pip install 'shardwire[cli,spark]'\n"


def test_installed_command_runs() -> None:
    command = Path(sys.executable).with_name("shardwire")
    answer = subprocess.run([command, "inspect", os.devnull], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert answer.stderr.count("\n") == 1


NODE = ("-n", "udp://127.0.0.1:0", "-t", "/app/1/notes/proto")


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (("record", "", *NODE, "--for", "0.1"), "record"),
        (("send", "a", *NODE, "-c", "c", "-s", "s", "--state", ""), "--state"),
        (("send", "a", *NODE, "-c", "c", "-s", "s", "--key-file", ""), "--key-file"),
        (("listen", *NODE, "-c", "c", "-s", "s", "-o", ""), "-o"),
        (("serve", *NODE, "-c", "c", "-s", "s", "--spool", "", "--", "cat"), "--spool"),
        (("state", ""), "state"),
        (("segment", "a", "-o", ""), "-o"),
        (("reassemble", "", "-o", "b"), "reassemble"),
        (("reconstruct", "", "-o", "b"), "reconstruct"),
    ],
)
def test_an_empty_path_is_not_this_directory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    after: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(b"x")
    assert say(capsys, *arguments) == (
        2,
        f"shardwire: what follows {after} is empty: leave it out, or give it a value\n",
    )
    assert os.listdir() == ["a"]
    index = arguments.index("")
    if arguments[index - 1].startswith("--"):
        joined = (*arguments[: index - 1], f"{arguments[index - 1]}=", *arguments[index + 1 :])
        assert say(capsys, *joined) == (2, f"shardwire: {after} is empty: leave it out, or give it a value\n")


def test_a_command_to_run_may_have_empty_arguments() -> None:
    assert empty_argument(["serve", "--", "printf", "", "--x="]) is None
