"""`shardwire send` and `shardwire listen`, in two terminals over real networks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pty
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_terminals import PATIENCE_S, Terminal, command, environment
from live_nodes import real_time
from live_servers import Mosquitto, NatsServer, free_port
from stub_waku_node import StubNetwork, StubNode, served

from shardwire import keccak256
from shardwire.encryption import ChaCha20Poly1305Encryption

CHANNEL = ("--channel", "notes", "--topic", "/app/1/notes/proto")
RANDOM = random.Random(5)


def member(url: str, sender: str) -> tuple[str, ...]:
    return ("--node", url, *CHANNEL, "--sender", sender)


def test_two_terminals_over_nats(tmp_path: Path) -> None:
    photo = RANDOM.randbytes(300_000)
    (tmp_path / "photo").write_bytes(photo)
    with (
        NatsServer(tmp_path / "nats", jetstream=True) as server,
        Terminal(tmp_path, "listen", *member(server.url, "bob"), "--count", "3", "--json") as bob,
    ):
        [joined] = bob.until_event("joined")
        assert (joined["sender_id"], joined["channel"], joined["store"], joined["state"]) == (
            "bob",
            "notes",
            True,
            None,
        )
        assert joined["node"] == server.url
        sent = command(tmp_path, "send", "photo", *member(server.url, "alice"))
        assert sent.returncode == 0, sent.stderr
        assert sent.stdout.startswith(b"300,000 bytes delivered to bob in ")
        told = command(tmp_path, "send", "-", *member(server.url, "alice"), "--json", given="grüße\n".encode())
        assert told.returncode == 0, told.stderr
        events = [json.loads(line) for line in told.stdout.splitlines()]
        names = [event["event"] for event in events]
        assert names[0] == "joined"
        assert names[-1] == "closed"
        [accepted] = [event for event in events if event["event"] == "accepted"]
        [delivered] = [event for event in events if event["event"] == "delivered"]
        assert delivered["request_id"] == accepted["request_id"]
        assert delivered["delivered_to"] == ["bob"]
        assert accepted["size_bytes"] == len("grüße\n".encode())
        last = command(tmp_path, "send", "-", *member(server.url, "alice"), "--until", "sent", given=b"\0\xff")
        assert (last.returncode, last.stdout.split()[:3]) == (0, [b"2", b"bytes", b"sent"])
        assert bob.wait() == 0, str(bob)
        received = bob.events("received")
        assert [event["sender_id"] for event in received] == ["alice"] * 3
        assert base64.b64decode(received[0]["base64"]) == photo
        assert received[0]["message_id"] == keccak256(photo).hex()
        assert received[1]["text"] == "grüße\n"
        assert base64.b64decode(received[2]["base64"]) == b"\0\xff"
        assert bob.events("closed") == [{"event": "closed", "pending": 0, "stored": 0}]


def test_one_who_listens_at_a_free_port_says_which_and_is_not_warned_when_others_leave(tmp_path: Path) -> None:
    with Terminal(tmp_path, "listen", *member("udp://127.0.0.1:0", "bob")) as bob:
        bob.until(lambda: any("bob takes part in notes" in line for line in bob.err), "it takes part")
        [place] = re.findall(r"over udp://127\.0\.0\.1:0 \(port ([0-9]+)\), without a store", "\n".join(bob.err))
        url = f"udp://127.0.0.1:0?peers=127.0.0.1:{place}"
        for text in (b"one", b"two"):
            sent = command(tmp_path, "send", "-", *member(url, "alice"), "--json", given=text)
            assert sent.returncode == 0, sent.stderr
            events = map(json.loads, sent.stdout.splitlines())
            [joined] = [event for event in events if event["event"] == "joined"]
            assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]*", joined["address"])
        bob.until(lambda: bob.err[-1] == "connected again", "it says so")
        bob.signal()
        assert bob.wait() == 0, str(bob)
    assert bob.err[1:3] == ["connected", "connected again"], bob.err


def test_files_over_udp_without_a_server(tmp_path: Path) -> None:
    port = free_port()
    photo = RANDOM.randbytes(200_000)
    (tmp_path / "photo").write_bytes(photo)
    with Terminal(
        tmp_path, "listen", *member(f"udp://127.0.0.1:{port}", "bob"), "--output", "got", "--count", "1"
    ) as bob:
        bob.until(lambda: any("bob takes part in notes" in line for line in bob.err), "it takes part")
        url = f"udp://127.0.0.1:0?peers=127.0.0.1:{port}"
        sent = command(tmp_path, "send", "photo", *member(url, "alice"), "--to", "bob")
        assert (sent.returncode, b"delivered to bob" in sent.stdout) == (0, True), sent.stderr
        assert bob.wait() == 0, str(bob)
    [message] = (tmp_path / "got").glob("*.message")
    assert message.read_bytes() == photo
    described = json.loads(message.with_suffix(".json").read_text())
    assert described == {
        "sender_id": "alice",
        "message_id": keccak256(photo).hex(),
        "size_bytes": 200_000,
        "redelivered": False,
    }
    assert [line for line in bob.out if line.endswith(f"alice: 200,000 bytes, {message.relative_to(tmp_path)}")]
    assert len(list((tmp_path / "got").iterdir())) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_listening_ends_in_order_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    for options, code in (((), 0), (("--count", "1"), 130)):
        with Terminal(tmp_path, "listen", *member(url, "bob"), "--json", *options) as bob:
            bob.until_event("joined")
            bob.signal(number)
            assert bob.wait() == code, str(bob)
            assert bob.events("closed")
            assert bob.err == ([] if code == 0 else ["shardwire: interrupted"])


def test_sending_to_nobody(tmp_path: Path) -> None:
    """Nobody acknowledges: exit code 1, the reason, and what becomes of the message; Ctrl-C before gives 130."""
    with NatsServer(tmp_path / "nats") as server:
        arguments = member(server.url, "alice")
        answer = command(tmp_path, "send", "-", *arguments, "--timeout", "4", given=b"x")
        assert (answer.returncode, answer.stdout) == (1, b"")
        assert b"nobody acknowledged the message within 4 s; it went with this process" in answer.stderr
        kept = command(tmp_path, "send", "-", *arguments, "--timeout", "4", "--state", "state", given=b"x")
        assert kept.returncode == 1
        assert b"it is kept in state, and goes on with the next command that has this --state" in kept.stderr
        with Terminal(tmp_path, "send", "-", *arguments, "--json") as alice:
            alice.type("y")
            alice.end_input()
            alice.until_event("sent")
            alice.signal()
            assert alice.wait() == 130, str(alice)
            assert alice.err[-1] == "shardwire: interrupted"
            assert alice.events("closed") == [{"event": "closed", "pending": 1, "stored": 0}]


def test_a_kept_message_goes_on_with_the_next_command(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        alice = (*member(server.url, "alice"), "--state", "state")
        assert command(tmp_path, "send", "-", *alice, "--until", "sent", given=b"first").returncode == 0
        with Terminal(tmp_path, "listen", *member(server.url, "bob"), "--count", "2", "--json") as bob:
            bob.until_event("joined")
            answer = command(tmp_path, "send", "-", *alice, given=b"second")
            assert answer.returncode == 0, answer.stderr
            assert b"; 1 earlier messages are on their way" in answer.stderr
            # It went on without waiting for the first one, which the next command brings.
            with Terminal(tmp_path, "listen", *alice) as again:
                assert bob.wait() == 0, f"{bob}\n{again}"
        # In any order: who comes later need not wait for what was sent before.
        assert {event["text"] for event in bob.events("received")} == {"first", "second"}


def test_bars_on_a_terminal_and_the_receipt_for_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(RANDOM.randbytes(1_000_000))
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(tmp_path, "listen", *member(server.url, "bob"), "--count", "1", "--output", "got") as bob,
    ):
        bob.until(lambda: any("bob takes part" in line for line in bob.err), "he takes part")
        ours, theirs = pty.openpty()
        arguments = [sys.executable, "-m", "shardwire.cli", "send", "photo", *member(server.url, "alice")]
        with subprocess.Popen(
            arguments, cwd=tmp_path, env=environment(TERM="xterm"), stdout=subprocess.PIPE, stderr=theirs
        ) as alice:
            os.close(theirs)
            drawn = b""
            # Linux ends a terminal that nobody writes to any more with an error.
            with contextlib.suppress(OSError):
                while piece := os.read(ours, 65_536):
                    drawn += piece
            out, _ = alice.communicate(timeout=60)
        os.close(ours)
        assert alice.returncode == 0, drawn
        assert out.startswith(b"1,000,000 bytes delivered to bob in ")
        assert b"acknowledged" in drawn
        assert b"10/10" in drawn
        assert b"delivered to bob" not in drawn
        assert bob.wait() == 0, str(bob)


def test_ctrl_c_while_a_server_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        for options, code in (((), 0), (("--count", "1"), 130)):
            with Terminal(tmp_path, "listen", *member(url, "bob"), *options) as bob:
                # It has connected, and waits.
                connection, _ = silent.accept()
                bob.signal()
                assert bob.wait() == code, str(bob)
                connection.close()


def test_over_mqtt_a_second_process_does_not_throw_out_the_first(tmp_path: Path) -> None:
    with Mosquitto(tmp_path / "mqtt") as broker:
        arguments = ("listen", *member(broker.url, "bob"), "--state", "state", "--json")
        with Terminal(tmp_path, *arguments, "--count", "1") as bob:
            bob.until_event("joined")
            assert command(tmp_path, *arguments).returncode == 1
            sent = command(tmp_path, "send", "-", *member(broker.url, "alice"), given=b"hello")
            assert sent.returncode == 0, sent.stderr
            assert bob.wait() == 0, str(bob)
            assert [event["text"] for event in bob.events("received")] == ["hello"]
            assert {event["state"] for event in bob.events("connection")} <= {"Connected"}


@real_time
@pytest.mark.parametrize("preset", ["logos", "waku"])
async def test_over_waku_nodes(tmp_path: Path, preset: str) -> None:
    network = StubNetwork()
    first, second = StubNode(network), StubNode(network, dialect="logos-delivery")
    (tmp_path / "photo").write_bytes(RANDOM.randbytes(250_000))
    async with served(first) as bob_address, served(second) as alice_address:
        options = ("--preset", preset)
        with Terminal(
            tmp_path, "listen", *member(f"waku+http://{bob_address}", "bob"), *options, "--count", "1", "-o", "got"
        ) as bob:
            alice = member(f"waku+http://{alice_address}", "alice")
            sent = await asyncio.to_thread(command, tmp_path, "send", "photo", *alice, *options)
            assert sent.returncode == 0, f"{sent.stderr!r} {bob}"
            assert b"250,000 bytes delivered to bob in " in sent.stdout
            assert await asyncio.to_thread(bob.wait) == 0, str(bob)
    [message] = (tmp_path / "got").glob("*.message")
    assert message.read_bytes() == (tmp_path / "photo").read_bytes()


def test_one_process_at_a_time_on_a_state(tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    arguments = (*member(url, "bob"), "--state", "state")
    with Terminal(tmp_path, "listen", *arguments, "--json") as first:
        first.until_event("joined")
        second = command(tmp_path, "listen", *arguments)
        assert (second.returncode, second.stdout) == (1, b"")
        assert f"is in use by process {first.process.pid}: one channel state belongs to one process".encode() in (
            second.stderr
        )
        assert second.stderr.count(b"\n") == 1
        assert b"close the other one, or give another --state" in second.stderr
        first.signal()
        assert first.wait() == 0
    # Free again, for the same sender alone.
    other = command(tmp_path, "listen", "--node", url, *CHANNEL, "--sender", "carol", "--state", "state")
    assert other.returncode == 2
    assert b"--sender: it is 'carol': the stored state of channel 'notes' belongs to 'bob'" in other.stderr


def test_keys_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    keys = [os.urandom(32), os.urandom(32)]
    for name, key in zip(("right", "wrong"), keys, strict=True):
        ChaCha20Poly1305Encryption(key).write_key_file(tmp_path / name)
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(
            tmp_path,
            *("listen", *member(server.url, "bob"), "--count", "1", "--json", "--key-env", "NOTES_KEY"),
            settings={"NOTES_KEY": keys[0].hex()},
        ) as bob,
    ):
        assert bob.until_event("joined")[0]["encrypted"] is True
        alice = member(server.url, "alice")
        for options in ((), ("--key-file", "wrong")):
            answer = command(tmp_path, "send", "-", *alice, *options, "--timeout", "2", given=b"no")
            assert answer.returncode == 1, options
        answer = command(tmp_path, "send", "-", *alice, "--key-file", "right", given=b"yes")
        assert answer.returncode == 0, answer.stderr
        assert bob.wait() == 0, str(bob)
        assert [event["text"] for event in bob.events("received")] == ["yes"]
        assert keys[0].hex() not in str(bob)


def test_credentials_reach_the_server_and_show_nowhere(tmp_path: Path) -> None:
    users = 'authorization { user: "name", password: "zulu/tango" }\n'
    with NatsServer(tmp_path / "nats", settings=users) as server:
        (tmp_path / "login").write_text("name:zulu/tango\n")
        inside = server.url.replace("nats://", "nats://name:zulu%2Ftango@")
        wrong = server.url.replace("nats://", "nats://name:zulu%2Ffoxtrot@")
        until = ("--until", "sent", "--verbose")
        for url, options, settings, code in (
            (inside, (), {}, 0),
            (server.url, ("--credentials-file", "login"), {}, 0),
            (server.url, (), {"SHARDWIRE_CREDENTIALS": "name:zulu/tango"}, 0),
            (server.url, (), {}, 1),
            (wrong, (), {}, 1),
        ):
            answer = command(
                tmp_path, "send", "-", *member(url, "alice"), *until, *options, given=b"x", settings=settings
            )
            told = answer.stdout + answer.stderr
            assert answer.returncode == code, told
            assert b"zulu" not in told
            assert b"tango" not in told
            assert b"foxtrot" not in told
        # The URL itself may come from the environment.
        by_environment = (*CHANNEL, "--sender", "alice", "--until", "sent")
        answer = command(tmp_path, "send", "-", *by_environment, given=b"x", settings={"SHARDWIRE_NODE": inside})
        assert answer.returncode == 0, answer.stderr


def test_fewer_messages_than_were_asked_for(tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    answer = command(tmp_path, "listen", *member(url, "bob"), "--count", "2", "--timeout", "0.5")
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1] == b"shardwire: 0 of 2 messages came within 0.5 s"
    assert command(tmp_path, "listen", *member(url, "bob"), "--timeout", "0.5").returncode == 0


def test_listening_ends_when_nobody_reads_it(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", jetstream=True) as server:
        bob = (*member(server.url, "bob"), "--state", "state")
        listening = shlex.join([sys.executable, "-m", "shardwire.cli", "listen", *bob, "--json"])
        with subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {listening} | (head -n 1; exec <&-; echo gone)"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
        ) as pipe:
            assert pipe.stdout is not None
            assert json.loads(pipe.stdout.readline())["event"] == "joined"
            assert pipe.stdout.readline() == b"gone\n"
            sent = command(tmp_path, "send", "-", *member(server.url, "alice"), "--until", "sent", given=b"x")
            assert sent.returncode == 0, sent.stderr
            assert pipe.wait(PATIENCE_S) == 0
        # What nobody read was not received.
        with Terminal(tmp_path, "listen", *bob, "--count", "1", "--json") as again:
            assert again.wait() == 0, str(again)
            [received] = again.events("received")
            assert (received["text"], received["redelivered"]) == ("x", True)


@pytest.mark.parametrize(
    ("name", "kept", "stored", "becomes"),
    [
        ("listen", False, False, "it is lost, as nothing is kept without --state"),
        ("listen", False, True, "nothing is kept without --state, but the store may bring it again"),
        ("listen", True, False, "it is kept in state, and shown by the next command that has this --state"),
        ("chat", True, False, "it is kept in state, and shown by the next command that has this --state"),
    ],
)
def test_a_message_that_nobody_reads_any_more_is_told_of(
    tmp_path: Path, name: str, kept: bool, stored: bool, becomes: str
) -> None:
    with NatsServer(tmp_path / "nats", jetstream=stored) as server:
        alice, bob = member(server.url, "alice"), member(server.url, "bob")
        state = ("--state", "state") if kept else ()
        listening = shlex.join([sys.executable, "-m", "shardwire.cli", name, *bob, *state, "--quiet"])
        with subprocess.Popen(
            # Whoever types nothing keeps a chat open.
            ["bash", "-c", f"sleep {PATIENCE_S} | {listening} | (head -n 1; exec <&-; echo gone)"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as pipe:
            assert pipe.stdout is not None
            assert pipe.stderr is not None
            try:
                for text in (b"first", b"second"):
                    sent = command(tmp_path, "send", "-", *alice, given=text)
                    assert sent.returncode == 0, sent.stderr
                    if text == b"first":
                        assert pipe.stdout.readline().endswith(b"alice: first\n")
                        assert pipe.stdout.readline() == b"gone\n"
                told = pipe.stderr.readline().decode()
            finally:
                os.killpg(pipe.pid, signal.SIGTERM)
        assert told == (
            "shardwire: nobody reads the standard output any more, so a message of 6 bytes from alice was not shown: "
            f"{becomes}\n"
        )
        if kept:
            again = command(tmp_path, "listen", *bob, *state, "--count", "1", "--quiet")
            assert again.stdout.endswith(b"alice (again, after a crash): second\n")


def test_a_message_that_finds_the_disk_full_is_shown_by_the_next_command(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        alice, bob = member(server.url, "alice"), member(server.url, "bob")
        line = shlex.join([sys.executable, "-m", "shardwire.cli", "listen", *bob, "--state", "state"])
        with subprocess.Popen(
            ["bash", "-c", f"exec {line} > /dev/full"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE
        ) as full:
            assert full.stderr is not None
            assert full.stderr.readline().startswith(b"bob takes part")
            sent = command(tmp_path, "send", "-", *alice, given=b"kept")
            assert sent.returncode == 0, sent.stderr
            told = full.stderr.read().decode().splitlines()
            assert full.wait(PATIENCE_S) == 1
        assert told[-2:] == [
            "shardwire: the standard output takes nothing more (No space left on device), so a message of 4 bytes from "
            "alice was not shown: it is kept in state, and shown by the next command that has this --state",
            "shardwire: standard output: No space left on device",
        ]
        again = command(tmp_path, "listen", *bob, "--state", "state", "--count", "1", "--quiet")
        assert again.stdout.endswith(b"alice (again, after a crash): kept\n")
