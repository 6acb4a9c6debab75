"""What one channel may send: under its own limit, and under that of its node, which it shares with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwire._native import Allowance
from shardwire.channel.limits.limit import Limit, Member
from shardwire.channel.limits.node_limits import NodeMembership
from shardwire.channel.storing.records import RATE, Records
from shardwire.sds import TransmitKind


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The rate limit as it stands.

    Attributes:
        enabled: Whether it is enforced; the other fields are 0 where not.
        used: Messages counted in this epoch.
        total: The quota.
        resets_at_ms: Unix time in ms at which the next epoch begins.
        queued: Messages that wait to be dispatched for the first time.
        queued_bytes: Their bytes.
    """

    enabled: bool
    used: int
    total: int
    resets_at_ms: int
    queued: int
    queued_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A place of each limit, in the epoch in which it was counted there; None where the kind takes none."""

    epochs: tuple[int | None, ...]


class Quota:
    """The limits of a channel, the tighter of which holds.

    Args:
        own: Its own limit, which is stored with its state, and its membership in it; None where it has none.
        shared: Its part in that of its node; None where the node has none.
    """

    def __init__(self, own: tuple[Limit, Member] | None = None, shared: NodeMembership | None = None) -> None:
        self._own = own
        self._shared = shared
        parts = [] if own is None else [own]
        if shared is not None:
            parts.append((shared.limit, shared.member))
        self._parts = tuple(parts)

    @property
    def enabled(self) -> bool:
        return bool(self._parts)

    def allowances(self, epoch_ms: int) -> list[Allowance]:
        """What each limit lets leave now; what none of them holds back may be prepared."""
        return [limit.allowance(member, epoch_ms) for limit, member in self._parts]

    def allows(self, kind: TransmitKind, epoch_ms: int) -> bool:
        """Whether one more of a kind may be prepared, where nothing else is."""
        return all(allowance.allows(kind) for allowance in self.allowances(epoch_ms))

    def pass_over(self, epoch_ms: int) -> None:
        """Messages of this channel wait for places: the limits that have none keep one for it in the next epoch."""
        for limit, member in self._parts:
            if not limit.allowance(member, epoch_ms).allows(TransmitKind.FIRST):
                limit.pass_over(member, epoch_ms)

    def reopens_at_ms(self, kind: TransmitKind, allowances: Sequence[Allowance], epoch_ms: int) -> int:
        """Unix time at which more of a kind may leave than `allowances` of this time let; `epoch_ms` where more may
        now."""
        holding = [part for part, allowance in zip(self._parts, allowances, strict=True) if not allowance.allows(kind)]
        return max((limit.reopens_at_ms(member, kind, epoch_ms) for limit, member in holding), default=epoch_ms)

    def behind_ms(self, epoch_ms: int) -> int:
        """How far the clock stands before an epoch that was counted already; 0 where it does not."""
        return max((limit.behind_ms(epoch_ms) for limit, _ in self._parts), default=0)

    async def take(self, kinds: Sequence[TransmitKind]) -> list[Place | None]:
        """Counts a place for each of these; durable when it returns. None for those that may not leave now."""
        places: list[list[int | None] | None] = [[] for _ in kinds]
        try:
            await self._fill(places, kinds)
        except BaseException:
            # Cancelled while one limit counts: what another one gave is left to others.
            for place in places:
                if place is not None:
                    self.give_back(Place(tuple(place)))
            raise
        return [None if place is None else Place(tuple(place)) for place in places]

    async def _fill(self, places: list[list[int | None] | None], kinds: Sequence[TransmitKind]) -> None:
        for limit, member in self._parts:
            asked = [
                position
                for position, kind in enumerate(kinds)
                if places[position] is not None and kind not in limit.free_kinds
            ]
            answers, epoch = await limit.take(member, [kinds[position] for position in asked]) if asked else ([], 0)
            granted = dict(zip(asked, answers, strict=True))
            for position, place in enumerate(places):
                if place is not None and granted.get(position, True):
                    place.append(epoch if position in granted else None)
                elif place is not None:
                    self.give_back(Place(tuple(place)))
                    places[position] = None

    def is_current(self, place: Place) -> bool:
        """Whether a message may leave in this place now: not when an epoch in which it was counted is over."""
        return all(
            epoch is None or limit.is_open(epoch, member.epoch_ms())
            for (limit, member), epoch in zip(self._parts, place.epochs, strict=True)
        )

    def give_back(self, place: Place) -> None:
        """A place whose message did not leave after all."""
        for (limit, _), epoch in zip(self._parts, place.epochs, strict=False):
            if epoch is not None:
                limit.give_back(1, epoch)

    def poll_persist(self) -> Records:
        """The channel's own count, where it changed since the last call."""
        record = None if self._own is None else self._own[0].poll_record()
        return {} if record is None else {(RATE, b""): record.encode()}

    async def leave(self) -> None:
        """The channel is closed; what it used of its node's limit stays counted."""
        if self._own is not None:
            limit, member = self._own
            limit.leave(member)
        if self._shared is not None:
            await self._shared.leave()

    def status(self, epoch_ms: int, queued: int = 0, queued_bytes: int = 0) -> RateLimitStatus:
        """How the limit with the least left stands."""
        standings = [limit.standing(epoch_ms) for limit, _ in self._parts]
        if not standings:
            return RateLimitStatus(False, 0, 0, 0, queued, queued_bytes)
        used, total, resets_at_ms = min(standings, key=lambda standing: standing[1] - standing[0])
        return RateLimitStatus(True, used, total, resets_at_ms, queued, queued_bytes)
