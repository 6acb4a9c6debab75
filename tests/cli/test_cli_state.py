"""`shardwire state`: what a state holds, also while another process uses it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_terminals import Terminal, command
from live_servers import NatsServer, free_port

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.cli.app import run
from shardwire.cli.network.state import SENDS_SHOWN_MAX
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig
from shardwire.errors import NodeError
from shardwire.events import MessageReceivedEvent
from shardwire.node import MemoryNetwork, MemoryNode, NodeConfig, run_virtual
from shardwire.node.virtual_time import START_EPOCH_MS
from shardwire.persistence import Changes, SqlitePersistence, read_channels
from shardwire.persistence.commit_count import CommitCount

CHANNEL = ("--topic", "/app/1/notes/proto", "--sender", "alice", "--state", "state")


def described(capsys: pytest.CaptureFixture[str], place: Path) -> dict[str, Any]:
    assert run(["state", str(place), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_what_is_on_its_way_and_who_uses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state"
    with NatsServer(tmp_path / "nats") as server:
        for channel in ("notes", "photos"):
            arguments = ("send", "-", "--node", server.url, "--channel", channel, *CHANNEL, "--until", "sent")
            assert command(tmp_path, *arguments, given=b"x" * 300_000).returncode == 0
        told = described(capsys, state)
        assert [channel["channel"] for channel in told["channels"]] == ["notes", "photos"]
        for channel in told["channels"]:
            assert (channel["sender_id"], channel["held_by"], channel["failed"]) == ("alice", None, 0)
            [send] = channel["pending"]
            assert (send["segments_total"], send["sent"], send["delivered_to"]) == (send["segments_sent"], True, [])
            assert channel["messages_in_log"] == send["segments_total"]
            assert channel["size_bytes"] > 300_000
        assert told["size_bytes"] > 600_000
        with Terminal(tmp_path, "listen", "--node", server.url, "--channel", "notes", *CHANNEL, "--json") as alice:
            alice.until_event("joined")
            notes, photos = described(capsys, state)["channels"]
            assert (notes["held_by"], photos["held_by"]) == (f"process {alice.process.pid}", None)
            assert len(notes["pending"]) == 1
            alice.signal()
            assert alice.wait() == 0, str(alice)
    assert run(["state", str(state)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{state / 'channels.sqlite'}: 2 channels, ")
    assert "channel notes" in lines
    assert any(line.endswith("segments sent, delivered to nobody") for line in lines)


def test_messages_that_a_command_failed_on_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    with Terminal(
        tmp_path, "serve", "--node", url, "--channel", "notes", *CHANNEL, "--json", "--attempts", "1", "--", "false"
    ) as alice:
        alice.until_event("joined")
        bob = ("--channel", "notes", "--topic", "/app/1/notes/proto", "--sender", "bob")
        peer = f"udp://127.0.0.1:0?peers={url.removeprefix('udp://')}"
        assert command(tmp_path, "send", "-", "--node", peer, *bob, given=b"x").returncode == 0
        alice.until_event("failed")
        alice.signal()
        assert alice.wait() == 0, str(alice)
    told = described(capsys, tmp_path / "state")
    assert told["set_aside"] == 1
    assert told["channels"][0]["waiting_to_be_read"] == 0


def test_a_database_of_an_application(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    persistence = SqlitePersistence(tmp_path / "mine.db")
    persistence.commit("a\x1b[2J", Changes({("kind", b"key"): b"value"}))
    # In use, and not checkpointed.
    told = described(capsys, tmp_path / "mine.db")
    [channel] = told["channels"]
    assert (channel["channel"], channel["sender_id"], channel["held_by"]) == (
        "a\x1b[2J",
        None,
        "this process already",
    )
    assert run(["state", str(tmp_path / "mine.db")]) == 0
    assert "\x1b" not in capsys.readouterr().out
    persistence.close()
    [stored] = read_channels(tmp_path / "mine.db", ("kind",))
    assert dict(stored.state.records) == {("kind", b"key"): b"value"}
    assert stored.kinds["kind"].records == 1
    assert stored.held_by is None


def test_sends_are_told_by_what_became_of_them_and_messages_that_nobody_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pending = SENDS_SHOWN_MAX + 5
    alices, bobs = tmp_path / "alice.db", tmp_path / "bob.db"

    async def scenario() -> None:
        network = MemoryNetwork()

        async def join(path: Path) -> tuple[MemoryNode, ReliableChannel]:
            node = network.create_node(path.stem, NodeConfig())
            await node.start()
            config = ChannelConfig.logos(sds=SdsConfig(persistence=SqlitePersistence(path)))
            return node, await create_reliable_channel(node, "notes", "/app/1/notes/proto", path.stem, config=config)

        node, alice = await join(alices)
        node.send_fault = lambda envelope: NodeError("no proof", permanent=True)
        await alice.send(b"refused")
        await asyncio.sleep(1)
        node.send_fault = None
        _, bob = await join(bobs)

        async def keep(event: MessageReceivedEvent) -> None:
            await asyncio.Event().wait()

        bob.on_message_received(keep)
        for message in (b"in hand", b"behind it"):
            await alice.delivered(await alice.send(message))
        await close_channel(bob, 0)
        for number in range(pending):
            await alice.send(b"%d" % number)
        await asyncio.sleep(1)
        await close_channel(alice, 0)

    run_virtual(scenario())
    [alice] = described(capsys, alices)["channels"]
    assert (len(alice["pending"]), alice["failed"], alice["delivered_sends"]) == (pending, 1, 2)
    assert {(send["segments_sent"], send["sent"]) for send in alice["pending"]} == {(1, True)}
    assert alice["waiting_to_be_read"] == 0
    [bob] = described(capsys, bobs)["channels"]
    assert (bob["waiting_to_be_read"], bob["pending"], bob["delivered_sends"]) == (2, [], 0)
    heard = datetime.fromisoformat(bob["seen_until"])
    assert heard > datetime.fromtimestamp(START_EPOCH_MS / 1000, UTC)
    assert run(["state", str(alices)]) == 0
    told = capsys.readouterr().out
    assert told.count("1 of 1 segments sent") == SENDS_SHOWN_MAX
    for name, count in (("pending sends", pending), ("  and more", 5), ("failed sends", 1), ("delivered sends", 2)):
        assert f"  {name:22} {count}\n" in told


def test_that_a_channel_is_older_than_what_was_told_of_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, line = tmp_path / "channels.sqlite", f"  {'lost commits':22}"
    persistence = SqlitePersistence(path)
    persistence.commit("lobby", Changes({("kind", b"key"): b"value"}))
    persistence.close()
    assert run(["state", str(path)]) == 0
    assert line not in capsys.readouterr().out
    count = CommitCount(path, "lobby")
    count.write(count.read() + 7)
    count.close()
    assert run(["state", str(path)]) == 0
    assert f"{line} 7: at some time it was older" in capsys.readouterr().out


def test_the_count_of_a_nodes_quota_is_no_channel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / name for name in ("first.db", "second.db")]

    async def scenario() -> None:
        limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=20, counts="segment")
        node = MemoryNetwork().create_node("mine", NodeConfig(rate_limit_config=limit))
        await node.start()
        channels = []
        for path in paths:
            config = ChannelConfig.logos(sds=SdsConfig(persistence=SqlitePersistence(path)))
            channels.append(
                await create_reliable_channel(node, path.stem, "/app/1/notes/proto", "alice", config=config)
            )
        await channels[1].send(b"x")
        await asyncio.sleep(0.1)
        for channel in reversed(channels):
            await close_channel(channel)
        await node.stop()

    run_virtual(scenario(), limit_ms=60_000)
    until = datetime.fromtimestamp(START_EPOCH_MS // 60_000 * 60 + 60, UTC).isoformat()
    first, second = (described(capsys, path) for path in paths)
    assert [channel["channel"] for channel in first["channels"] + second["channels"]] == ["first", "second"]
    assert first["quotas"] == [{"node": "mine", "counted_here": True, "used": 1, "until": until}]
    assert [quota["counted_here"] for quota in second["quotas"]] == [False]
    for path in paths:
        assert run(["state", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"quota of node mine: 1 used until {until}" in lines
    assert "quota of node mine: counted elsewhere" in lines


def test_nothing_is_made_where_there_is_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("nothing of the kind, but long enough " * 100)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "channels.sqlite.corrupt-17").touch()
    for name, expected in (
        ("missing", "does not exist"),
        ("empty", "holds no channels.sqlite: give the directory that a command had as --state"),
        ("broken", "holds only the corrupt"),
        ("text", "cannot be read: file is not a database"),
    ):
        assert run(["state", str(tmp_path / name)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert expected in captured.err
        assert captured.err.count("\n") == 1
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_state_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def told(place: str) -> str:
        assert run(["state", place]) == 1
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count("\n")) == ("", 1)
        return captured.err

    assert told("alice") == (
        "shardwire: alice does not exist: give the directory that a command had as --state; "
        f"there is none in {tmp_path}\n"
    )
    assert told(os.devnull).startswith(f"shardwire: {os.devnull} is no file and no directory: give the directory")
    named = ", ".join(f"state-{number}" for number in range(1, 6))
    for number in range(1, 8):
        (tmp_path / f"state-{number}").mkdir()
        (tmp_path / f"state-{number}" / "channels.sqlite").touch()
        if number == 5:
            assert told("alice").endswith(f"there is {named}\n")
    assert told("alice").endswith(f"--state; in {tmp_path} there is {named} and 2 more\n")
    assert told(".").endswith(
        f". holds no channels.sqlite: give the directory that a command had as --state; "
        f"in it there is {named} and 2 more\n"
    )
    assert told("nowhere/alice").endswith(f"--state; there is none in {tmp_path / 'nowhere'}\n")


def test_a_corrupt_copy_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SqlitePersistence(tmp_path / "channels.sqlite").commit("a", Changes())
    (tmp_path / "channels.sqlite.corrupt-17").touch()
    assert run(["state", str(tmp_path)]) == 1
    assert "channels.sqlite.corrupt-17 was found corrupt: restore a copy, or move it away" in capsys.readouterr().out


def test_an_encrypted_state_goes_on_and_shows_nothing_of_a_payload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, key = secrets.token_hex(16), secrets.token_hex(32)
    (tmp_path / "state.key").write_text(key + "\n")
    (tmp_path / "other.key").write_text(secrets.token_hex(32))
    node = ("--node", f"udp://127.0.0.1:{free_port()}", "--channel", "notes", *CHANNEL)
    # Nobody is there to take it: it is kept.
    send = ("send", "-", *node, "--timeout", "0.5")
    sent = command(tmp_path, *send, "--state-key-file", "state.key", given=marker.encode())
    assert b"it is kept in state" in sent.stderr, sent
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert marker.encode() not in kept
    assert key.encode() not in kept
    # The plain one has it, and is silent of it too.
    plain = command(tmp_path, *send, "--state", "plain", given=marker.encode())
    assert b"it is kept in plain" in plain.stderr, plain
    assert marker.encode() in (tmp_path / "plain" / "channels.sqlite").read_bytes()
    monkeypatch.setenv("STATE_KEY", key)
    options: tuple[tuple[str, ...], ...] = (
        ("state", "--state-key-file", str(tmp_path / "state.key")),
        ("state", "--state-key-env", "STATE_KEY"),
        ("plain",),
    )
    for name, *rest in options:
        for as_json in ((), ("--json",)):
            assert run(["state", str(tmp_path / name), *rest, *as_json]) == 0
            told = capsys.readouterr().out
            assert "alice" in told
            assert marker not in told
            assert key not in told
    for name, rest, complaint in (
        ("state", [], "no key was given: give the key it began with by --state-key-file or --state-key-env"),
        ("state", ["--state-key-file", str(tmp_path / "other.key")], "is encrypted under another key"),
        (
            "plain",
            ["--state-key-env", "STATE_KEY"],
            "and a key was given: leave out --state-key-file and --state-key-env, or give another",
        ),
    ):
        assert run(["state", str(tmp_path / name), *rest]) == 1
        error = capsys.readouterr().err
        assert complaint in error
        assert key not in error
    refused = command(tmp_path, *send, given=b"late")
    assert refused.returncode == 1
    assert b"is encrypted, and no key was given: give the key it began with by --state-key-file" in refused.stderr
    refused = command(tmp_path, *send, "--state", "plain", "--state-key-file", "state.key", given=b"late")
    assert refused.returncode == 1
    assert b"leave out --state-key-file and --state-key-env, or give another --state" in refused.stderr


def test_a_state_key_is_one_key_of_a_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = tmp_path / "two.key"
    two.write_text(f"{secrets.token_hex(32)}\n{secrets.token_hex(32)}\n")
    SqlitePersistence(tmp_path / "channels.sqlite").commit("a", Changes())
    who = ("--node", "udp://127.0.0.1:0", "--channel", "c", "--topic", "/app/1/notes/proto", "--sender", "alice")
    for arguments, code, complaint in (
        (("state", str(tmp_path), "--state-key-file", str(two)), 1, "holds 2 keys: a state has one"),
        (("state", str(tmp_path), "--state-key-file", str(two), "--state-key-env", "A"), 2, "keep one of them"),
        (("state", str(tmp_path), "--state-key-env", "ABSENT"), 1, "ABSENT holds no key"),
        (("listen", *who, "--state-key-file", str(two)), 2, "--state-key-file: there is no --state to encrypt"),
        (("listen", *who, "--state-key-env", "A"), 2, "--state-key-env: there is no --state to encrypt"),
    ):
        assert run(arguments) == code
        assert complaint in capsys.readouterr().err


def test_names_of_others_stay_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        node = MemoryNetwork().create_node("alice")
        await node.start()
        config = ChannelConfig.logos(sds=SdsConfig(persistence=SqlitePersistence(tmp_path / "channels.sqlite")))
        channel = await create_reliable_channel(node, "no\ntes", "/app/1/notes/proto", "al\tice\x1b[2J", config=config)
        await close_channel(channel)

    run_virtual(scenario())
    assert run(["state", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [r"channel no\ntes", r"  sender                 al\tice\x1b[2J"]
