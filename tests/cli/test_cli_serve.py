"""`shardwire serve`: messages handed to a command and to a spool directory, and a command that fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_terminals import Terminal, command
from live_servers import NatsServer, free_port

CHANNEL = ("--channel", "jobs", "--topic", "/app/1/jobs/proto")
# Writes each message, and what it was told of it, to a file of its own; fails on some.
WORKER = """
import json, os, sys, time
parent = os.getppid()
message = sys.stdin.buffer.read()
told = {name: value for name, value in os.environ.items() if name.startswith("SHARDWIRE_") or "SECRET" in name}
print("working on", len(message))
if message == b"fail":
    sys.exit(3)
if message == b"hang":
    while os.getppid() == parent:
        time.sleep(0.1)
    sys.exit(1)
with open("done.jsonl", "a") as file:
    file.write(json.dumps({"message": message.decode(), **told}) + "\\n")
"""


def member(url: str, sender: str) -> tuple[str, ...]:
    return ("--node", url, *CHANNEL, "--sender", sender)


def send(directory: Path, url: str, *messages: str) -> None:
    for message in messages:
        answer = command(directory, "send", "-", *member(url, "boss"), given=message.encode())
        assert answer.returncode == 0, answer.stderr


def test_a_command_gets_each_message_and_may_fail(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(
            tmp_path,
            *("serve", *member(server.url, "worker"), "--state", "state", "--json", "--key-env", "SECRET_KEY"),
            *("--attempts", "2", "--command-timeout", "100", "--", sys.executable, "worker.py"),
            settings={"SECRET_KEY": "ab" * 32, "SHARDWIRE_CREDENTIALS": "", "SHARDWIRE_NODE": "nats://hidden"},
        ) as worker,
    ):
        worker.until_event("joined")
        boss = (*member(server.url, "boss"), "--key-env", "SECRET_KEY", "--state", "boss")
        for message in ("first", "fail", "last"):
            answer = command(tmp_path, "send", "-", *boss, given=message.encode(), settings={"SECRET_KEY": "ab" * 32})
            assert answer.returncode == 0, answer.stderr
        handled = worker.until_event("handled", 2)
        [failed] = worker.events("failed")
        assert failed["error"].endswith(" ended with 3")
        assert (tmp_path / failed["file"]).read_bytes() == b"fail"
        assert Path(failed["file"]).parent == Path("state/failed")
        assert sum("(attempt" in line for line in worker.err) == 2
        assert any("working on 4" in line for line in worker.err)
        done = [json.loads(line) for line in (tmp_path / "done.jsonl").read_text().splitlines()]
        assert done == [
            {
                "message": message,
                "SHARDWIRE_SENDER_ID": "boss",
                "SHARDWIRE_MESSAGE_ID": event["message_id"],
                "SHARDWIRE_SIZE_BYTES": str(len(message)),
                "SHARDWIRE_REDELIVERED": "0",
                "SHARDWIRE_CHANNEL": "jobs",
            }
            for message, event in zip(("first", "last"), handled, strict=True)
        ]
        worker.signal()
        assert worker.wait() == 0, str(worker)


def test_a_command_that_hangs_is_ended_and_one_that_is_missing_or_killed_told(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    with NatsServer(tmp_path / "nats") as server:
        arguments = ("serve", *member(server.url, "worker"), "--attempts", "1")
        with Terminal(
            tmp_path, *arguments, "--json", "--command-timeout", "0.2", "--", sys.executable, "worker.py"
        ) as worker:
            worker.until_event("joined")
            send(tmp_path, server.url, "hang")
            [failed] = worker.until_event("failed")
            assert failed["error"].endswith(" took longer than 0.2 s")
            assert Path(failed["file"]).parent == Path("shardwire-failed")
            worker.signal()
            assert worker.wait() == 0, str(worker)
        for message, told, command in (
            (
                "x",
                "./nothing-here cannot be run: No such file or directory",
                ["--failed", "kept", "--", "./nothing-here"],
            ),
            # A signal for which there is no name in Python.
            ("y", "sh was ended by signal 40", ["--", "sh", "-c", "kill -40 $$"]),
        ):
            with Terminal(tmp_path, *arguments, *command) as worker:
                worker.until(lambda worker=worker: any("takes part" in line for line in worker.err), "it takes part")
                send(tmp_path, server.url, message)
                worker.until(lambda worker=worker: bool(worker.out), "it says what became of it")
                kept, _, error = worker.out[0].partition(" failed 1 bytes of boss, kept as ")[2].partition(": ")
                assert error == told
                assert (tmp_path / kept).read_bytes() == message.encode()


def test_a_second_interruption_ends_the_command_too(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    with NatsServer(tmp_path / "nats") as server:
        arguments = ("serve", *member(server.url, "worker"), "--state", "state")
        with Terminal(tmp_path, *arguments, "--", sys.executable, "worker.py") as worker:
            worker.until(lambda: any("worker takes part" in line for line in worker.err), "it takes part")
            send(tmp_path, server.url, "hang")
            worker.until(lambda: "working on 4" in worker.out, "the command began")
            worker.signal()
            worker.until(lambda: any("once more Ctrl-C ends at once" in line for line in worker.err), "it says so")
            worker.signal()
            assert worker.wait() == 0, str(worker)
        # The command has let go of its pipes, and what it had in hand comes again.
        with Terminal(tmp_path, *arguments, "--spool", "spool", "--json") as worker:
            assert worker.until_event("handled")[0]["redelivered"] is True


def test_a_spool_gets_each_message_once_over_restarts(tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    boss_url = f"udp://127.0.0.1:0?peers={url.removeprefix('udp://')}"
    for number in range(2):
        with Terminal(
            tmp_path, "serve", *member(url, "worker"), "--state", "state", "--spool", "spool", "--json"
        ) as worker:
            worker.until_event("joined")
            boss = (*member(boss_url, "boss"), "--state", "boss")
            answer = command(tmp_path, "send", "-", *boss, given=f"message {number}".encode())
            assert answer.returncode == 0, answer.stderr
            [handled] = worker.until_event("handled")
            assert (tmp_path / handled["file"]).read_text() == f"message {number}"
            worker.signal()
            assert worker.wait() == 0, str(worker)
    messages = sorted((tmp_path / "spool").glob("*.message"))
    assert [message.read_text() for message in messages] == ["message 0", "message 1"]
    assert [json.loads(m.with_suffix(".json").read_text())["sender_id"] for m in messages] == ["boss", "boss"]


def test_what_a_crash_interrupts_is_handed_over_again(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    with NatsServer(tmp_path / "nats") as server:
        arguments = ("serve", *member(server.url, "worker"), "--state", "state", "--json")
        with Terminal(tmp_path, *arguments, "--", sys.executable, "worker.py") as worker:
            worker.until_event("joined")
            send(tmp_path, server.url, "hang")
            worker.until(lambda: any("working on 4" in line for line in worker.err), "the command began")
            worker.process.kill()
        with Terminal(tmp_path, *arguments, "--spool", "spool") as worker:
            [handled] = worker.until_event("handled")
            assert handled["redelivered"] is True
            assert (tmp_path / handled["file"]).read_text() == "hang"
            worker.signal()
            assert worker.wait() == 0, str(worker)


@pytest.mark.parametrize(
    ("name", "option", "told"), [("serve", "--spool", "handled"), ("listen", "--output", "received")]
)
def test_a_directory_that_cannot_be_written_to_loses_nothing(tmp_path: Path, name: str, option: str, told: str) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    boss_url = f"udp://127.0.0.1:0?peers={url.removeprefix('udp://')}"
    arguments = (name, *member(url, "worker"), "--state", "state", option, "into", "--json")
    with Terminal(tmp_path, *arguments) as worker:
        worker.until_event("joined")
        (tmp_path / "into").rmdir()
        (tmp_path / "into").write_text("in the way")
        send(tmp_path, boss_url, "kept")
        worker.until(lambda: any("Not a directory: tried again" in line for line in worker.err), "it says why")
        assert not worker.events(told)
        worker.signal()
        assert worker.wait() == 0, str(worker)
    (tmp_path / "into").unlink()
    with Terminal(tmp_path, *arguments) as worker:
        [written] = worker.until_event(told)
        assert (tmp_path / written["file"]).read_text() == "kept"
