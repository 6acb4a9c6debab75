"""`shardwire chat`: lines typed in two terminals."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from pathlib import Path

from cli_terminals import ROOT, Terminal
from live_servers import NatsServer, free_port

from shardwire.cli.network.chat import LINE_BYTES_MAX, read_lines

CHANNEL = ("--channel", "lobby", "--topic", "/app/1/lobby/proto")


def member(url: str, sender: str) -> tuple[str, ...]:
    return ("--node", url, *CHANNEL, "--sender", sender)


def test_two_people_over_udp(tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    peer = f"udp://127.0.0.1:0?peers={url.removeprefix('udp://')}"
    with (
        Terminal(tmp_path, "chat", *member(url, "alice")) as alice,
        Terminal(tmp_path, "chat", *member(peer, "bob"), "--json") as bob,
    ):
        bob.until_event("joined")
        alice.until(lambda: any("alice takes part" in line for line in alice.err), "she takes part")
        bob.type("hello\n\nand \x1b[2J more\n")
        alice.until(lambda: len(alice.out) == 2, "she has two lines")
        assert [line.split(" ", 1)[1] for line in alice.out] == [
            "bob: hello",
            # Control characters show no effect.
            "bob: 13 bytes, Keccak-256 " + bob.until_event("delivered", 2)[1]["message_id"],
        ]
        alice.type("grüße")
        alice.end_input()
        # The end of the input is no end of the last line.
        [received] = bob.until_event("received")
        assert (received["sender_id"], received["text"]) == ("alice", "grüße")
        assert alice.wait() == 0, str(alice)
        assert any(line.endswith("delivered to bob: grüße") for line in alice.err)
        bob.signal()
        assert bob.wait() == 0, str(bob)
        assert [event["delivered_to"] for event in bob.events("delivered")] == [["alice"]] * 2


def test_lines_that_nobody_gets(tmp_path: Path) -> None:
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(tmp_path, "chat", *member(server.url, "alice"), "--timeout", "1") as alice,
    ):
        alice.type("is anybody there\n")
        alice.end_input()
        assert alice.wait() == 1, str(alice)
        # Once: nothing says that another life goes on with what went with this one.
        told = [line for line in alice.err if "not delivered" in line]
        assert told == [
            "shardwire: 1 line was not delivered; it went with this process, as nothing is kept without --state"
        ]


def test_a_line_that_no_message_holds_is_told_of_once_and_the_next_is_sent(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", settings="max_payload: 2048") as server:
        for options in ((), ("--json",)):
            with Terminal(tmp_path, "chat", *member(server.url, "alice"), *options, "--timeout", "1") as alice:
                alice.type("x" * LINE_BYTES_MAX + "\nhello\n")
                alice.end_input()
                assert alice.wait() == 1, str(alice)
                told = [line for line in alice.err if "one of this channel holds" in line]
                told += [event["error"] for event in alice.events("refused")]
                assert len(told) == 1, str(alice)
                went = [line for line in alice.err if "1 line was not delivered" in line] + alice.events("accepted")
                assert len(went) == 1, str(alice)


def test_the_tutorial_in_two_terminals(tmp_path: Path) -> None:
    """The commands of the page, what is typed, and what the page says that either shows; over a group of its own."""
    page = (ROOT / "docs" / "tutorials" / "chat.md").read_text()
    shown = re.findall(r"^    (.+)$", page.split("The same in Python")[0], re.MULTILINE)
    commands = [shlex.split(line) for line in shown if line.startswith("shardwire chat ")]
    received, receipt = (line.removeprefix("... ") for line in shown if line.startswith("... "))
    [typed] = re.findall(r"Type a line into the first terminal,\n`(.+)`;", page)
    group = f"udp://239.255.70.1:{free_port()}"
    first, second = (
        [group + "?interface=127.0.0.1" if word == "udp://239.255.70.1" else word for word in command[1:]]
        for command in commands
    )
    assert first != commands[0][1:]
    with Terminal(tmp_path, *first) as alice, Terminal(tmp_path, *second) as bob:
        for terminal, name in ((alice, "alice"), (bob, "bob")):
            says = f"{name} takes part in lobby over {group}, without a store"
            terminal.until(lambda terminal=terminal, says=says: says in terminal.err, "it takes part")  # type: ignore[misc]
        assert "alice takes part in lobby over udp://239.255.70.1:9700, without a store" in page
        alice.type(f"{typed}\n")
        bob.until(lambda: any(line.endswith(f" {received}") for line in bob.out), "bob reads it")
        alice.until(lambda: any(line.endswith(receipt) for line in (*alice.out, *alice.err)), "alice has the receipt")
        for terminal in (alice, bob):
            terminal.end_input()
            assert terminal.wait() == 0, str(terminal)


def test_an_input_without_line_ends_is_cut_into_lines_that_a_message_holds() -> None:
    async def lines_of(given: bytes) -> list[bytes | None]:
        reading, writing = os.pipe()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        read_lines(lines, reading)
        with os.fdopen(writing, "wb") as file:
            await asyncio.to_thread(file.write, given)
            await asyncio.to_thread(file.close)
        found = [await lines.get()]
        while found[-1] is not None:
            found.append(await lines.get())
        os.close(reading)
        return found

    given = b"x" * (2 * LINE_BYTES_MAX + 1) + b"\r\nshort\n" + b"y" * (LINE_BYTES_MAX + 1)
    found = asyncio.run(lines_of(given))
    assert max(len(line) for line in found if line is not None) == LINE_BYTES_MAX
    assert b"".join(line for line in found if line is not None) == given.replace(b"\r\n", b"").replace(b"\n", b"")
    assert found[-4:] == [b"short", b"y" * LINE_BYTES_MAX, b"y", None]
