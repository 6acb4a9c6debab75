"""Datagrams, and what becomes of messages in them on a path that loses, repeats and reorders, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwire.node import Clock, VirtualClock, run_virtual
from shardwire.node.udp import intake as udp_intake
from shardwire.node.udp.datagram import FRAGMENT, FRAGMENTS_MAX, HELLO, STATUS, Datagram, decode
from shardwire.node.udp.intake import Intake
from shardwire.node.udp.neighbours import (
    NEIGHBOURS_MAX,
    STRANGERS_PER_SECOND,
    Address,
    Neighbour,
    Neighbours,
)
from shardwire.node.udp.outflow import WINDOW_MIN, NobodyAnswersError, Outflow

ALICE: Address = ("192.0.2.1", 1)
BOB: Address = ("192.0.2.2", 2)
U64 = st.integers(1, (1 << 64) - 1)


@given(
    st.one_of(
        st.builds(Datagram, U64, U64, st.just(HELLO), token=U64, answer=st.integers(0, 1)),
        st.builds(
            lambda to, sender, number, count, index, data: Datagram(
                to, sender, FRAGMENT, number, index % count, count, data
            ),
            U64,
            U64,
            st.integers(0, (1 << 32) - 1),
            st.integers(1, FRAGMENTS_MAX),
            st.integers(0, 63),
            st.binary(min_size=1, max_size=300),
        ),
        st.builds(Datagram, U64, U64, st.just(STATUS), st.integers(0, (1 << 32) - 1), held=U64),
    )
)
def test_what_is_encoded_is_decoded(datagram: Datagram) -> None:
    assert decode(datagram.encode()) == datagram
    # A field that a later version adds.
    assert decode(datagram.encode() + b"\x98\x06\x01") == datagram


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_are_more_than_refused(data: bytes, place: int, value: int) -> None:
    decode(data)
    genuine = bytearray(Datagram(1, 2, FRAGMENT, 3, 4, 5, b"data").encode())
    genuine[place % len(genuine)] = value
    datagram = decode(bytes(genuine[: place % (len(genuine) + 1)] if value % 2 else genuine))
    assert datagram is None or datagram.is_valid


@pytest.mark.parametrize(
    "datagram",
    [
        Datagram(1, 0, HELLO, token=1),
        Datagram(1, 2, 9),
        Datagram(1, 2, FRAGMENT, 3, 5, 5, b"x"),
        Datagram(1, 2, FRAGMENT, 3, 0, 65, b"x"),
        Datagram(1, 2, FRAGMENT, 3, 0, 0, b"x"),
        Datagram(1, 2, FRAGMENT, 3, 0, 1, b""),
    ],
)
def test_what_makes_no_sense_is_refused(datagram: Datagram) -> None:
    assert decode(datagram.encode()) is None


class Path:
    """Two sides, and datagrams between them that may be lost, repeated, or late.

    Args:
        rng: Draws what happens.
        loss: Share that never arrives, in both directions.
        delay_ms: Least and most time.
        room: Datagrams that may be under way; more of them are lost, as in a full buffer.
    """

    def __init__(
        self, rng: random.Random, *, loss: float = 0.0, delay_ms: tuple[int, int] = (1, 3), room: int = 10_000
    ) -> None:
        self.rng, self.loss, self.delay_ms, self.room = rng, loss, delay_ms, room
        self.under_way = 0
        self.sent = 0
        clock = VirtualClock()
        self.clock = clock
        self.received: list[bytes] = []
        self.bob = Neighbour(BOB, 22, 222, 0, 0)
        self.alice = Neighbour(ALICE, 11, 111, 0, 0)
        self.outflow = Outflow(11, clock, self._to_bob)
        self.intake = Intake(22, clock, self._to_alice, self.received.append)
        self._timers = asyncio.create_task(self._look())

    def close(self) -> None:
        self._timers.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self.intake.look()
            self.outflow.look()

    def _to_bob(self, fragment: Datagram, neighbours: Iterable[Neighbour]) -> bool:
        self.sent += 1
        data = fragment.encode()
        self._carry(lambda: self.intake.take(decode(data), self.alice, 111))  # type: ignore[arg-type]
        return True

    def _to_alice(self, data: bytes, address: Address) -> None:
        assert address == ALICE
        self._carry(lambda: self.outflow.take_status(decode(data), self.bob))  # type: ignore[arg-type]

    def _carry(self, arrive: Any) -> None:
        for _ in range(2 if self.rng.random() < 0.02 else 1):
            if self.rng.random() < self.loss or self.under_way >= self.room:
                continue
            self.under_way += 1

            def land() -> None:
                self.under_way -= 1
                arrive()

            asyncio.get_running_loop().call_later(self.rng.uniform(*self.delay_ms) / 1_000, land)


def parts_of(message: bytes, size: int = 100) -> list[bytes]:
    return [message[begin : begin + size] for begin in range(0, len(message), size)]


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("delay_ms", [(1, 1), (5, 60)])
def test_every_message_arrives_once_whatever_the_path_loses(loss: float, delay_ms: tuple[int, int]) -> None:
    async def run() -> None:
        path = Path(random.Random(7), loss=loss, delay_ms=delay_ms)
        rng = random.Random(8)
        messages = [number.to_bytes(4, "big") + rng.randbytes(rng.randrange(6_390)) for number in range(60)]
        await asyncio.gather(*(path.outflow.send(parts_of(message), [path.bob]) for message in messages))
        assert sorted(path.received) == sorted(messages)
        fragments = sum(len(parts_of(message)) for message in messages)
        if loss == 0 and delay_ms == (1, 1):
            assert path.sent == fragments
        assert path.sent < (1 + 3 * loss + 0.5) * fragments
        assert path.intake.size_bytes == 0
        path.close()

    run_virtual(run(), limit_ms=600_000)


def test_a_narrow_path_is_not_overrun() -> None:
    async def run() -> None:
        path = Path(random.Random(7), delay_ms=(2, 2), room=40)
        message = bytes(6_400)
        for _ in range(30):
            await asyncio.gather(*(path.outflow.send(parts_of(message), [path.bob]) for _ in range(4)))
        assert len(path.received) == 120
        # The window stays about what the path holds: little is sent twice.
        assert WINDOW_MIN <= path.outflow.window < 160
        assert path.sent < 1.3 * 120 * 64
        path.close()

    run_virtual(run(), limit_ms=600_000)


def test_a_neighbour_that_answers_nothing_is_given_up_and_others_are_not_held_up() -> None:
    async def run() -> None:
        path = Path(random.Random(7))
        mute = Neighbour(("192.0.2.3", 3), 33, 333, 0, 0)
        for number in range(50):
            await path.outflow.send([bytes([number])], [path.bob, mute] if mute.responds else [path.bob])
        assert len(path.received) == 50
        await asyncio.sleep(10)
        assert path.bob.responds
        assert not mute.responds
        deaf = Neighbour(("192.0.2.4", 4), 44, 444, 0, 0)
        begun_ms = path.clock.monotonic_ms()
        with pytest.raises(NobodyAnswersError):
            await path.outflow.send([b"unheard"], [deaf])
        assert path.clock.monotonic_ms() - begun_ms < 5_000
        path.close()

    run_virtual(run(), limit_ms=600_000)


def test_one_that_says_hello_and_answers_nothing_costs_less_each_time() -> None:
    async def run() -> None:
        path = Path(random.Random(7))
        mute = Neighbour(("192.0.2.3", 3), 33, 333, 0, 0)
        waited_for = 0
        for _ in range(600):
            mute.on_hello(path.clock.monotonic_ms())
            waited_for += mute.responds
            await path.outflow.send([b"x"], [path.bob, mute] if mute.responds else [path.bob])
            await asyncio.sleep(1)
        # Of ten minutes.
        assert 5 < waited_for < 60
        mute.on_answer(path.clock.monotonic_ms())
        assert mute.responds
        path.close()

    run_virtual(run(), limit_ms=3_600_000)


def test_a_neighbour_that_never_has_a_message_holds_nobody_up_for_ever() -> None:
    async def run() -> None:
        path = Path(random.Random(7))
        liar = Neighbour(("192.0.2.3", 3), 33, 333, 0, 0)
        await path.outflow.send([b"x"] * 8, [path.bob, liar])
        for _ in range(300):
            await asyncio.sleep(0.1)
            path.outflow.take_status(Datagram(1, 33, STATUS, 1, held=1), liar)
            path.outflow.take_status(Datagram(1, 33, STATUS, 99, held=1), liar)
        # What it says it lacks was sent again some times, and no more.
        assert path.sent < 200
        assert not path.outflow._messages
        path.close()

    run_virtual(run(), limit_ms=600_000)


def test_a_status_cannot_confirm_what_never_left() -> None:
    async def run() -> None:
        clock = VirtualClock()
        left: list[int] = []
        bob = Neighbour(BOB, 22, 222, 0, 0)
        outflow = Outflow(11, clock, lambda fragment, neighbours: bool(left.append(fragment.index)) or len(left) < 3)
        sending = asyncio.create_task(outflow.send([b"x"] * 10, [bob]))
        await asyncio.sleep(0)
        # The socket took three.
        assert left == [0, 1, 2]
        outflow.take_status(Datagram(1, 22, STATUS, 1, held=(1 << 10) - 1), bob)
        outflow.take_status(Datagram(1, 22, STATUS, 77, held=(1 << 64) - 1), bob)
        await asyncio.sleep(0.01)
        assert not sending.done()
        sending.cancel()
        outflow.stop()

    run_virtual(run(), limit_ms=600_000)


def make_intake() -> tuple[Intake, list[bytes], list[Datagram], VirtualClock]:
    clock = VirtualClock()
    received: list[bytes] = []
    told: list[Datagram] = []

    def keep(data: bytes, address: Address) -> None:
        status = decode(data)
        assert status is not None
        told.append(status)

    return Intake(22, clock, keep, received.append), received, told, clock


def test_fragments_that_contradict_one_another_change_nothing() -> None:
    async def run() -> None:
        intake, received, _, _ = make_intake()
        alice = Neighbour(ALICE, 11, 111, 0, 0)
        assert intake.take(Datagram(1, 11, FRAGMENT, 1, 0, 2, b"a"), alice, 111)
        assert not intake.take(Datagram(1, 11, FRAGMENT, 1, 0, 3, b"a"), alice, 111)
        assert intake.take(Datagram(1, 11, FRAGMENT, 1, 0, 2, b"another"), alice, 111)
        assert intake.take(Datagram(1, 11, FRAGMENT, 1, 1, 2, b"b"), alice, 111)
        assert received == [b"ab"]
        # Late ones are answered, and open nothing.
        assert intake.take(Datagram(1, 11, FRAGMENT, 1, 0, 5, b"a"), alice, 111)
        assert received == [b"ab"]
        assert intake.size_bytes == 0

    run_virtual(run())


def test_what_never_becomes_whole_is_bounded_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_intake, "BYTES_PER_SENDER_MAX", 50_000)
    monkeypatch.setattr(udp_intake, "BYTES_MAX", 120_000)

    async def run() -> None:
        intake, received, told, _ = make_intake()
        for sender in range(1, 6):
            neighbour = Neighbour(("192.0.2.9", sender), sender, 111, 0, 0)
            for number in range(2_000):
                intake.take(Datagram(1, sender, FRAGMENT, number, 1, 2, bytes(100)), neighbour, 111)
            assert intake.size_bytes <= 120_000
        told.clear()
        await asyncio.sleep(0.1)
        intake.look()
        # Asked for again, no more than are kept.
        assert 0 < len(told) <= 5 * udp_intake.MESSAGES_PER_SENDER_MAX
        await asyncio.sleep(11)
        intake.look()
        assert intake.size_bytes == 0
        assert received == []
        intake.forget(1)

    run_virtual(run())


def test_what_is_missing_is_asked_for_less_and_less_often() -> None:
    async def run() -> None:
        intake, _, told, clock = make_intake()
        alice = Neighbour(ALICE, 11, 111, 0, 0)
        intake.take(Datagram(1, 11, FRAGMENT, 1, 0, 2, b"a"), alice, 111)
        while clock.monotonic_ms() < 12_000:
            await asyncio.sleep(0.01)
            intake.look()
        assert 5 <= len(told) <= 20
        assert {status.held for status in told} == {1}

    run_virtual(run())


class Hellos:
    """Neighbours of several nodes, whose datagrams reach whom they are addressed to."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.nodes: dict[Address, Neighbours] = {}
        self.sent: list[tuple[Address, Address, int]] = []
        self.events: list[tuple[str, Address, Address]] = []

    def add(self, address: Address, sender: int, *, accept: bool = True, lossy: bool = False) -> Neighbours:
        def send(data: bytes, to: Address) -> None:
            self.sent.append((address, to, len(data)))
            if to in self.nodes and not lossy:
                hello = decode(data)
                assert hello is not None
                asyncio.get_running_loop().call_soon(self.nodes[to].take_hello, hello, address, len(data))

        node = Neighbours(
            sender,
            bytes([sender]) * 32,
            self.clock,
            send,
            accept=accept,
            on_come=lambda neighbour, since_ns: self.events.append(("come", address, neighbour.address)),
            on_go=lambda neighbour: self.events.append(("go", address, neighbour.address)),
        )
        self.nodes[address] = node
        return node


