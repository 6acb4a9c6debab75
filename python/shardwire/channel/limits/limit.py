"""One limit and the channels that share it: no message leaves before its place is durable."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shardwire._native import Allowance, SharedQuota
from shardwire.channel.hooks import is_ours
from shardwire.channel.storing.records import RateRecord
from shardwire.config import RateLimitConfig
from shardwire.errors import ShardwireError
from shardwire.sds import TransmitKind

logger = logging.getLogger(__name__)

StoreCount = Callable[[Callable[[], RateRecord]], Awaitable[None]]


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One channel that shares a limit.

    Attributes:
        number: What the core calls it.
        in_flight: How many counted messages its node holds of which nobody knows when they leave.
        epoch_ms: Its clock.
    """

    number: int
    in_flight: Callable[[], int]
    epoch_ms: Callable[[], int]


class Limit:
    """Serves the requests of its members; the core counts, and says who gets the next place.

    Args:
        config: The limit, which is enabled.
        store_count: Makes the count durable as it stands when that begins.
        stored: The count as it was stored last.

    Attributes:
        free_kinds: Kinds that take no place.
    """

    def __init__(self, config: RateLimitConfig, store_count: StoreCount, stored: RateRecord | None = None) -> None:
        quota = config.messages_per_epoch or 0
        self._shared = SharedQuota(
            epoch_size_ms=config.epoch_size_ms,
            quota=quota,
            counts=config.counts,
            ack_reserve=_part(config.ack_reserve, quota),
            ephemeral_max=_part(config.ephemeral_drop_threshold, quota),
        )
        if stored is not None:
            self.add(stored)
        self.free_kinds = self._shared.free_kinds
        self._store_count = store_count
        self._members: dict[int, Member] = {}
        # Those who wait, by the core's numbers of their requests.
        self._answers: dict[int, asyncio.Future[tuple[list[bool], int]]] = {}
        self._serving: asyncio.Task[None] | None = None

    # --- the count ---

    def add(self, stored: RateRecord) -> None:
        """Takes over a count that was stored."""
        self._shared.add(stored.epoch, stored.epoch_size_ms, stored.used)

    def close(self, epoch_ms: int) -> None:
        """An earlier life counted elsewhere: unless its count was taken over, nothing more of this epoch is spent."""
        self._shared.close(epoch_ms, self._in_flight(epoch_ms))

    def record(self) -> RateRecord:
        """The count as it stands."""
        return RateRecord(*self._shared.record())

    def poll_record(self) -> RateRecord | None:
        """The count, where it changed since the last call."""
        record = self._shared.poll_record()
        return None if record is None else RateRecord(*record)

    # --- members ---

    def join(self, in_flight: Callable[[], int], epoch_ms: Callable[[], int]) -> Member:
        now_ms = epoch_ms()
        member = Member(self._shared.join(now_ms, self._in_flight(now_ms)), in_flight, epoch_ms)
        self._members[member.number] = member
        return member

    def leave(self, member: Member) -> None:
        del self._members[member.number]
        self._shared.leave(member.number)
        self._answer()

    def is_over(self, epoch_ms: int) -> bool:
        """Whether nobody shares it, and the epoch in which somebody did is over."""
        return not self._members and epoch_ms >= self._shared.resets_at_ms

    def _in_flight(self, epoch_ms: int) -> int:
        """What the nodes of all members hold, where an epoch is entered in which that counts."""
        if not self._shared.enters(epoch_ms):
            return 0
        return sum(member.in_flight() for member in self._members.values())

    # --- what may leave ---

    def allowance(self, member: Member, epoch_ms: int) -> Allowance:
        """What `member` may prepare now."""
        return self._shared.allowance(member.number, epoch_ms, self._in_flight(epoch_ms))

    def pass_over(self, member: Member, epoch_ms: int) -> None:
        """Messages of `member` wait, and none may be prepared: a place of the next epoch is kept for one."""
        self._shared.pass_over(member.number, epoch_ms, self._in_flight(epoch_ms))

    def reopens_at_ms(self, member: Member, kind: TransmitKind, epoch_ms: int) -> int:
        """Unix time at which more of a kind may leave, where none may now."""
        return self._shared.reopens_at_ms(member.number, kind, epoch_ms)

    def behind_ms(self, epoch_ms: int) -> int:
        """How far the clock stands before an epoch that was counted already; 0 where it does not."""
        return self._shared.behind_ms(epoch_ms, self._in_flight(epoch_ms))

    def standing(self, epoch_ms: int) -> tuple[int, int, int]:
        """Places that are taken, the quota, and the Unix time at which the next epoch begins."""
        return self._shared.standing(epoch_ms, self._in_flight(epoch_ms))

    def is_open(self, epoch: int, epoch_ms: int) -> bool:
        """Whether `epoch`, in which a place was counted, is that of this time."""
        return self._shared.is_open(epoch, epoch_ms, self._in_flight(epoch_ms))

    def give_back(self, count: int, epoch: int) -> None:
        """Places whose messages never left; what is stored stays until the next count."""
        self._shared.give_back(count, epoch)

    # --- counting ---

    async def take(self, member: Member, kinds: Sequence[TransmitKind]) -> tuple[list[bool], int]:
        """Counts a place for each of these that may leave now; durable when it returns.

        Args:
            member: Who asks.
            kinds: Such as take a place.

        Returns:
            Which of them got one, and the epoch: places are void once that is over.
        """
        answer: asyncio.Future[tuple[list[bool], int]] = asyncio.get_running_loop().create_future()
        self._answers[self._shared.request(member.number, kinds)] = answer
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="shardwire rate limit")
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                # It was answered in the same moment.
                granted, epoch = answer.result()
                self.give_back(sum(granted), epoch)
            raise

    async def _serve(self) -> None:
        try:
            # Whoever else asks in this moment has his share of it.
            await asyncio.sleep(0)
            while asking := self._shared.asking():
                clocks = [self._members[number].epoch_ms for number in asking]
                await self._serve_round(max(clocks, key=lambda clock: clock()))
        finally:
            self._serving = None
            # Some wait where this task was cancelled.
            self._shared.refuse_all()
            self._answer()

    async def _serve_round(self, clock: Callable[[], int]) -> None:
        """The first request of each member, in one commit."""
        epoch_ms = clock()
        if self._shared.count_round(epoch_ms, self._in_flight(epoch_ms)):
            await self._store(clock)
        self._answer()

    async def _store(self, clock: Callable[[], int]) -> None:
        try:
            await self._store_count(self.record)
        except BaseException as error:
            if is_ours(error):
                raise
            if self._shared.handle_store_failed(clock()):
                text = str(error) if isinstance(error, ShardwireError) else type(error).__name__
                logger.error("the count of the rate limit cannot be stored, nothing that counts leaves: %s", text)
        else:
            self._shared.handle_stored()

    def _answer(self) -> None:
        for number, granted, epoch in self._shared.poll_answers():
            answer = self._answers.pop(number)
            if answer.done():
                # Whoever asked was cancelled.
                self.give_back(sum(granted), epoch)
            else:
                answer.set_result((granted, epoch))


def _part(share: float, quota: int) -> int:
    """That share of the quota, rounded up: of the share as it is written, which a float only comes near to."""
    return math.ceil(Fraction(repr(float(share))) * quota)
