"""Places of one limit: who gets them when several ask at once, and what becomes of them where they were not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from channel_world import World, run_world

from shardwire.channel.limits.limit import Limit, Member
from shardwire.channel.limits.quota import Quota
from shardwire.channel.storing.records import RateRecord
from shardwire.config import RateLimitConfig
from shardwire.errors import PersistenceError
from shardwire.node import NodeConfig, run_virtual, running_clock
from shardwire.sds import TransmitKind

EPOCH_MS = 60_000
# No pause after a failure takes longer.
PAUSE_MS_MAX = 10_000


class Store:
    """Notes every count; takes its time, or fails."""

    def __init__(self) -> None:
        self.counts: list[RateRecord] = []
        self.takes_ms = 0
        self.fails = False

    async def __call__(self, count: Callable[[], RateRecord]) -> None:
        counted = count()
        await asyncio.sleep(self.takes_ms / 1000)
        if self.fails:
            raise PersistenceError("disk full")
        self.counts.append(counted)


def make(quota: int, members: int, reserve: float = 0.0) -> tuple[Limit, Store, list[Member]]:
    store = Store()
    config = RateLimitConfig(
        enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=quota, counts="segment", ack_reserve=reserve
    )
    limit = Limit(config, store)
    clock = running_clock()
    return limit, store, [limit.join(lambda: 0, clock.epoch_ms) for _ in range(members)]


async def take(limit: Limit, member: Member, count: int, kind: TransmitKind = TransmitKind.FIRST) -> int:
    granted, _ = await limit.take(member, [kind] * count)
    return sum(granted)


@pytest.mark.parametrize(
    ("quota", "members", "wanted", "granted"),
    [(2, 3, 2, [1, 1, 0]), (20, 3, 20, [6, 6, 6]), (9, 3, 20, [3, 3, 3]), (7, 2, 1, [1, 1]), (5, 1, 9, [5])],
)
def test_who_asks_in_one_moment_gets_the_same(quota: int, members: int, wanted: int, granted: list[int]) -> None:
    async def main() -> None:
        limit, store, all_members = make(quota, members)
        answers = await asyncio.gather(*(take(limit, member, wanted) for member in all_members))
        if quota == 20:
            # Two places are nobody's share: whoever asks first of them.
            assert sum(answers) == 20
            assert max(answers) - min(answers) <= 1
        else:
            assert answers == granted
        # One commit for all of them.
        assert [count.used for count in store.counts] == [sum(answers)]

    run_virtual(main(), limit_ms=EPOCH_MS)


def test_places_that_could_not_be_stored_are_nobodys_and_none_is_given_for_a_while() -> None:
    async def main() -> None:
        limit, store, (one, other) = make(10, 2)
        store.fails = True
        assert await asyncio.gather(take(limit, one, 3), take(limit, other, 3)) == [0, 0]
        assert limit.record().used == 0
        now_ms = running_clock().epoch_ms()
        assert not any(limit.allowance(one, now_ms).allows(kind) for kind in TransmitKind)
        assert now_ms < limit.reopens_at_ms(one, TransmitKind.FIRST, now_ms) <= now_ms + PAUSE_MS_MAX
        store.fails = False
        assert await take(limit, one, 1) == 0
        await asyncio.sleep(PAUSE_MS_MAX / 1000)
        assert await take(limit, one, 1) == 1

    run_virtual(main(), limit_ms=EPOCH_MS)


def test_who_is_cancelled_or_leaves_while_it_is_stored_gives_his_places_back() -> None:
    async def main() -> None:
        limit, store, (one, other, third) = make(12, 3)
        store.takes_ms = 100
        cancelled = asyncio.create_task(take(limit, one, 3))
        left = asyncio.create_task(take(limit, other, 3))
        stays = asyncio.create_task(take(limit, third, 3))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        limit.leave(other)
        assert await stays == 3
        assert await left == 0
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert limit.record().used == 3
        # What is stored errs safely.
        assert store.counts[-1].used == 9

    run_virtual(main(), limit_ms=EPOCH_MS)


def test_who_is_cancelled_in_the_moment_he_is_answered_gives_his_places_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        limit, _, (one,) = make(12, 1)
        taking = asyncio.create_task(take(limit, one, 3))
        answer = limit._answer

        def answer_and_cancel() -> None:
            answer()
            taking.cancel()

        monkeypatch.setattr(limit, "_answer", answer_and_cancel)
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert limit.record().used == 0

    run_virtual(main(), limit_ms=EPOCH_MS)


def test_who_is_cancelled_while_one_limit_counts_gives_back_the_places_of_the_other() -> None:
    async def main() -> None:
        own, _, (alone,) = make(12, 1)
        shared, store, (one,) = make(12, 1)
        membership: Any = SimpleNamespace(limit=shared, member=one)
        quota = Quota((own, alone), membership)
        store.takes_ms = 100
        taking = asyncio.create_task(quota.take([TransmitKind.FIRST] * 3))
        await asyncio.sleep(0.05)
        assert own.record().used == 3
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        await asyncio.sleep(0.1)
        assert [own.record().used, shared.record().used] == [0, 0]
        assert len(await quota.take([TransmitKind.FIRST] * 12)) == 12

    run_virtual(main(), limit_ms=EPOCH_MS)


def test_where_the_counting_itself_is_cancelled_nobody_waits_for_ever() -> None:
    async def main() -> None:
        limit, store, (one, other) = make(12, 2)
        store.takes_ms = 1_000
        first = asyncio.create_task(take(limit, one, 3))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(take(limit, other, 3))
        await asyncio.sleep(0.1)
        (serving,) = [task for task in asyncio.all_tasks() if task.get_name() == "shardwire rate limit"]
        serving.cancel()
        assert [await first, await second] == [0, 0]
        assert limit.record().used == 0
        store.takes_ms = 0
        assert await take(limit, one, 2) == 2

    run_virtual(main(), limit_ms=EPOCH_MS)


def test_places_of_an_epoch_that_ended_meanwhile_are_void() -> None:
    async def main() -> None:
        limit, store, (one,) = make(5, 1)
        store.takes_ms = EPOCH_MS
        clock = running_clock()
        granted, epoch = await limit.take(one, [TransmitKind.FIRST] * 5)
        assert sum(granted) == 5
        assert not limit.is_open(epoch, clock.epoch_ms())
        # They are not taken for places of the next.
        limit.give_back(5, epoch)
        store.takes_ms = 0
        assert await take(limit, one, 9) == 5

    run_virtual(main(), limit_ms=10 * EPOCH_MS)


def test_what_is_kept_for_others_shrinks_with_the_epoch_and_acknowledgements_take_it_all_the_same() -> None:
    async def main() -> None:
        limit, _, (one, other) = make(20, 2, reserve=0.1)
        clock = running_clock()
        await asyncio.sleep((EPOCH_MS - clock.epoch_ms() % EPOCH_MS) / 1000)
        limit.is_open(0, clock.epoch_ms())
        assert await take(limit, other, 1) == 1
        await asyncio.sleep((EPOCH_MS - clock.epoch_ms() % EPOCH_MS) / 1000)
        got = []
        for _ in range(4):
            got.append(await take(limit, one, 20))
            assert limit.reopens_at_ms(one, TransmitKind.FIRST, clock.epoch_ms()) <= clock.epoch_ms() + EPOCH_MS // 60
            await asyncio.sleep(EPOCH_MS / 4 / 1000 - 0.1)
        assert got[0] == 9
        assert all(2 <= more <= 4 for more in got[1:])
        # The last place is one of a message until the epoch is over.
        assert await take(limit, other, 9, TransmitKind.SYNC) == 20 - sum(got) - 1

    run_virtual(main(), limit_ms=10 * EPOCH_MS)


def test_a_channel_that_joins_while_another_one_is_stopped_shares_the_limit_of_their_node() -> None:
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=4, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        red = await world.join("red", node="shared", node_config=NodeConfig(rate_limit_config=limit), channel_id="red")
        await red.stop()
        await asyncio.sleep(150)
        green = await world.join("green", node="shared", channel_id="green")
        await red.start()
        for number in range(6):
            await red.send(b"%d" % number)
        await asyncio.sleep(1)
        assert 0 < red.rate_limit_status().used == green.rate_limit_status().used

    run_world(scenario)


@pytest.mark.parametrize("own_epochs", [10, 1])
def test_of_two_limits_the_one_that_is_spent_holds_until_its_own_epoch_ends(own_epochs: int) -> None:
    async def main() -> None:
        clock = running_clock()
        limits = []
        for epoch_size_ms, places in ((own_epochs * EPOCH_MS, 1), (11 * EPOCH_MS // own_epochs, 5)):
            config = RateLimitConfig(
                enabled=True, epoch_size_ms=epoch_size_ms, messages_per_epoch=places, counts="segment", ack_reserve=0.0
            )
            limit = Limit(config, Store())
            limits.append((limit, limit.join(lambda: 0, clock.epoch_ms)))
        own, (limit, member) = limits
        shared: Any = SimpleNamespace(limit=limit, member=member)
        quota = Quota(own, shared)
        assert quota.allows(TransmitKind.FIRST, clock.epoch_ms())
        now_ms = clock.epoch_ms()
        assert quota.reopens_at_ms(TransmitKind.FIRST, quota.allowances(now_ms), now_ms) == now_ms
        assert [place is None for place in await quota.take([TransmitKind.FIRST] * 2)] == [False, True]
        assert not quota.allows(TransmitKind.FIRST, clock.epoch_ms())
        # What the other limit had given for the second is left to others.
        assert limit.record().used == 1
        now_ms = clock.epoch_ms()
        _, _, ends_at_ms = own[0].standing(now_ms)
        assert quota.reopens_at_ms(TransmitKind.FIRST, quota.allowances(now_ms), now_ms) == ends_at_ms
        status = quota.status(now_ms)
        assert (status.used, status.total) == (1, 1)

    run_virtual(main(), limit_ms=EPOCH_MS)
