"""What a node keeps of those that send it datagrams, and whom it takes them from."""

from __future__ import annotations

import asyncio

import pytest
from virtual_nodes import virtual

from shardwire.node import VirtualClock
from shardwire.node.udp import intake as intake_module
from shardwire.node.udp import neighbours as neighbours_module
from shardwire.node.udp.datagram import FRAGMENT, HELLO, Datagram, decode
from shardwire.node.udp.intake import FRAGMENTS_PER_STATUS, Intake
from shardwire.node.udp.neighbours import NEIGHBOURS_MAX, RETRY_MS_MIN, Address, Group, Neighbour, Neighbours
from shardwire.node.udp.outflow import WINDOW_START, Outflow

ALICE: Address = ("192.0.2.1", 1)
BOB: Address = ("192.0.2.2", 2)


class Inbox:
    """An intake, what it received, and what it told whom."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.told: list[tuple[Address, Datagram]] = []
        self.intake = Intake(22, VirtualClock(), self._send, self.received.append)

    def _send(self, data: bytes, address: Address) -> None:
        status = decode(data)
        assert status is not None
        self.told.append((address, status))

    def take(self, number: int, index: int, count: int, data: bytes = b"x", *, port: int = 1, token: int = 111) -> bool:
        neighbour = Neighbour(("192.0.2.1", port), 11, token, 0, 0)
        return self.intake.take(Datagram(1, 11, FRAGMENT, number, index, count, data), neighbour, token)


@virtual
async def test_a_process_is_told_at_the_address_that_it_has_now() -> None:
    it = Inbox()
    it.take(1, 0, 2)
    it.take(1, 1, 2, port=5, token=555)
    [(address, status)] = it.told
    assert (address, status.to, status.held) == (("192.0.2.1", 5), 555, 0b11)


@virtual
async def test_of_a_message_that_is_whole_all_is_said_to_be_here_whatever_comes_late() -> None:
    it = Inbox()
    it.take(1, 0, 2)
    it.take(1, 1, 2)
    it.told.clear()
    for count in (1, 2, 64):
        it.take(1, 0, count)
    assert [status.held for _, status in it.told] == [0b11] * 3
    assert it.received == [b"xx"]


@virtual
async def test_who_went_takes_no_room() -> None:
    it = Inbox()
    it.take(1, 0, 2, bytes(100))
    assert it.intake.size_bytes == 100
    it.intake.forget(11)
    assert it.intake.size_bytes == 0


@virtual
async def test_of_whole_messages_the_latest_are_remembered() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake_module, "REMEMBERED_PER_SENDER", 3)
        it = Inbox()
        for number in range(5):
            it.take(number, 0, 1, bytes([number]))
        for number in (4, 3, 2):
            it.take(number, 0, 1, bytes([number]))
        assert it.received == [bytes([number]) for number in range(5)]
        assert len(it.intake._senders[11].whole) == 3


@virtual
async def test_of_too_many_messages_under_way_the_oldest_go() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake_module, "MESSAGES_PER_SENDER_MAX", 3)
        it = Inbox()
        for number in range(5):
            it.take(number, 0, 2)
        for number in (2, 3, 4):
            it.take(number, 1, 2)
        assert it.received == [b"xx"] * 3
        assert it.intake.size_bytes == 0


def test_one_that_answered_is_soon_tried_again_when_it_answers_no_more() -> None:
    neighbour = Neighbour(BOB, 2, 222, 0, 0)
    for _ in range(5):
        neighbour.on_no_answer(0)
    neighbour.on_answer(1)
    neighbour.on_no_answer(100)
    assert neighbour.retry_ms == 100 + 2 * RETRY_MS_MIN
    neighbour.on_hello(neighbour.retry_ms - 1)
    assert not neighbour.responds
    neighbour.on_hello(neighbour.retry_ms)
    assert neighbour.responds


class Node:
    """Neighbours of one node, what it sent, and who came and went."""

    def __init__(self, *, accept: bool = True) -> None:
        self.clock = VirtualClock()
        self.sent: list[Datagram] = []
        self.events: list[tuple[str, int, int]] = []
        self.neighbours = Neighbours(
            1,
            bytes(32),
            self.clock,
            self._send,
            accept=accept,
            on_come=lambda neighbour, since_ns: self.events.append(("come", neighbour.sender, since_ns)),
            on_go=lambda neighbour: self.events.append(("go", neighbour.sender, int(neighbour.said_goodbye))),
        )

    def _send(self, data: bytes, address: Address) -> None:
        datagram = decode(data)
        assert datagram is not None
        self.sent.append(datagram)

    def hello(self, sender: int, token: int, *, answer: int = 0, proven: bool = True) -> bool:
        to = self.neighbours.token_for(BOB) if proven else 99
        datagram = Datagram(to, sender, HELLO, token=token, answer=answer)
        return self.neighbours.take_hello(datagram, BOB, len(datagram.encode()))


@virtual
async def test_only_the_process_that_showed_its_token_is_heard() -> None:
    node = Node()
    assert node.hello(2, 222)
    token = node.neighbours.token_for(BOB)
    assert node.neighbours.heard(Datagram(token, 2, FRAGMENT, 1, 0, 1, b"x"), BOB) is node.neighbours.of(BOB)
    for forged in (Datagram(token, 3, FRAGMENT, 1, 0, 1, b"x"), Datagram(token + 1, 2, FRAGMENT, 1, 0, 1, b"x")):
        assert node.neighbours.heard(forged, BOB) is None
    assert node.neighbours.heard(Datagram(token, 2, FRAGMENT, 1, 0, 1, b"x"), ALICE) is None


@virtual
async def test_a_neighbour_that_answered_nothing_is_tried_again_when_it_says_hello() -> None:
    node = Node()
    assert node.hello(2, 222)
    bob = node.neighbours.of(BOB)
    assert bob is not None
    bob.on_no_answer(node.clock.monotonic_ms())
    assert node.hello(2, 223)
    assert not bob.responds
    await asyncio.sleep(2 * RETRY_MS_MIN / 1_000)
    assert node.hello(2, 224)
    assert bob.responds
    assert bob.token == 224


@virtual
async def test_a_good_bye_counts_from_who_was_there_alone_and_tells_since_when_it_was_missed() -> None:
    node = Node()
    assert node.hello(2, 222)
    heard_ns = node.clock.epoch_ns()
    assert not node.hello(2, 0, proven=False)
    assert node.events == [("come", 2, 0)]
    assert node.hello(2, 0)
    # Another process at its address came while that one was away; and then one more without a good-bye of it.
    assert node.hello(3, 333)
    assert node.hello(4, 444)
    assert node.events[1:] == [("go", 2, 1), ("come", 3, heard_ns), ("go", 3, 0), ("come", 4, heard_ns)]


@virtual
async def test_a_hello_is_answered_where_that_is_asked_for_and_no_answer_asks_for_one() -> None:
    node = Node()
    node.hello(2, 222)
    assert node.sent == []
    node.hello(2, 223, answer=1)
    [answer] = node.sent
    assert (answer.to, answer.answer, answer.token) == (223, 0, node.neighbours.token_for(BOB))
    # A stranger is asked to show what it is given.
    node.hello(5, 555, answer=1, proven=False)
    assert (node.sent[1].to, node.sent[1].answer) == (555, 1)
    # Whoever is here is sent what it wants to be shown now.
    node.neighbours.say_goodbye()
    assert node.sent[2].to == 223


@virtual
async def test_strangers_are_answered_again_in_the_next_second() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours_module, "STRANGERS_PER_SECOND", 2)
        node = Node()
        for _ in range(3):
            assert [node.hello(5, 555, answer=1, proven=False) for _ in range(3)] == [True, True, False]
            await asyncio.sleep(1)


@virtual
async def test_of_those_who_went_so_many_are_remembered() -> None:
    node = Node().neighbours
    for port in range(2 * NEIGHBOURS_MAX):
        address: Address = ("192.0.2.9", port)
        for token in (1, 0):
            node.take_hello(Datagram(node.token_for(address), 9, HELLO, token=token), address, 100)
    assert (len(node), len(node._gone)) == (0, NEIGHBOURS_MAX)


@virtual
async def test_a_message_that_nobody_waits_for_any_more_is_not_sent_on() -> None:
    left: list[int] = []
    outflow = Outflow(11, VirtualClock(), lambda fragment, neighbours: bool(left.append(fragment.number)) or True)
    bob = Neighbour(BOB, 2, 222, 0, 0)
    for number in (1, 2):
        sending = asyncio.create_task(outflow.send([b"x"] * WINDOW_START, [bob]))
        await asyncio.sleep(0.01)
        assert left == [each for each in range(1, number + 1) for _ in range(WINDOW_START)]
        sending.cancel()
        await asyncio.wait((sending,))
        assert outflow._messages == {}
    await asyncio.sleep(1)
    outflow.look()
    assert len(left) == 2 * WINDOW_START
    outflow.stop()


@virtual
async def test_where_none_may_come_those_who_are_named_do_and_stay() -> None:
    node = Node(accept=False)
    assert not node.hello(2, 222)
    node.neighbours.configure([BOB])
    assert node.neighbours.missing == [BOB]
    assert node.hello(2, 222)
    assert not node.neighbours.unreached
    # As where its name leads elsewhere by now.
    node.neighbours.configure([ALICE])
    assert node.hello(2, 223)
    assert node.neighbours.missing == [ALICE]


@virtual
async def test_of_a_group_so_many_are_known_and_no_more() -> None:
    come: list[Neighbour] = []
    group = Group(
        22,
        VirtualClock(),
        lambda data, address: None,
        ("239.0.0.1", 5_000),
        on_come=lambda neighbour, missed_ns: come.append(neighbour),
        on_go=lambda neighbour: None,
    )
    for number in range(NEIGHBOURS_MAX + 1):
        hello = Datagram(sender=100 + number, kind=HELLO, token=1)
        assert group.take_hello(hello, ("192.0.2.1", 1_000 + number), 100) is (number < NEIGHBOURS_MAX)
    assert len(group) == len(come) == NEIGHBOURS_MAX


@virtual
async def test_a_sender_is_told_what_is_here_once_in_so_many_fragments() -> None:
    it = Inbox()
    for index in range(2 * FRAGMENTS_PER_STATUS):
        it.take(1, index, 64)
        assert len(it.told) == (index + 1) // FRAGMENTS_PER_STATUS
    assert [status.held.bit_count() for _, status in it.told] == [FRAGMENTS_PER_STATUS, 2 * FRAGMENTS_PER_STATUS]


@virtual
async def test_where_all_have_too_much_it_is_the_largest_that_loses_something() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake_module, "BYTES_MAX", 10)
        it = Inbox()
        it.take(1, 0, 2, 8 * b"x")
        neighbour = Neighbour(("192.0.2.3", 3), 33, 333, 0, 0)
        for index in range(2):
            it.intake.take(Datagram(1, 33, FRAGMENT, 1, index, 2, 4 * b"y"), neighbour, 333)
        assert it.received == [8 * b"y"]
        assert it.intake.size_bytes == 0
