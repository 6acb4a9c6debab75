"""Messages on their way out: in fragments, no faster than they are taken, and again where they were lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shardwire.node.clock import Clock
from shardwire.node.udp.datagram import FRAGMENT, Datagram
from shardwire.node.udp.intake import STALL_MS
from shardwire.node.udp.neighbours import Neighbour

# Fragments under way that nobody has confirmed. Linux lets a socket hold some ninety of 1,200 bytes by default.
WINDOW_MIN = 8
WINDOW_START = 32
WINDOW_MAX = 1_024
# How much of the window is left after a loss.
AFTER_LOSS = 0.7
# Times until an answer counts as overdue.
TIMEOUT_MS_START = 100
TIMEOUT_MS_MIN = 40
TIMEOUT_MS_MAX = 1_000
# Overdue answers in a row, for one message, after which a neighbour that answers nothing else either is not waited for.
PROBES_MAX = 5
UNANSWERED_MS = 1_500
# After so many it is not waited for with this message, whatever else it answers.
PROBES_PER_MESSAGE_MAX = 20
# Nor where it says that it lacks fragments which were sent to it so often.
RESENT_PER_FRAGMENT_MAX = 16
# Sent again at once when an answer is overdue: whoever lost more says so in its answer.
FRAGMENTS_PER_PROBE = 4
# Among fragments that overtake one another a gap is no loss yet.
REORDERED_MAX = 3


class NobodyAnswersError(Exception):
    """No neighbour confirmed a message."""


@dataclass(slots=True)
class _Awaited:
    """What one neighbour has of a message."""

    held: int = 0
    probes: int = 0
    resent: int = 0


@dataclass(slots=True, eq=False)
class _Outgoing:
    """A message under way."""

    number: int
    parts: list[bytes]
    awaited: dict[Neighbour, _Awaited]
    # Done when the first neighbour has it all.
    confirmed: asyncio.Future[None]
    # Fragments that left, and of these those that somebody may lack.
    left: int = 0
    outstanding: int = 0
    sent_ms: list[int] = field(default_factory=list)
    resent: bool = False
    progress_ms: int = 0
    timeout_ms: int = TIMEOUT_MS_START

    @property
    def all(self) -> int:
        return (1 << len(self.parts)) - 1


class Outflow:
    """Sends messages to every neighbour that responds, with a window that grows while nothing is lost.

    Args:
        sender: Our process.
        clock: Monotonic time.
        transmit: Sends a fragment to these neighbours; False where the socket takes nothing now: `resume` is called
            when it does.
    """

    def __init__(self, sender: int, clock: Clock, transmit: Callable[[Datagram, Iterable[Neighbour]], bool]) -> None:
        self._sender = sender
        self._clock = clock
        self._transmit = transmit
        self._messages: dict[int, _Outgoing] = {}
        self._queue: deque[tuple[_Outgoing, int]] = deque()
        # Before everything else: message, fragment, for whom.
        self._lost: deque[tuple[_Outgoing, int, Neighbour]] = deque()
        self._number = 0
        self._in_flight = 0
        self._window = float(WINDOW_START)
        self._growing = True
        self._reduced_ms = 0
        self._round_trip_ms = float(TIMEOUT_MS_START) / 2
        self._blocked = False
        self.resent = 0

    @property
    def window(self) -> int:
        """Fragments that may be under way."""
        return int(self._window)

    async def send(self, parts: list[bytes], neighbours: list[Neighbour]) -> None:
        """Sends a message; returns when a neighbour has all of it. The others get it meanwhile and after.

        Raises:
            NobodyAnswersError: None of them confirmed it.
        """
        self._number = (self._number + 1) & 0xFFFFFFFF
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message = _Outgoing(
            self._number,
            parts,
            {neighbour: _Awaited() for neighbour in neighbours},
            confirmed,
            sent_ms=[0] * len(parts),
        )
        self._messages[message.number] = message
        self._queue.extend((message, index) for index in range(len(parts)))
        self._pump()
        try:
            await confirmed
        except asyncio.CancelledError:
            self._end(message)
            raise

    def take_status(self, status: Datagram, neighbour: Neighbour) -> None:
        """A neighbour says what it has of a message."""
        now_ms = self._clock.monotonic_ms()
        neighbour.on_answer(now_ms)
        message = self._messages.get(status.number)
        awaited = None if message is None else message.awaited.get(neighbour)
        if message is None or awaited is None:
            return
        # Fragments that never left are held by nobody, whatever is said.
        held = status.held & message.left
        if held & ~awaited.held:
            awaited.held |= held
            awaited.probes = 0
            message.progress_ms = now_ms
            message.timeout_ms = self._timeout_ms()
        if awaited.held == message.all:
            if not message.resent:
                self._measure(now_ms - message.sent_ms[-1])
            self._grow(len(message.parts))
            del message.awaited[neighbour]
            if not message.confirmed.done():
                message.confirmed.set_result(None)
        else:
            self._resend_lost(message, awaited, neighbour, now_ms)
        self._settle(message)
        self._pump()

    def look(self) -> None:
        """Probes neighbours whose answers are overdue, and stops waiting for those that never answer."""
        now_ms = self._clock.monotonic_ms()
        for message in list(self._messages.values()):
            if not message.left or now_ms - message.progress_ms < message.timeout_ms:
                continue
            message.progress_ms = now_ms
            message.timeout_ms = min(2 * message.timeout_ms, TIMEOUT_MS_MAX)
            self._shrink(now_ms)
            for neighbour, awaited in list(message.awaited.items()):
                awaited.probes += 1
                if awaited.probes > PROBES_MAX and now_ms - neighbour.answered_ms > UNANSWERED_MS:
                    self.give_up(neighbour)
                    continue
                if awaited.probes > PROBES_PER_MESSAGE_MAX:
                    del message.awaited[neighbour]
                    continue
                missing = [i for i in range(len(message.parts)) if message.left >> i & 1 and not awaited.held >> i & 1]
                for index in missing[-FRAGMENTS_PER_PROBE:]:
                    self._lost.append((message, index, neighbour))
            self._settle(message)
        self._pump()

    def give_up(self, neighbour: Neighbour) -> None:
        """Waits for a neighbour no longer: it answers to nothing, or went."""
        neighbour.on_no_answer(self._clock.monotonic_ms())
        for message in list(self._messages.values()):
            if message.awaited.pop(neighbour, None) is not None:
                self._settle(message)
        self._pump()

    def abandon_larger(self, part_bytes_max: int) -> None:
        """The path carries no fragments beyond that: messages in larger ones go again in others."""
        for message in list(self._messages.values()):
            if len(message.parts[0]) > part_bytes_max:
                if not message.confirmed.done():
                    message.confirmed.set_exception(NobodyAnswersError("the path wants smaller datagrams"))
                self._end(message)
        self._pump()

    def resume(self) -> None:
        """The socket takes something again."""
        self._blocked = False
        self._pump()

    def stop(self) -> None:
        for message in list(self._messages.values()):
            if not message.confirmed.done():
                message.confirmed.set_exception(NobodyAnswersError("the node stopped"))
            self._end(message)
        self._queue.clear()
        self._lost.clear()

    # --- details ---

    def _pump(self) -> None:
        while not self._blocked:
            if self._lost:
                message, index, neighbour = self._lost.popleft()
                if neighbour in message.awaited and not message.awaited[neighbour].held >> index & 1:
                    self._resend(message, index, neighbour)
                continue
            if not self._queue or self._in_flight >= self._window:
                return
            message, index = self._queue.popleft()
            if message.number not in self._messages:
                continue
            message.left |= 1 << index
            message.outstanding |= 1 << index
            self._in_flight += 1
            if index == len(message.parts) - 1:
                message.timeout_ms = self._timeout_ms()
            self._leave(message, index, message.awaited)

    def _leave(self, message: _Outgoing, index: int, neighbours: Iterable[Neighbour]) -> None:
        now_ms = self._clock.monotonic_ms()
        message.sent_ms[index] = now_ms
        message.progress_ms = max(message.progress_ms, now_ms)
        fragment = Datagram(0, self._sender, FRAGMENT, message.number, index, len(message.parts), message.parts[index])
        if not self._transmit(fragment, neighbours):
            self._blocked = True

    def _resend(self, message: _Outgoing, index: int, neighbour: Neighbour) -> None:
        awaited = message.awaited[neighbour]
        awaited.resent += 1
        if awaited.resent > RESENT_PER_FRAGMENT_MAX * len(message.parts):
            del message.awaited[neighbour]
            self._settle(message)
            return
        self.resent += 1
        message.resent = True
        self._leave(message, index, (neighbour,))

    def _resend_lost(self, message: _Outgoing, awaited: _Awaited, neighbour: Neighbour, now_ms: int) -> None:
        """What is missing below what arrived was lost, unless it left only now."""
        highest = awaited.held.bit_length() - 1
        sent_whole = message.left == message.all
        lost = 0
        for index in range(len(message.parts)):
            if awaited.held >> index & 1 or not message.left >> index & 1:
                continue
            overtaken = index < highest - REORDERED_MAX
            waited_ms = now_ms - message.sent_ms[index]
            # Who asks because nothing comes any more waited for that first.
            overdue = sent_whole and waited_ms >= STALL_MS + self._round_trip_ms
            if (overtaken and waited_ms > self._round_trip_ms / 2) or overdue:
                lost += 1
                self._lost.append((message, index, neighbour))
        if lost:
            self._shrink(now_ms)

    def _settle(self, message: _Outgoing) -> None:
        """Room in the window is free again for what everybody has."""
        common = message.all
        for awaited in message.awaited.values():
            common &= awaited.held
        self._free(message, message.outstanding & common)
        if not message.awaited:
            if not message.confirmed.done():
                message.confirmed.set_exception(NobodyAnswersError("no neighbour confirmed it"))
            self._end(message)

    def _end(self, message: _Outgoing) -> None:
        if self._messages.pop(message.number, None) is not None:
            self._free(message, message.outstanding)
            message.awaited.clear()

    def _free(self, message: _Outgoing, fragments: int) -> None:
        message.outstanding &= ~fragments
        self._in_flight -= fragments.bit_count()

    def _grow(self, fragments: int) -> None:
        grown = fragments if self._growing else fragments / self._window
        self._window = min(WINDOW_MAX, self._window + grown)

    def _shrink(self, now_ms: int) -> None:
        """Once a round trip: what is lost together was lost for one reason."""
        if now_ms - self._reduced_ms > self._round_trip_ms:
            self._reduced_ms = now_ms
            self._growing = False
            self._window = max(WINDOW_MIN, self._window * AFTER_LOSS)

    def _measure(self, round_trip_ms: int) -> None:
        self._round_trip_ms += (max(1, round_trip_ms) - self._round_trip_ms) / 8

    def _timeout_ms(self) -> int:
        return int(min(TIMEOUT_MS_MAX, max(TIMEOUT_MS_MIN, 3 * self._round_trip_ms)))
