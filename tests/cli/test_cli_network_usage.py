"""What is said of options that do not fit, without any network; and what of a peer's text reaches a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_terminals import command, environment
from typer.testing import CliRunner

from shardwire import ChannelConfig, PayloadTooLargeError, create_reliable_channel
from shardwire.cli.app import app, run
from shardwire.cli.network.output import content_of, indented, shown
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import UdpNode

WHO = ("--channel", "c", "--topic", "/app/1/notes/proto", "--sender", "alice")
NODE = ("--node", "udp://127.0.0.1:0")


def say(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("shardwire: ")
    assert captured.err.count("\n") == 1, captured.err
    return code, captured.err


def test_messages_are_shown_to_nobody_where_the_standard_output_is_closed(tmp_path: Path) -> None:
    """They would count as handled."""
    line = shlex.join([sys.executable, "-m", "shardwire", "listen", *NODE, *WHO])
    answer = subprocess.run(["bash", "-c", f"{line} >&-"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (1, "shardwire: standard output: it is closed\n")


def test_an_interval_has_a_largest_value(capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("inf", "1e300"):
        code, error = say(capsys, "record", "archive", *NODE, "--topic", WHO[3], "--interval", value)
        assert code == 2
        assert "--interval" in error
        assert "86400" in error


@pytest.mark.parametrize("name", ["send", "listen", "chat", "serve"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (WHO, "Missing option '--node'"),
        (NODE, "Missing option '--channel'"),
        (("--node", "http://localhost", *WHO), "--node: url is 'http://localhost': it must begin with one of"),
        (("--node", "nats://localhost?stream=a.b", *WHO), "--node: "),
        (("--node", "nats://zulu:tango@localhost?nothing=1", *WHO), "--node: url has the option 'nothing'"),
        ((*NODE, *WHO, "--channel", ""), "what follows --channel is empty"),
        ((*NODE, *WHO, "--sender", "a" * 257), "--sender: it has 257 bytes"),
        ((*NODE, *WHO, "--topic", "notes"), "--topic: content topic"),
        ((*NODE, *WHO, "--key-file", "a", "--key-env", "B"), "--key-env: --key-file is given, too"),
        ((*NODE, *WHO, "--parity-rate", "2"), "--parity-rate"),
        ((*NODE, *WHO, "--cipher", "rot13"), "rot13"),
        ((*NODE, *WHO, "--cipher", "aes-256-gcm"), "--cipher: there is no key, and nothing would be encrypted"),
        ((*NODE, *WHO, "--preset", "nim"), "nim"),
        ((*NODE, *WHO, "--nothing"), "--nothing"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], name: str, arguments: tuple[str, ...], expected: str) -> None:
    if name == "send":
        arguments = ("-", *arguments)
    code, error = say(capsys, name, *arguments)
    assert code == 2, error
    assert expected in error
    assert "zulu" not in error
    assert "tango" not in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("send",), "Missing argument"),
        (("send", "-", *NODE, *WHO, "--to", "bob", "--receivers", "2"), "--receivers: --to is given, too"),
        (("send", "-", *NODE, *WHO, "--receivers", "0"), "--receivers"),
        (("send", "-", *NODE, *WHO, "--until", "sent", "--to", "bob"), "--until: --to and --receivers name who must"),
        (("send", "-", *NODE, *WHO, "--until", "sent", "--receivers", "2"), "--until: --to and --receivers name"),
        (("send", "-", *NODE, *WHO, "--to", "alice"), "--to: it is who sends: name another participant"),
        (("send", "-", *NODE, *WHO, "--until", "read"), "read"),
        (("send", "-", *NODE, *WHO, "--as-file"), "--as-file: it offers a file"),
        (("send", "a", *NODE, *WHO, "--as-file", "--until", "sent"), "--as-file: it offers a file"),
        (("send", "-", *NODE, *WHO, "--name", "film"), "--name: a message has none: give --as-file, too"),
        (("send", __file__, *NODE, *WHO, "--as-file", "--name", "../film"), "--name: '../film' is offered as no file"),
        (("listen", *NODE, *WHO, "--count", "0"), "--count"),
        (("serve", *NODE, *WHO), "COMMAND: nobody gets the messages: give -- COMMAND, --spool DIR or --files DIR"),
        (("serve", *NODE, *WHO, "--attempts", "0", "--", "true"), "--attempts"),
        (("serve", *NODE, *WHO, "--spool", "a", "--attempts", "3"), "--attempts: there is no COMMAND that it is about"),
        (("serve", *NODE, *WHO, "--spool", "a", "--command-timeout", "9"), "--command-timeout: there is no COMMAND"),
        (("serve", *NODE, *WHO, "--files", "a", "--failed", "b"), "--failed: there is no COMMAND"),
    ],
)
def test_wrong_usage_of_one_command(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    code, error = say(capsys, *arguments)
    assert code == 2, error
    assert expected in error


@pytest.mark.parametrize("place", ["taken", "taken/below"])
@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--output", ("listen", *NODE, *WHO)),
        ("--files", ("listen", *NODE, *WHO)),
        ("--files", ("serve", *NODE, *WHO)),
        ("--spool", ("serve", *NODE, *WHO)),
        ("--failed", ("serve", *NODE, *WHO, "--spool", "spool")),
        ("--output", ("segment", "taken")),
        ("--output", ("demo",)),
    ],
)
def test_a_file_in_the_place_of_a_directory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    arguments: tuple[str, ...],
    place: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_bytes(b"kept")
    code, error = say(capsys, *arguments, option, place)
    assert code == 2, error
    assert option in error
    assert "it wants a directory, and 'taken' is a file" in error
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("send", "nothing-here", *NODE, *WHO), "nothing-here: No such file or directory"),
        (("send", "nothing-here", *NODE, *WHO, "--as-file"), "nothing-here: No such file or directory"),
        (("send", "/dev/null", *NODE, *WHO, "--key-file", "no.key"), "key file 'no.key' cannot be read"),
        (("listen", *NODE, *WHO, "--key-env", "NO_SUCH_KEY"), "variable NO_SUCH_KEY holds no key"),
        (("listen", *NODE, *WHO, "--credentials-file", "no.login"), "no.login: No such file or directory"),
        (("listen", *NODE, *WHO, "--state", "/dev/null"), "--state '/dev/null' is no directory"),
        (("listen", "--node", "nats://127.0.0.1:9", *WHO), "nats://127.0.0.1:9 cannot be used"),
    ],
)
def test_what_cannot_be_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, error = say(capsys, *arguments)
    assert code == 1, error
    assert expected in error


def test_a_key_without_its_library_leaves_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    (tmp_path / "key").write_text("0" * 64)
    state = tmp_path / "state"
    code, error = say(capsys, "listen", *NODE, *WHO, "--state", str(state), "--state-key-file", str(tmp_path / "key"))
    assert code == 1
    assert "pip install 'shardwire[crypto]'" in error
    assert not state.exists()


def test_credentials_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "login").write_text("zulu tango\n")
    code, error = say(capsys, "listen", *NODE, *WHO, "--credentials-file", str(tmp_path / "login"))
    assert code == 2
    assert "must hold one line without spaces" in error
    assert "zulu" not in error


def test_a_message_that_is_too_large(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(26_112_001)
    # A server that carries less says so once it is there.
    code, error = say(capsys, "send", str(tmp_path / "large"), "--node", "nats://127.0.0.1:9", *WHO)
    assert code == 1
    assert "has 26,112,001 bytes, more than the 26,112,000 that one message holds: send it with --as-file" in error
    nats = ("--node", "nats://127.0.0.1:9")
    # An input without an end is not read to its end.
    with Path("/dev/zero").open("rb") as zeros:
        answer = subprocess.run(
            [sys.executable, "-m", "shardwire.cli", "send", "-", *nats, *WHO, "--parity-rate", "0.125"],
            stdin=zeros,
            capture_output=True,
            check=False,
            timeout=120,
        )
    assert answer.returncode == 1
    assert b"the standard input has more bytes than the 26,112,000 that one message holds" in answer.stderr
    code, error = say(capsys, "send", "/dev/zero", *nats, *WHO)
    assert code == 1
    assert "/dev/zero has more bytes than the 26,112,000 that one message holds" in error


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("preset", ["logos", "waku"])
def test_what_udp_does_not_carry_is_refused_before_joining(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, preset: str, encrypted: bool
) -> None:
    encryption = ChaCha20Poly1305Encryption(bytes(32)) if encrypted else None

    async def limit_of_a_channel() -> int:
        presets = {"logos": ChannelConfig.logos, "waku": ChannelConfig.waku}
        async with UdpNode("udp://127.0.0.1:0") as node:
            channel = await create_reliable_channel(
                node, "c", "/app/1/notes/proto", "alice", encryption, presets[preset]().without_store()
            )
            with pytest.raises(PayloadTooLargeError) as caught:
                await channel.send(bytes(26_112_000))
            await channel.close()
        return caught.value.limit_bytes

    limit = asyncio.run(limit_of_a_channel())
    with (tmp_path / "large").open("wb") as file:
        file.truncate(limit + 1)
    monkeypatch.setenv("KEYS", "00" * 32)
    options = (*NODE, *WHO, "--preset", preset, *(("--key-env", "KEYS") if encrypted else ()))
    # The one line there is says nothing of having joined.
    code, error = say(capsys, "send", str(tmp_path / "large"), *options)
    assert code == 1
    assert f"large has {limit + 1:,} bytes, more than the {limit:,} that one message holds: send it with" in error
    assert f"`split -b {limit}`" in error


def test_who_sends_to_nobody_over_udp_is_told_so(tmp_path: Path) -> None:
    for options in ((), ("-q",)):
        answer = command(tmp_path, "send", "-", *NODE, *WHO, "--timeout", "0.5", *options, given=b"x")
        assert answer.returncode == 1
        said = b"0 of 1 segments were sent within 0.5 s: nobody is in reach of udp://127.0.0.1:0, see that another"
        assert said in answer.stderr
        # It is not late yet: no warning stands before.
        assert b"publishing fails" not in answer.stderr


@pytest.mark.parametrize(
    ("library", "url", "extra"),
    [("nats", "nats://a", "nats"), ("paho", "mqtt://a", "mqtt"), ("aiohttp", "waku+http://a", "rest")],
)
def test_a_missing_client_is_one_line_with_its_remedy(library: str, url: str, extra: str) -> None:
    program = (
        "import importlib.util as u, sys\n"
        f"sys.modules[{library!r}] = None\n"
        f"find = u.find_spec; u.find_spec = lambda name, *rest: None if name == {library!r} else find(name, *rest)\n"
        f"from shardwire.cli.app import run; sys.exit(run(['listen', '--node', {url!r}, *{WHO!r}]))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert f"pip install 'shardwire[{extra}]'" in answer.stderr


@pytest.mark.parametrize("name", ["send", "listen", "chat", "serve"])
def test_help_has_examples(name: str) -> None:
    answer = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert answer.exit_code == 0
    assert f"shardwire {name}" in answer.stdout.replace("Usage: shardwire", "")
    for option in ("--node", "--channel", "--topic", "--sender", "--state", "--key-file", "--json"):
        assert option in answer.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("grüße 🎉", "grüße 🎉"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc", "a\n    b    c"),
        ("a\rb\x07", "a\\rb\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
    ],
)
def test_text_of_peers_moves_nothing_on_a_terminal(text: str, expected: str) -> None:
    assert indented(text) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", ""),
        (b"hello\r\n", "hello"),
        (b"two\nlines\n", "two\n    lines"),
        (b"\xff\xfe", None),
        (b"a\x1b[0m", None),
        (b"a" * 10_000, "a" * 10_000),
        (b"a" * 10_001, None),
    ],
)
def test_messages_are_shown_where_they_are_text(message: bytes, expected: str | None) -> None:
    assert shown(message) == expected


def test_messages_in_json() -> None:
    assert content_of("grüße\x1b".encode()) == {"text": "grüße\x1b"}
    assert content_of(b"\xff") == {"base64": "/w=="}


def test_without_a_terminal_no_bar_is_drawn(tmp_path: Path) -> None:
    answer = command(tmp_path, "send", "-", *NODE, *WHO, "--timeout", "0.2", given=b"x")
    assert answer.returncode == 1
    assert b"\x1b" not in answer.stdout + answer.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_still_reads_its_message(tmp_path: Path, number: signal.Signals) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as given:
        given.write(bytes(1 << 16))
        with subprocess.Popen(
            [sys.executable, "-m", "shardwire.cli", "send", "-", *NODE, *WHO],
            cwd=tmp_path,
            env=environment(),
            stdin=reading,
            stderr=subprocess.PIPE,
        ) as process:
            # The pipe was full: it takes more once some of it was read.
            given.write(bytes(1))
            code = None
            while code is None:
                process.send_signal(number)
                # A signal between two readings is seen after the second one.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(5)
            assert code == 130
            assert process.stderr is not None
            assert process.stderr.read() == b"shardwire: interrupted\n"
    os.close(reading)
