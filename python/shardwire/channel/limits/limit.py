"""One quota and the channels that share it: each gets its share, and no message leaves before its place is durable."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from shardwire._native import Allowance
from shardwire.channel.hooks import is_ours
from shardwire.channel.limits.rate_limit import RateLimiter
from shardwire.channel.storing.records import RateRecord
from shardwire.config import RateLimitConfig
from shardwire.errors import ShardwireError
from shardwire.sds.outputs import TransmitKind

logger = logging.getLogger(__name__)

# After a count that could not be stored nothing is counted for this long, doubled with each failure in a row.
PAUSE_MS_MIN = 200
PAUSE_MS_MAX = 10_000
# While others may still claim their shares, how often it is looked what they have left over: so many times an epoch.
LOOKS_PER_EPOCH = 64

StoreCount = Callable[[Callable[[], RateRecord]], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Member:
    """One channel that shares a limit.

    Attributes:
        in_flight: How many counted messages its node holds of which nobody knows when they leave.
        epoch_ms: Its clock.
        granted: Places it got in this epoch.
        is_active: Whether it asked for any in this epoch or the last, acknowledgements aside, or joined in it.
        asked: Whether it asked for any in this epoch, or joined in it.
        requests: What waits for places.
    """

    in_flight: Callable[[], int]
    epoch_ms: Callable[[], int]
    granted: int = 0
    is_active: bool = True
    asked: bool = True
    requests: deque[_Request] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Request:
    """Kinds that wait for places.

    Attributes:
        kinds: They.
        answer: Told which of them got one, and the epoch of those.
        granted: The same while it is being served.
        counted: How many of those count.
        epoch: The epoch in which they do.
    """

    kinds: Sequence[TransmitKind]
    answer: asyncio.Future[tuple[list[bool], int]]
    granted: list[bool] = field(default_factory=list)
    counted: int = 0
    epoch: int = 0


class Limit:
    """Counts for all of its members.

    A channel that was active lately may count on an equal share of each epoch: the others leave that to it, the less
    the later in the epoch, so that what one does not use is not lost to them.

    Args:
        config: The limit.
        store_count: Makes the count durable as it stands when that begins.
        stored: The count as it was stored last.

    Attributes:
        limiter: The count.
    """

    def __init__(self, config: RateLimitConfig, store_count: StoreCount, stored: RateRecord | None = None) -> None:
        self.limiter = RateLimiter(config, stored)
        self.limiter.in_flight = lambda: sum(member.in_flight() for member in self._members)
        self._epoch_size_ms = config.epoch_size_ms
        self._store_count = store_count
        self._members: list[Member] = []
        # The epoch that `granted` and `asked` of the members are about.
        self._epoch = 0
        self._serving: asyncio.Task[None] | None = None
        self._failures_in_row = 0
        self._paused_until_ms = 0

    # --- members ---

    def join(self, in_flight: Callable[[], int], epoch_ms: Callable[[], int]) -> Member:
        self._advance(epoch_ms())
        member = Member(in_flight, epoch_ms)
        self._members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        while member.requests:
            self._refuse(member.requests.popleft())

    def __len__(self) -> int:
        return len(self._members)

    # --- what may leave ---

    def allowance(self, member: Member, epoch_ms: int) -> Allowance:
        """What `member` may prepare now."""
        self._advance(epoch_ms)
        is_paused = self._is_paused(epoch_ms)
        return self.limiter.allowance(epoch_ms, self._left_to_others(member, epoch_ms), is_paused=is_paused)

    def reopens_at_ms(self, member: Member, epoch_ms: int) -> int:
        """Unix time at which more may leave, where nothing may now."""
        reopens_at_ms = self.limiter.reopens_at_ms(epoch_ms)
        if self._is_paused(epoch_ms):
            return min(self._paused_until_ms, reopens_at_ms)
        if self._left_to_others(member, epoch_ms):
            return min(epoch_ms + max(1, self._epoch_size_ms // LOOKS_PER_EPOCH), reopens_at_ms)
        return reopens_at_ms

    async def take(self, member: Member, kinds: Sequence[TransmitKind]) -> tuple[list[bool], int]:
        """Counts a place for each of these that may leave now; durable when it returns.

        Returns:
            Which of them got one, and the epoch: places are void once that is over.
        """
        request = _Request(kinds, asyncio.get_running_loop().create_future())
        if any(kind is not TransmitKind.SYNC for kind in kinds):
            member.asked = member.is_active = True
        member.requests.append(request)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="shardwire rate limit")
        try:
            return await request.answer
        except asyncio.CancelledError:
            if request.answer.done() and not request.answer.cancelled():
                self._refuse(request)
            raise

    def is_open(self, epoch: int, epoch_ms: int) -> bool:
        """Whether `epoch`, in which a place was counted, is that of this time."""
        self._advance(epoch_ms)
        return epoch == self.limiter.epoch_of(epoch_ms)

    def give_back(self, count: int, epoch: int) -> None:
        """Places whose messages never left; what is stored stays until the next count."""
        if epoch == self.limiter.epoch:
            self.limiter.give_back(count)

    # --- counting ---

    async def _serve(self) -> None:
        try:
            # Whoever else asks in this moment has his share of it.
            await asyncio.sleep(0)
            while any(member.requests for member in self._members):
                await self._serve_round()
        finally:
            self._serving = None
            for member in self._members:
                # There are some where this task was cancelled.
                while member.requests:
                    self._refuse(member.requests.popleft())

    async def _serve_round(self) -> None:
        """The first request of each member, in one commit."""
        round_ = [(member, member.requests.popleft()) for member in self._members if member.requests]
        epoch_ms = max((member.epoch_ms for member, _ in round_), key=lambda clock: clock())
        try:
            stored = not self._count(round_, epoch_ms()) or await self._store(epoch_ms)
        except BaseException:
            for _, request in round_:
                self._refuse(request)
            raise
        for member, request in round_:
            if not stored or member not in self._members or request.answer.done():
                self._refuse(request)
            else:
                request.answer.set_result((request.granted, request.epoch))

    def _count(self, round_: Sequence[tuple[Member, _Request]], epoch_ms: int) -> int:
        """Grants places, the next always to whoever got fewest in this epoch; how many were counted."""
        self._advance(epoch_ms)
        for _, request in round_:
            request.granted, request.counted, request.epoch = [], 0, self.limiter.epoch_of(epoch_ms)
        waiting = list(round_)
        while waiting:
            member, request = min(waiting, key=lambda entry: entry[0].granted)
            kind = request.kinds[len(request.granted)]
            granted = self.allowance(member, epoch_ms).allows(kind)
            request.granted.append(granted)
            if granted and self.limiter.counts(kind):
                self.limiter.count(kind, epoch_ms)
                member.granted += 1
                request.counted += 1
            if len(request.granted) == len(request.kinds):
                waiting.remove((member, request))
        return sum(request.counted for _, request in round_)

    async def _store(self, epoch_ms: Callable[[], int]) -> bool:
        try:
            await self._store_count(self.limiter.record)
        except BaseException as error:
            if is_ours(error):
                raise
            if self._members:
                self._on_store_failed(error, epoch_ms())
            return False
        self._failures_in_row = 0
        return True

    def _refuse(self, request: _Request) -> None:
        self.give_back(request.counted, request.epoch)
        request.counted = 0
        if not request.answer.done():
            request.answer.set_result(([False] * len(request.kinds), self.limiter.epoch))

    def _is_paused(self, epoch_ms: int) -> bool:
        # A clock that was set back does not make it longer.
        return 0 < self._paused_until_ms - epoch_ms <= PAUSE_MS_MAX

    def _on_store_failed(self, error: BaseException, epoch_ms: int) -> None:
        pause_ms = min(PAUSE_MS_MAX, PAUSE_MS_MIN << min(self._failures_in_row, 10))
        self._paused_until_ms = epoch_ms + pause_ms
        if not self._failures_in_row:
            text = str(error) if isinstance(error, ShardwireError) else type(error).__name__
            logger.error("the count of the rate limit cannot be stored, nothing that counts leaves: %s", text)
        self._failures_in_row += 1

    # --- shares ---

    def _advance(self, epoch_ms: int) -> None:
        self.limiter.advance(epoch_ms)
        epoch = self.limiter.epoch
        if epoch == self._epoch:
            return
        consecutive = epoch == self._epoch + 1
        self._epoch = epoch
        for member in self._members:
            member.is_active = consecutive and member.asked
            member.asked = bool(member.requests)
            member.granted = 0

    def _left_to_others(self, member: Member, epoch_ms: int) -> int:
        """Places that the other active members have not claimed of their shares yet."""
        if len(self._members) < 2:
            return 0
        others = [other for other in self._members if other is not member and other.is_active]
        share = self.limiter.open_quota // (len(others) + 1)
        unclaimed = sum(max(0, share - other.granted) for other in others)
        left_ms = max(0, min(self.limiter.resets_at_ms - epoch_ms, self._epoch_size_ms))
        # Rounded up: the last place goes with the end of the epoch.
        return -(-unclaimed * left_ms // self._epoch_size_ms)