def test_two_meet_where_one_knows_the_other_and_part() -> None:
    async def run() -> None:
        world = Hellos(VirtualClock())
        alice, bob = world.add(ALICE, 1), world.add(BOB, 2)
        alice.configure([BOB])
        alice.say_hellos()
        await asyncio.sleep(0.01)
        assert [each.address for each in alice] == [BOB]
        assert [each.address for each in bob] == [ALICE]
        assert not alice.unreached
        # They go on saying it, and do not answer answers for ever.
        for _ in range(100):
            await asyncio.sleep(1)
            alice.say_hellos()
            bob.say_hellos()
        assert len(world.sent) < 150
        assert [event for event, _, _ in world.events] == ["come", "come"]
        bob.say_goodbye()
        await asyncio.sleep(0.01)
        assert ("go", ALICE, BOB) in world.events
        assert len(alice) == 0

    run_virtual(run())


def test_who_is_silent_goes_and_who_begins_again_is_another() -> None:
    async def run() -> None:
        world = Hellos(VirtualClock())
        alice, _ = world.add(ALICE, 1), world.add(BOB, 2)
        alice.configure([BOB])
        alice.say_hellos()
        await asyncio.sleep(0.01)
        # Bob's process ends without a word, and another begins at its address.
        world.add(BOB, 3)
        for _ in range(5):
            await asyncio.sleep(1)
            alice.say_hellos()
        assert [each.sender for each in alice] == [3]
        del world.nodes[BOB]
        for _ in range(12):
            await asyncio.sleep(1)
            alice.say_hellos()
        assert len(alice) == 0
        assert alice.unreached

    run_virtual(run())


