"""Files of any size from the command line: `send --as-file`, `listen --files`, `serve --files`."""

from __future__ import annotations

import json
import random
from pathlib import Path

from cli_terminals import Terminal, command
from live_servers import NatsServer, free_port

CHANNEL = ("--channel", "films", "--topic", "/app/1/films/proto")


def member(url: str, sender: str) -> tuple[str, ...]:
    return ("--node", url, *CHANNEL, "--sender", sender)


def test_a_file_that_no_message_holds(tmp_path: Path) -> None:
    film = random.Random(7).randbytes(1 << 20) * 27
    (tmp_path / "film").write_bytes(film)
    with NatsServer(tmp_path / "nats", jetstream=True) as server:
        refused = command(tmp_path, "send", "film", *member(server.url, "alice"))
        assert refused.returncode == 1
        assert b"send it with --as-file to whoever takes --files" in refused.stderr
        with (
            Terminal(tmp_path, "listen", *member(server.url, "bob"), "--files", "got", "--count", "1", "--json") as bob,
            Terminal(tmp_path, "listen", *member(server.url, "carol"), "--json") as carol,
        ):
            bob.until_event("joined")
            carol.until_event("joined")
            sent = command(tmp_path, "send", "film", *member(server.url, "alice"), "--as-file", "--json", "--to", "bob")
            assert sent.returncode == 0, sent.stderr
            told = [json.loads(line) for line in sent.stdout.splitlines()]
            [delivered] = [event for event in told if event["event"] == "file-delivered"]
            assert (delivered["delivered_to"], delivered["size_bytes"]) == (["bob"], len(film))
            assert any(event["event"] == "file-progress" for event in told)
            assert bob.wait() == 0, str(bob)
            [received] = bob.events("file-received")
            assert (received["sender_id"], received["file"]) == ("alice", "got/film")
            # Who takes no files is shown no parts of them.
            note = command(tmp_path, "send", "-", *member(server.url, "dave"), "--to", "carol", given=b"a note")
            assert note.returncode == 0, note.stderr
            assert [event["text"] for event in carol.until_event("received")] == ["a note"]
    assert (tmp_path / "got" / "film").read_bytes() == film


def test_who_serves_takes_files_too(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not much")
    url = f"udp://127.0.0.1:{free_port()}"
    peer = f"udp://127.0.0.1:0?peers={url.removeprefix('udp://')}"
    with Terminal(tmp_path, "serve", *member(url, "worker"), "--files", "got") as worker:
        worker.until(lambda: any("worker takes part" in line for line in worker.err), "it takes part")
        sent = command(tmp_path, "send", "notes.txt", *member(peer, "boss"), "--as-file")
        assert sent.returncode == 0, sent.stderr
        assert b"8 bytes delivered to worker in " in sent.stdout
        worker.until(lambda: any(line.endswith("boss: 8 bytes, got/notes.txt") for line in worker.out), "it says so")
        # Nothing is ever overwritten.
        (tmp_path / "notes.txt").write_text("changed")
        again = command(tmp_path, "send", "notes.txt", *member(peer, "boss"), "--as-file", "--to", "worker")
        assert again.returncode == 1
        assert b"refused by 'worker' (exists)" in again.stderr
        worker.until(lambda: any("a file of boss was not taken" in line for line in worker.err), "it says why")
        named = command(tmp_path, "send", "notes.txt", *member(peer, "boss"), "--as-file", "--name", "notes 2.txt")
        assert named.returncode == 0, named.stderr
        worker.signal()
        assert worker.wait() == 0, str(worker)
    assert (tmp_path / "got" / "notes.txt").read_text() == "not much"
    assert (tmp_path / "got" / "notes 2.txt").read_text() == "changed"


def test_a_file_that_nobody_takes(tmp_path: Path) -> None:
    (tmp_path / "film").write_bytes(bytes(1_000))
    url = f"udp://127.0.0.1:{free_port()}"
    answer = command(tmp_path, "send", "film", *member(url, "alice"), "--as-file", "--timeout", "1")
    assert (answer.returncode, answer.stdout) == (1, b"")
    assert (
        b"'film' was not received within 1000 ms: nobody has answered; sent again, it goes on where it stopped; "
        b"whoever receives it needs --files" in answer.stderr
    )


def test_who_sent_a_file_stays_until_its_receiver_has_nothing_left_to_say(tmp_path: Path) -> None:
    (tmp_path / "film").write_bytes(bytes(3_000_000))
    url = f"udp://127.0.0.1:{free_port()}"
    peer = f"udp://127.0.0.1:0?peers={url.removeprefix('udp://')}"
    with Terminal(tmp_path, "listen", *member(url, "bob"), "--files", "got", "--count", "1", "--json") as bob:
        bob.until_event("joined")
        sent = command(tmp_path, "send", "film", *member(peer, "alice"), "--as-file", "--json")
        assert sent.returncode == 0, sent.stderr
        assert bob.wait() == 0, str(bob)
        assert [event["pending"] for event in bob.events("closed")] == [0]
    [closed] = [event for line in sent.stdout.splitlines() if (event := json.loads(line))["event"] == "closed"]
    assert closed["pending"] == 0
