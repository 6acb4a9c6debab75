"""Whom a node exchanges datagrams with, and who has shown that it receives at its address."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shardwire.node.clock import Clock
from shardwire.node.udp.datagram import HELLO, Datagram

# IP address and port; of IPv6 also flow and scope.
Address = tuple[str, int] | tuple[str, int, int, int]

HELLO_MS = 3_000
# While nobody, or not everybody, answers.
EAGER_HELLO_MS = 500
# Who is not heard for so long is out of reach.
SILENCE_MS = 10_000
NEIGHBOURS_MAX = 64
# Shown by who was given none yet.
_NO_TOKEN = 1
# When one that answered nothing is tried again.
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000
# Answers in a second to addresses that have shown nothing.
STRANGERS_PER_SECOND = 100


def written(address: Address) -> str:
    """An address as URLs write it."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


@dataclass(slots=True, eq=False)
class Neighbour:
    """One that showed us that it receives at its address; in a group one that was heard.

    Attributes:
        address: Where its datagrams come from.
        sender: Its process.
        token: What it wants to be shown; 0 in a group.
        heard_ms: When it was last heard, monotonic.
        heard_ns: The same in Unix time.
        responds: Whether it answers to messages.
        answered_ms: When it last did.
        unanswered: How often in a row it was waited for in vain.
        retry_ms: Until when a hello alone does not make it one that responds.
        said_goodbye: Whether it ended as it should.
    """

    address: Address
    sender: int
    token: int
    heard_ms: int
    heard_ns: int
    responds: bool = True
    answered_ms: int = 0
    unanswered: int = 0
    retry_ms: int = 0
    said_goodbye: bool = False

    def on_hello(self, now_ms: int) -> None:
        """Says hello: it may answer to messages again."""
        if now_ms >= self.retry_ms:
            self.responds = True

    def on_answer(self, now_ms: int) -> None:
        self.responds = True
        self.answered_ms = now_ms
        self.unanswered = 0

    def on_no_answer(self, now_ms: int) -> None:
        """One that says hello and answers nothing costs everybody time, so each time it is tried later."""
        self.responds = False
        self.unanswered += 1
        self.retry_ms = now_ms + min(RETRY_MS_MAX, RETRY_MS_MIN << min(self.unanswered, 16))


@dataclass(slots=True)
class _Configured:
    """A neighbour that the user named."""

    address: Address
    hello_ms: int = 0