def test_a_stranger_is_answered_with_no_more_than_it_sent() -> None:
    async def run() -> None:
        world = Hellos(VirtualClock())
        alice = world.add(ALICE, 1)
        victim: Address = ("203.0.113.1", 9)
        sent = answers = 0
        for number in range(10 * STRANGERS_PER_SECOND):
            for hello in (
                Datagram(0, 5, HELLO, token=number + 1, answer=1),
                Datagram(number + 1, 5, HELLO, token=1, answer=1),
                Datagram(number + 1, 5, HELLO),
            ):
                sent += len(hello.encode())
                alice.take_hello(hello, victim, len(hello.encode()))
                # Not even one datagram is longer than the one it answers.
                assert all(size <= len(hello.encode()) for _, _, size in world.sent[answers:])
                answers = len(world.sent)
        answered = sum(size for _, to, size in world.sent if to == victim)
        assert 0 < answered <= sent
        assert len(world.sent) <= STRANGERS_PER_SECOND
        assert len(alice) == 0
        assert alice.heard(Datagram(1, 5, FRAGMENT, 1, 0, 1, b"x"), victim) is None

    run_virtual(run())


def test_only_as_many_come_as_may() -> None:
    async def run() -> None:
        world = Hellos(VirtualClock())
        alice = world.add(ALICE, 1)
        closed = world.add(("192.0.2.5", 5), 5, accept=False)
        for number in range(2 * NEIGHBOURS_MAX):
            stranger: Address = ("198.51.100.7", 1_000 + number)
            for node in (alice, closed):
                node.take_hello(Datagram(node.token_for(stranger), 100 + number, HELLO, token=1), stranger, 100)
        assert len(alice) == NEIGHBOURS_MAX
        assert len(closed) == 0

    run_virtual(run())
