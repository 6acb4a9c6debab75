"""When periodic syncs and retransmissions are due (specification 004, Synchronisation messages, Message retries)."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from dataclasses import replace

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from sds_exchange import LOGOS, Exchange, Party, at

from shardwire._native import SdsMessage
from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, ReliableChannelOptions, SyncConfig
from shardwire.node import MessageEnvelope, NetworkConditions
from shardwire.sds import MessageChannel, TransmitKind

INTERVAL_MS = 30_000


class Always(random.Random):
    """Draws one share for ever."""

    def __init__(self, share: float) -> None:
        super().__init__(1)
        self.share = share

    def random(self) -> float:
        return self.share


def machine(share: float, interval_ms: int = INTERVAL_MS) -> MessageChannel:
    sync = replace(LOGOS.sync, sync_min_interval_ms=interval_ms, acknowledgement_sync=False)
    return MessageChannel("room", "alice", LOGOS.sds, sync, now=at(0), rng=Always(share))


def message(content: bytes | None) -> bytes:
    return SdsMessage(
        sender_id="bob", message_id=f"{1:032x}.0", channel_id="room", lamport_timestamp=1, content=content
    ).encode()


def sync_due_ms(alice: MessageChannel) -> int:
    due_ms = alice.inspect()["sync_due_ms"]
    assert due_ms is not None
    return due_ms


def of_system() -> MessageChannel:
    sync = replace(LOGOS.sync, sync_min_interval_ms=INTERVAL_MS, acknowledgement_sync=False)
    return MessageChannel("room", "alice", LOGOS.sds, sync, now=at(0), rng=random.SystemRandom())


def send_one(alice: MessageChannel, number: int) -> None:
    alice.send(f"{number:032x}", [b"content"], contents_needed=1)
    while alice.poll_transmit(at(0)) is not None:
        pass


@pytest.mark.parametrize(("bits", "share"), [(0, 0.0), (1 << 62, 0.25), ((1 << 64) - 1, 1.0)])
def test_the_system_is_asked_for_many_shares_at_once(monkeypatch: pytest.MonkeyPatch, bits: int, share: float) -> None:
    asked: list[int] = []

    def randbytes(size: int) -> bytes:
        asked.append(size)
        return bits.to_bytes(8, sys.byteorder) * (size // 8)

    monkeypatch.setattr(random.SystemRandom, "randbytes", staticmethod(randbytes))
    alice = of_system()
    assert sync_due_ms(alice) == round(share * INTERVAL_MS)
    for number in range(20):
        send_one(alice, number)
    assert asked == [64 * 8]


def test_no_share_of_the_system_is_drawn_twice() -> None:
    assert len({sync_due_ms(of_system()) for _ in range(50)}) > 40
    alice = of_system()
    due_ms = set()
    for number in range(100):
        send_one(alice, number)
        due_ms.add(sync_due_ms(alice))
    assert len(due_ms) > 80


def test_a_system_without_randomness_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def randbytes(size: int) -> bytes:
        raise OSError("no source of randomness")

    monkeypatch.setattr(random.SystemRandom, "randbytes", staticmethod(randbytes))
    assert sync_due_ms(of_system()) == INTERVAL_MS // 2


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 0.999])
def test_the_next_sync_is_drawn_anew(share: float) -> None:
    """delay = random() * sync_min_interval_ms * multiplier."""

    def drawn(multiplier: float) -> int:
        return round(share * INTERVAL_MS * multiplier)

    alice = machine(share)
    assert sync_due_ms(alice) == drawn(1.0)
    alice.send(f"{2:032x}", [b"content"], contents_needed=1)
    transmit = alice.poll_transmit(at(1_000), {TransmitKind.FIRST})
    assert transmit is not None
    assert sync_due_ms(alice) == 1_000 + drawn(1.0)
    now = at(max(1_000, 1_000 + drawn(1.0) - INTERVAL_MS // 2 - 1_000))
    rest_ms = sync_due_ms(alice) - now.monotonic_ms
    alice.handle_message(message(b"content"), now)
    sooner = rest_ms > INTERVAL_MS // 2
    assert sync_due_ms(alice) == now.monotonic_ms + (drawn(0.5) if sooner else rest_ms)
    moment = at(sync_due_ms(alice))
    sync = alice.poll_transmit(moment, {TransmitKind.SYNC})
    assert sync is not None
    alice.handle_transmit_failed(sync.transmit_id, moment)
    assert sync_due_ms(alice) == moment.monotonic_ms + INTERVAL_MS + drawn(2.0)


def test_a_sync_that_the_node_refuses_comes_after_twice_the_usual_wait() -> None:
    """Through a whole channel: a refusal of the node is a failure to send."""

    def waits_ms(fault: str | None) -> list[int]:
        left_ms: list[int] = []

        async def scenario(world: World) -> None:
            node = await world.node("alice")
            await world.node("bob")
            sync = SyncConfig(sync_min_interval_ms=INTERVAL_MS, acknowledgement_sync=False)
            config = ChannelConfig.logos(sds=replace(LOGOS.sds, max_retransmissions=0), sync=sync)
            alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config, rng=Always(0.5))

            def choose(envelope: MessageEnvelope) -> str | None:
                sent = SdsMessage.decode(envelope.payload)
                assert sent is not None
                if sent.kind != "sync":
                    return None
                left_ms.append(world.network.clock.epoch_ms())
                return fault

            node.send_fault = choose
            await alice.send(b"content")
            await asyncio.sleep(120)
            await close_channel(alice)

        run_world(scenario)
        return [after - before for before, after in itertools.pairwise(left_ms)]

    # The interval, and half of it once or twice.
    assert [round(wait_ms / 1_000) for wait_ms in waits_ms(None)][:2] == [45, 45]
    assert [round(wait_ms / 1_000) for wait_ms in waits_ms("busy")][:1] == [60]


def test_receipt_of_content_never_puts_off_a_sync_that_is_due_sooner() -> None:
    alice = machine(0.1)
    due_ms = sync_due_ms(alice)
    alice.handle_message(message(b"content"), at(due_ms - 1))
    assert sync_due_ms(alice) == due_ms


@pytest.mark.parametrize("sent", [False, True])
def test_two_syncs_keep_the_interval_and_the_random_part_comes_on_top(sent: bool) -> None:
    alice = machine(0.5)
    now = at(sync_due_ms(alice))
    if sent:
        # An empty sync is not sent.
        alice.send(f"{2:032x}", [b"content"], contents_needed=1)
        assert alice.poll_transmit(at(0), {TransmitKind.FIRST}) is not None
        assert alice.poll_transmit(now, {TransmitKind.SYNC}) is not None
    else:
        alice.handle_message(message(None), now)
    assert sync_due_ms(alice) == now.monotonic_ms + INTERVAL_MS + INTERVAL_MS // 2


def test_an_interval_of_zero_turns_periodic_syncs_off() -> None:
    alice = machine(0.5, interval_ms=0)
    alice.handle_message(message(b"content"), at(10))
    alice.handle_message(message(None), at(20))
    assert alice.inspect()["sync_due_ms"] is None


def test_an_idle_channel_goes_on_with_its_syncs() -> None:
    config = ChannelConfig.waku()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await alice.delivered(await alice.send(b"x"), timeout_ms=120_000)
        before = len(world.network.trace)
        await asyncio.sleep(900)
        # At most one an interval for the whole channel, and on the average one and a half intervals apart.
        assert 10 <= len(world.network.trace) - before <= 30

    run_world(scenario)


@pytest.mark.parametrize("seed", range(2))
def test_of_a_large_idle_group_few_speak_at_once(seed: int) -> None:
    """However long a message takes to reach and to be taken in by the others."""
    group = [Party(f"p{number}", seed=seed) for number in range(40)]
    exchange = Exchange(group, seed=seed, delay_ms=(300, 1_000))
    group[0].send("the last word", at(0))
    exchange.run(300_000)
    before = sum(len(party.transmitted) for party in group)
    exchange.run(300_000 + 30 * INTERVAL_MS)
    # One an interval at most, and hardly ever another beside it: with uniform delays there are about fifty.
    assert 20 <= sum(len(party.transmitted) for party in group) - before <= 40


def dispatch_times(channel: ReliableChannel) -> list[int]:
    times: list[int] = []
    channel.observe(lambda seen: times.append(seen.at_ms) if seen.stage == "dispatched" else None)
    return times


def test_retries_keep_equal_intervals_unless_back_off_is_asked_for() -> None:
    def intervals(back_off_percent: int) -> list[int]:
        found: list[int] = []

        async def scenario(world: World) -> None:
            config = ReliableChannelOptions(retry_interval_ms=2_000, max_retry_attempts=4).to_config()
            world.network.store_online = False
            alice = await world.join(
                "alice", replace(config, sds=replace(config.sds, back_off_percent=back_off_percent))
            )
            await world.node("silent")
            times = dispatch_times(alice)
            await alice.send(b"nobody answers")
            await asyncio.sleep(120)
            found.extend(after - before for before, after in itertools.pairwise(times))

        run_world(scenario)
        return found

    assert intervals(0) == [2_000] * 4
    assert intervals(50) == sorted(intervals(50))
    assert len(set(intervals(50))) == 4


def test_what_was_held_back_is_released_by_the_sweep_and_not_by_each_message() -> None:
    """Two lost messages come at their retries, half a second apart; what waited for them follows at the sweeps."""

    def release_times_ms(sweep_in_buf_interval_ms: int) -> list[int]:
        config = ChannelConfig.logos(
            sync=SyncConfig(sweep_in_buf_interval_ms=sweep_in_buf_interval_ms, query_on_connect=False)
        )
        config = replace(config, sds=replace(config.sds, acknowledgement_timeout_ms=2_000, enable_repair=False))
        released: dict[bytes, int] = {}

        async def scenario(world: World) -> None:
            world.network.store_online = False
            alice = await world.join("alice", config)
            bob = await world.join("bob", config)
            await alice.send(b"zeroth")
            await asyncio.sleep(20)
            bob.on_message_received(
                lambda event: released.setdefault(event.message, world.network.clock.epoch_ms()) and None
            )
            world.lose("alice", "bob", {0, 2})
            for message in (b"a", b"b", b"c", b"d"):
                await alice.send(message)
                await asyncio.sleep(0.25)
            await asyncio.sleep(20)
            assert world.messages("bob") == [b"zeroth", b"a", b"b", b"c", b"d"]

        run_world(scenario, NetworkConditions(delay_ms=(5, 5)))
        return [released[message] - released[b"a"] for message in (b"a", b"b", b"c", b"d")]

    at_once = release_times_ms(0)
    assert at_once[1] <= 10
    assert 400 <= at_once[2] <= at_once[3] <= 600
    # What arrives with its causes met needs no sweep; what waits in the buffer does.
    swept = release_times_ms(5_000)
    assert 400 <= swept[2] <= 600
    assert 4_900 <= swept[3] - swept[1] <= 5_100


def test_a_message_that_comes_again_makes_the_next_sync_come_soon() -> None:
    """Its sender heard no acknowledgement, and the schedule is the only way for one without acknowledgement syncs."""
    sync = SyncConfig(sync_min_interval_ms=30_000, acknowledgement_sync=False)
    exchange = Exchange([Party(name, sync=sync) for name in ("alice", "bob")])
    alice, bob = exchange.party("alice"), exchange.party("bob")
    alice.send("heard", at(0))
    (first,) = [transmit for transmit in alice.drain(at(0)) if transmit.kind is TransmitKind.FIRST]
    bob.machine.handle_message(first.payload, at(0))
    bob.drain(at(0))
    other = SdsMessage(sender_id="carol", message_id="sync-1", channel_id="room", lamport_timestamp=1)
    for now_ms in range(1_000, 20_000, 1_000):
        # Another's first sync puts ours off.
        bob.machine.handle_message(other.encode(), at(now_ms))
        bob.machine.handle_message(first.payload, at(now_ms))
        if bob.drain(at(now_ms)):
            break
        due_ms = bob.machine.inspect()["sync_due_ms"]
        assert due_ms is not None
        assert due_ms - now_ms <= 15_000
    assert now_ms <= 16_000