class Neighbours:
    """Says and takes hellos.

    Nobody is sent more than it sent before it showed the token that only a receiver at its address knows: an address
    that somebody forged is answered with a datagram as long as the forged one.

    Args:
        sender: Our process.
        secret: Makes the tokens.
        clock: Both times.
        send: Sends a datagram to an address.
        accept: Whether those that nobody named may come.
        on_come: Told who came into reach, and since when it may have been missed, in Unix time; 0 for never seen.
        on_go: Told who went.
    """

    def __init__(
        self,
        sender: int,
        secret: bytes,
        clock: Clock,
        send: Callable[[bytes, Address], None],
        *,
        accept: bool,
        on_come: Callable[[Neighbour, int], None],
        on_go: Callable[[Neighbour], None],
    ) -> None:
        self._sender = sender
        self._secret = secret
        self._clock = clock
        self._send = send
        self._accept = accept
        self._on_come = on_come
        self._on_go = on_go
        self._configured: dict[Address, _Configured] = {}
        self._here: dict[Address, Neighbour] = {}
        # Who went, and when it was last heard, in Unix time.
        self._gone: dict[Address, int] = {}
        self._hello_ms: dict[Address, int] = {}
        self._strangers_second = 0
        self._strangers = 0

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(list(self._here.values()))

    def __len__(self) -> int:
        return len(self._here)

    def of(self, address: Address) -> Neighbour | None:
        return self._here.get(address)

    def configure(self, addresses: Iterable[Address]) -> None:
        """Takes the addresses that the user named, as their names resolve now."""
        wanted = set(addresses)
        for address in set(self._configured) - wanted:
            del self._configured[address]
        for address in wanted - set(self._configured):
            self._configured[address] = _Configured(address)

    @property
    def missing(self) -> list[Address]:
        """Addresses that the user named and that are not here."""
        return [address for address in self._configured if address not in self._here]

    @property
    def unreached(self) -> bool:
        """Whether one that the user named is not here."""
        return bool(self.missing)

    def token_for(self, address: Address) -> int:
        """What an address has to show."""
        text = f"{address[0]}|{address[1]}".encode()
        return int.from_bytes(hmac.digest(self._secret, text, hashlib.sha256)[:8], "big") or 1

    def heard(self, datagram: Datagram, address: Address) -> Neighbour | None:
        """The neighbour that a datagram other than a hello is of; None where its sender has shown nothing."""
        neighbour = self._here.get(address)
        if neighbour is None or neighbour.sender != datagram.sender or datagram.to != self.token_for(address):
            return None
        self._touch(neighbour)
        return neighbour

    def take_hello(self, datagram: Datagram, address: Address, size_bytes: int) -> bool:
        """Takes a hello of this many bytes, and answers it where that is wanted; False where nothing came of it."""
        proven = datagram.to == self.token_for(address)
        if proven and not datagram.token:
            self._leave(address, said_goodbye=True)
            return True
        if not datagram.token:
            return False
        known = address in self._configured or address in self._here
        if not known and not (self._accept and (not proven or len(self._here) < NEIGHBOURS_MAX)):
            return False
        if proven:
            self._arrive(datagram, address)
        elif not self._may_answer_stranger():
            return False
        if datagram.answer:
            hello = self._hello(address, datagram.token, answer=not proven)
            if not proven and len(hello) > size_bytes:
                return False
            self._send(hello, address)
        return True

    def say_hellos(self) -> None:
        """Says what hellos are due, and lets go who is silent."""
        now_ms = self._clock.monotonic_ms()
        for neighbour in self:
            if now_ms - neighbour.heard_ms > SILENCE_MS:
                self._leave(neighbour.address)
        for address in {*self._configured, *self._here}:
            here = self._here.get(address)
            pause_ms = HELLO_MS if here is not None and here.responds else EAGER_HELLO_MS
            if now_ms - self._hello_ms.get(address, -HELLO_MS) >= pause_ms:
                self._hello_ms[address] = now_ms
                # A stranger's hello is as long as its answer, which it may not be shorter than.
                self._send(self._hello(address, _NO_TOKEN if here is None else here.token, answer=True), address)
        for address in set(self._hello_ms) - set(self._configured) - set(self._here):
            del self._hello_ms[address]

    def say_goodbye(self) -> None:
        """Tells everybody that we go."""
        for neighbour in self:
            self._send(Datagram(to=neighbour.token, sender=self._sender, kind=HELLO).encode(), neighbour.address)

    def _hello(self, address: Address, token: int, *, answer: bool) -> bytes:
        return Datagram(token, self._sender, HELLO, token=self.token_for(address), answer=int(answer)).encode()

    def _arrive(self, datagram: Datagram, address: Address) -> None:
        neighbour = self._here.get(address)
        if neighbour is not None and neighbour.sender == datagram.sender:
            neighbour.token = datagram.token
            self._touch(neighbour)
            neighbour.on_hello(neighbour.heard_ms)
            return
        if neighbour is not None:
            # Another process at the same address.
            self._leave(address)
        now_ms, now_ns = self._clock.monotonic_ms(), self._clock.epoch_ns()
        neighbour = Neighbour(address, datagram.sender, datagram.token, now_ms, now_ns)
        self._here[address] = neighbour
        self._on_come(neighbour, self._gone.pop(address, 0))

    def _leave(self, address: Address, *, said_goodbye: bool = False) -> None:
        neighbour = self._here.pop(address, None)
        if neighbour is not None:
            neighbour.said_goodbye = said_goodbye
            self._gone[address] = neighbour.heard_ns
            if len(self._gone) > NEIGHBOURS_MAX:
                self._gone.pop(next(iter(self._gone)))
            self._on_go(neighbour)

    def _touch(self, neighbour: Neighbour) -> None:
        neighbour.heard_ms, neighbour.heard_ns = self._clock.monotonic_ms(), self._clock.epoch_ns()

    def _may_answer_stranger(self) -> bool:
        second = self._clock.monotonic_ms() // 1_000
        if second != self._strangers_second:
            self._strangers_second, self._strangers = second, 0
        self._strangers += 1
        return self._strangers <= STRANGERS_PER_SECOND


class Group(Neighbours):
    """The neighbours in a multicast group. They show no token: whoever is on the network belongs to it."""

    def __init__(
        self,
        sender: int,
        clock: Clock,
        send: Callable[[bytes, Address], None],
        group: Address,
        *,
        on_come: Callable[[Neighbour, int], None],
        on_go: Callable[[Neighbour], None],
    ) -> None:
        super().__init__(sender, b"", clock, send, accept=True, on_come=on_come, on_go=on_go)
        self._group = group
        self._last_hello_ms = -HELLO_MS

    def heard(self, datagram: Datagram, address: Address) -> Neighbour | None:
        neighbour = self._here.get(address)
        if neighbour is None or neighbour.sender != datagram.sender:
            if len(self._here) >= NEIGHBOURS_MAX:
                return None
            self._arrive(datagram, address)
            return self._here[address]
        self._touch(neighbour)
        return neighbour

    def take_hello(self, datagram: Datagram, address: Address, size_bytes: int) -> bool:
        if not datagram.token:
            self._leave(address, said_goodbye=True)
            return True
        neighbour = self.heard(datagram, address)
        if neighbour is None:
            return False
        neighbour.on_hello(neighbour.heard_ms)
        if datagram.answer and self._clock.monotonic_ms() - self._last_hello_ms >= EAGER_HELLO_MS:
            # To the group: an address that somebody forged gets nothing.
            self._say_group(answer=False)
        return True

    def say_hellos(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for neighbour in self:
            if now_ms - neighbour.heard_ms > SILENCE_MS:
                self._leave(neighbour.address)
        if now_ms - self._last_hello_ms >= (HELLO_MS if len(self) else EAGER_HELLO_MS):
            self._say_group(answer=not len(self))

    def say_goodbye(self) -> None:
        self._send(Datagram(sender=self._sender, kind=HELLO).encode(), self._group)

    def _say_group(self, *, answer: bool) -> None:
        self._last_hello_ms = self._clock.monotonic_ms()
        self._send(Datagram(sender=self._sender, kind=HELLO, token=1, answer=int(answer)).encode(), self._group)
