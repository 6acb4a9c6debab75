"""Machines that exchange messages in memory under virtual time: loss, delay, duplication and order come from a seed.

A content here is `index/needed/count|text`: enough of a segmentation for a party to know when a send is whole.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from shardwire._native import HistoryEntry, SdsMessage, is_rival
from shardwire.config import ChannelConfig, DeliveredWhen, SdsConfig, SyncConfig
from shardwire.sds import (
    ContentReceived,
    MessageChannel,
    Now,
    SdsEvent,
    SendReleased,
    Transmit,
    TransmitKind,
)

EPOCH_MS = 1_760_000_000_000
LOGOS = ChannelConfig.logos()
START = Now(0, EPOCH_MS)


def at(monotonic_ms: int) -> Now:
    return Now(monotonic_ms, EPOCH_MS + monotonic_ms)


def contents_of(text: str, needed: int = 1, count: int = 1) -> list[bytes]:
    return [f"{index}/{needed}/{count}|{text}".encode() for index in range(count)]


def hint_of(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()


class Party:
    """One machine with the driver a channel would be."""

    def __init__(
        self,
        name: str,
        *,
        sds: SdsConfig = LOGOS.sds,
        sync: SyncConfig = LOGOS.sync,
        seed: int = 0,
        now: Now = START,
        delivered_when: DeliveredWhen = "any",
        header_bytes_max: int = 24_000,
        records: Mapping[tuple[str, bytes], bytes] | None = None,
    ) -> None:
        self.name = name
        self.sds = sds
        self.arguments = {
            "now": now,
            "rng": random.Random(f"{seed}/{name}"),
            "header_bytes_max": header_bytes_max,
            "delivered_when": delivered_when,
        }
        self.sync = sync
        if records is None:
            self.machine = MessageChannel("room", name, sds, sync, **self.arguments)  # type: ignore[arg-type]
        else:
            self.machine = MessageChannel.restore(records, "room", name, sds, sync, **self.arguments)  # type: ignore[arg-type]
        self.records: dict[tuple[str, bytes], bytes] = dict(records or {})
        self.events: list[SdsEvent] = []
        self.delivered: list[str] = []
        self.texts: dict[tuple[str, str], str] = {}
        self.held: dict[tuple[str, str], set[int]] = {}
        self.transmitted: list[Transmit] = []
        self.sends = 0

    def send(self, text: str, now: Now, needed: int = 1, count: int = 1) -> str:
        self.sends += 1
        send_id = hashlib.sha256(f"{self.name}/{self.sends}/{text}".encode()).hexdigest()[:32]
        self.machine.send(send_id, contents_of(text, needed, count), contents_needed=needed)
        return send_id

    def drain(self, now: Now) -> list[Transmit]:
        """What a driver does after each input."""
        out: list[Transmit] = []
        while True:
            while (event := self.machine.poll_event()) is not None:
                self.events.append(event)
                if isinstance(event, ContentReceived):
                    self._on_content(event, now)
                elif isinstance(event, SendReleased):
                    self.delivered.append(self.texts[event.sender_id, event.send_id])
            transmit = self.machine.poll_transmit(now)
            if transmit is None:
                break
            out.append(transmit)
        for name, value in self.machine.poll_persist().items():
            if value is None:
                self.records.pop(name, None)
            else:
                self.records[name] = value
        self.transmitted += out
        return out

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        place, text = event.content.split(b"|", 1)
        index, needed, count = map(int, place.split(b"/"))
        send_id = event.send_id or hashlib.sha256(text).hexdigest()
        key = (event.sender_id, send_id)
        if key in self.texts:
            self.machine.handle_content_surplus(event.message_id)
            return
        self.machine.handle_content_placed(event.message_id, send_id, index, count, needed, now)
        held = self.held.setdefault(key, set())
        held.add(index)
        if len(held) >= needed:
            self.texts[key] = text.decode()
            self.machine.handle_send_reconstructed(event.sender_id, send_id, count, now)

    def of(self, kind: type[SdsEvent]) -> list[SdsEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    def count(self, kind: TransmitKind) -> int:
        return sum(1 for transmit in self.transmitted if transmit.kind is kind)

    def restarted(self, now: Now, seed: int = 1) -> Party:
        """The same participant after a crash: only what was stored goes on, and what the application has."""
        other = type(self)(
            self.name,
            sds=self.sds,
            sync=self.sync,
            seed=seed,
            now=now,
            delivered_when=self.arguments["delivered_when"],  # type: ignore[arg-type]
            header_bytes_max=self.arguments["header_bytes_max"],  # type: ignore[arg-type]
            records=dict(self.records),
        )
        other.delivered = list(self.delivered)
        other.texts = dict(self.texts)
        other.held = {key: set(held) for key, held in self.held.items()}
        other.sends = self.sends
        return other


class Reader(Party):
    """Puts together as a channel does: each single content under an id that has another is a message of its own."""

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        single = event.content.startswith(b"0/1/1|")
        if single and is_rival(event.message_id):
            event = ContentReceived(event.message_id, event.sender_id, event.content, event.message_id, 0)
        super()._on_content(event, now)


@dataclass(slots=True)
class Exchange:
    """A broadcast medium between parties."""

    parties: list[Party]
    seed: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    delay_ms: tuple[int, int] = (5, 40)
    lose: Callable[[str, Transmit], bool] | None = None
    now_ms: int = 0
    bytes_sent: int = 0
    messages_sent: int = 0
    _count: int = 0
    _queue: list[tuple[int, int, str, bytes]] = field(default_factory=list)
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def party(self, name: str) -> Party:
        return next(party for party in self.parties if party.name == name)

    def replace_party(self, party: Party) -> None:
        self.parties = [party if known.name == party.name else known for known in self.parties]

    def flush(self, party: Party) -> None:
        """Hands what `party` has to transmit to the medium, and reports it propagated."""
        while transmits := party.drain(at(self.now_ms)):
            for transmit in transmits:
                self._broadcast(party, transmit)
            for transmit in transmits:
                party.machine.handle_transmitted(transmit.transmit_id, hint_of(transmit.payload), at(self.now_ms))

    def _broadcast(self, sender: Party, transmit: Transmit) -> None:
        self.bytes_sent += len(transmit.payload)
        self.messages_sent += 1
        for party in self.parties:
            if party is sender or (self.lose is not None and self.lose(party.name, transmit)):
                continue
            copies = 1 + (self._rng.random() < self.duplicate)
            for _ in range(copies):
                if self._rng.random() < self.loss:
                    continue
                self._count += 1
                due = self.now_ms + self._rng.randint(*self.delay_ms)
                heapq.heappush(self._queue, (due, self._count, party.name, transmit.payload))

    def run(self, until_ms: int) -> None:
        """Moves time on to `until_ms`, from one moment with work to the next."""
        for party in self.parties:
            self.flush(party)
        while True:
            moments = [self._queue[0][0]] if self._queue else []
            moments += [due for party in self.parties if (due := party.machine.poll_timeout()) is not None]
            moment = max(min(moments, default=until_ms + 1), self.now_ms)
            if moment > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms = moment
            while self._queue and self._queue[0][0] <= moment:
                _, _, name, payload = heapq.heappop(self._queue)
                party = self.party(name)
                party.machine.handle_message(payload, at(moment), hint_of(payload))
                self.flush(party)
            for party in self.parties:
                due = party.machine.poll_timeout()
                if due is not None and due <= moment:
                    party.machine.handle_timeout(at(moment))
                    self.flush(party)
                    again = party.machine.poll_timeout()
                    assert again is None or again > moment, "a timer that stays due would spin"


def message(
    number: int,
    *,
    sender: str = "mallory",
    content: bytes | None = b"0/1/1|text",
    message_id: str | None = None,
    history: list[HistoryEntry] | None = None,
    requests: list[HistoryEntry] | None = None,
    lamport: int | None = 1_760_000_000_000,
    bloom: bytes | None = None,
) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=f"{number:032x}.0" if message_id is None else message_id,
        channel_id="room",
        lamport_timestamp=lamport,
        causal_history=history or [],
        bloom_filter=bloom,
        repair_request=requests or [],
        content=content,
    ).encode()


def hear(party: Party, data: bytes, monotonic_ms: int = 0) -> None:
    party.machine.handle_message(data, at(monotonic_ms))
    party.drain(at(monotonic_ms))


def quiet_sync(**changes: object) -> SyncConfig:
    """No periodic syncs."""
    return replace(LOGOS.sync, sync_min_interval_ms=0, **changes)  # type: ignore[arg-type]


def parties(*names: str, **arguments: object) -> list[Party]:
    return [Party(name, **arguments) for name in names]  # type: ignore[arg-type]
