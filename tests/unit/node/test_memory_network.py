"""The network between memory nodes: who hears what, when, and what the trace says of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest

from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    MemoryNetwork,
    MemoryNode,
    MessageEnvelope,
    MessageReceived,
    NetworkConditions,
    NodeConfig,
    NodeEvent,
    StoreQuery,
    TraceRecord,
    run_virtual,
    running_clock,
)

TOPIC = "/test/1/room/proto"


class Listener:
    """Collects the events of one node with their times."""

    def __init__(self, node: MemoryNode) -> None:
        self.events: list[tuple[int, NodeEvent]] = []
        self._stream = node.events()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        clock = running_clock()
        async for event in self._stream:
            self.events.append((clock.monotonic_ms(), event))

    @property
    def payloads(self) -> list[bytes]:
        return [event.envelope.payload for _, event in self.events if isinstance(event, MessageReceived)]


async def join(network: MemoryNetwork, *names: str) -> list[MemoryNode]:
    nodes = [network.create_node(name) for name in names]
    for node in nodes:
        await node.start()
        await node.subscribe([TOPIC])
    return nodes


def envelope(number: int, size: int = 8) -> MessageEnvelope:
    return MessageEnvelope(TOPIC, number.to_bytes(size, "big"))


def outcomes(network: MemoryNetwork, receiver: str) -> list[str]:
    return [outcome.outcome for record in network.trace for outcome in record.outcomes if outcome.receiver == receiver]


def test_without_faults_everyone_hears_everything_once_in_order() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        alice, bob, carol = await join(network, "alice", "bob", "carol")
        listeners = [Listener(node) for node in (alice, bob, carol)]
        for number in range(100):
            await alice.send(envelope(number))
        await asyncio.sleep(1)
        expected = [number.to_bytes(8, "big") for number in range(100)]
        for listener in listeners:
            assert listener.payloads == expected
        assert Counter(outcomes(network, "bob")) == {"delivered": 100}
        assert outcomes(network, "alice") == []

    run_virtual(main())


def test_loss_and_duplication_are_independent_at_each_receiver_and_close_to_their_shares() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(loss=0.3, duplicate=0.2), seed=1)
        alice, bob, carol = await join(network, "alice", "bob", "carol")
        listeners = {node.name: Listener(node) for node in (bob, carol)}
        count = 4_000
        for number in range(count):
            await alice.send(envelope(number))
        await asyncio.sleep(1)
        lost = {}
        for name, listener in listeners.items():
            heard = Counter(listener.payloads)
            fates = outcomes(network, name)
            for number, fate in enumerate(fates):
                expected = {"lost": 0, "delivered": 1, "duplicated": 2}[fate]
                assert heard[number.to_bytes(8, "big")] == expected
            assert 0.27 < fates.count("lost") / count < 0.33
            assert 0.17 < fates.count("duplicated") / (count - fates.count("lost")) < 0.23
            lost[name] = {number for number, fate in enumerate(fates) if fate == "lost"}
        both = len(lost["bob"] & lost["carol"]) / count
        assert 0.07 < both < 0.11

    run_virtual(main())


def test_delays_stay_in_their_range_and_keep_the_order_without_reorder() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(5, 40)), seed=2)
        alice, bob = await join(network, "alice", "bob")
        listener = Listener(bob)
        for number in range(200):
            await alice.send(envelope(number))
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert listener.payloads == [number.to_bytes(8, "big") for number in range(200)]
        delays = [record.outcomes[0].delays_ms[0] for record in network.trace]
        assert min(delays) >= 5
        assert max(delays) <= 40
        assert len(set(delays)) > 20

    run_virtual(main())


def test_reorder_lets_later_messages_overtake() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(1, 1), reorder=0.2, reorder_delay_ms=50), seed=3)
        alice, bob = await join(network, "alice", "bob")
        listener = Listener(bob)
        for number in range(500):
            await alice.send(envelope(number))
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        expected = [number.to_bytes(8, "big") for number in range(500)]
        assert listener.payloads != expected
        assert sorted(listener.payloads) == expected
        held_back = [record for record in network.trace if record.outcomes[0].delays_ms[0] > 1]
        assert 60 < len(held_back) < 140

    run_virtual(main())


def test_arrival_times_are_those_of_the_trace() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(duplicate=0.5, delay_ms=(0, 30), reorder=1.0), seed=4)
        alice, bob = await join(network, "alice", "bob")
        listener = Listener(bob)
        await asyncio.sleep(1)
        await alice.send(envelope(1))
        await alice.send(envelope(2))
        await asyncio.sleep(1)
        arrivals = sorted(
            (at, event.message_hash) for at, event in listener.events if isinstance(event, MessageReceived)
        )
        traced = sorted(
            (1_000 + delay_ms, record.message_hash)
            for record in network.trace
            for delay_ms in record.outcomes[0].delays_ms
        )
        assert arrivals == traced

    run_virtual(main())


def random_traffic(seed: int, names: tuple[str, ...]) -> list[TraceRecord]:
    async def main() -> list[TraceRecord]:
        conditions = NetworkConditions(loss=0.2, duplicate=0.1, delay_ms=(0, 50), reorder=0.2, store_loss=0.1)
        network = MemoryNetwork(conditions, seed=seed)
        nodes = await join(network, *names)
        for number in range(200):
            await nodes[number % 3].send(envelope(number))
            await asyncio.sleep(0.003)
            if number == 100:
                network.partition([{"a", "b"}, {"c", "store"}])
            if number == 150:
                network.heal()
        return network.trace

    return run_virtual(main())


def test_one_seed_gives_one_trace_and_another_a_different_one() -> None:
    first = random_traffic(9, ("a", "b", "c", "d"))
    assert first == random_traffic(9, ("a", "b", "c", "d"))
    assert first != random_traffic(10, ("a", "b", "c", "d"))


def test_a_further_listener_changes_nothing_for_the_others() -> None:
    without = random_traffic(9, ("a", "b", "c"))
    with_listener = random_traffic(9, ("a", "b", "c", "archivist"))
    assert [
        [outcome for outcome in record.outcomes if outcome.receiver != "archivist"] for record in with_listener
    ] == [list(record.outcomes) for record in without]


def test_conditions_change_at_run_time_for_all_or_for_one() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(loss=1.0))
        alice, _, carol = await join(network, "alice", "bob", "carol")
        await alice.send(envelope(0))
        carol.conditions = NetworkConditions()
        await alice.send(envelope(1))
        carol.conditions = None
        network.conditions = NetworkConditions()
        await alice.send(envelope(2))
        assert outcomes(network, "bob") == ["lost", "lost", "delivered"]
        assert outcomes(network, "carol") == ["lost", "delivered", "delivered"]

    run_virtual(main())


def test_a_partition_separates_groups_until_it_heals() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(10, 10)))
        alice, _, _, dave = await join(network, "alice", "bob", "carol", "dave")
        await dave.send(envelope(0))
        network.partition([{"alice", "bob"}, {"carol"}])
        await alice.send(envelope(1))
        await asyncio.sleep(1)
        network.heal()
        await alice.send(envelope(2))
        await asyncio.sleep(1)
        by_receiver = {name: outcomes(network, name) for name in ("bob", "carol", "dave")}
        # What was in flight arrives.
        assert by_receiver["bob"] == ["delivered", "delivered", "delivered"]
        assert by_receiver["carol"] == ["delivered", "partitioned", "delivered"]
        assert by_receiver["dave"] == ["partitioned", "delivered"]
        with pytest.raises(ConfigError, match="'alice' is in two groups"):
            network.partition([{"alice"}, {"bob", "alice"}])

    run_virtual(main())


def test_a_store_that_no_group_names_belongs_to_the_first() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        alice, bob = await join(network, "alice", "bob")
        network.partition([{"alice"}, {"bob"}])
        assert (await alice.query_store(StoreQuery())).messages == ()
        with pytest.raises(NodeError, match="no store"):
            await bob.query_store(StoreQuery())
        network.partition([{"alice"}, {"bob", "store"}])
        with pytest.raises(NodeError, match="no store"):
            await alice.query_store(StoreQuery())
        assert (await bob.query_store(StoreQuery())).messages == ()

    run_virtual(main())


def test_the_trace_tells_where_each_envelope_was_lost() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(10, 10)))
        alice, bob, carol, dave = await join(network, "alice", "bob", "carol", "dave")
        await dave.unsubscribe([TOPIC])
        bob.go_offline()
        await alice.send(MessageEnvelope(TOPIC, b"payload", ephemeral=True, meta=b"meta"))
        (record,) = network.trace
        assert [(fate.receiver, fate.outcome) for fate in record.outcomes] == [
            ("bob", "offline"),
            ("carol", "in-flight"),
        ]
        await asyncio.sleep(0.005)
        carol.go_offline()
        await asyncio.sleep(1)
        (record,) = network.trace
        assert [(fate.receiver, fate.outcome) for fate in record.outcomes] == [("bob", "offline"), ("carol", "offline")]
        assert record.sender == "alice"
        assert record.content_topic == TOPIC
        assert record.ephemeral
        assert not record.stored
        assert record.time_ns == record.timestamp_ns == 1_767_225_600_000_000_000
        network.clear_trace()
        assert network.trace == []

    run_virtual(main())


def test_clusters_and_shards_do_not_hear_each_other() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        nodes = {}
        for name, config in [
            ("a", NodeConfig()),
            ("b", NodeConfig(cluster_id=2)),
            ("c", NodeConfig(num_shards_in_cluster=1)),
            ("d", NodeConfig()),
        ]:
            nodes[name] = network.create_node(name, config)
            await nodes[name].start()
            await nodes[name].subscribe([TOPIC])
        await nodes["a"].send(envelope(1))
        assert [fate.receiver for fate in network.trace[0].outcomes] == ["d"]

    run_virtual(main())


def test_names_are_unique_until_their_node_stops() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        node = network.create_node("alice")
        with pytest.raises(ConfigError, match="'alice' is in use"):
            network.create_node("alice")
        for name in ("", "store"):
            with pytest.raises(ConfigError, match="node name"):
                network.create_node(name)
        await node.start()
        await node.stop()
        with pytest.raises(NodeError, match="create a new one"):
            await node.start()
        (again,) = await join(network, "alice")
        assert network.nodes == {"alice": again}

    run_virtual(main())


def test_every_delay_between_the_least_and_the_most_is_drawn() -> None:
    rng = random.Random(1)
    late = NetworkConditions(delay_ms=(2, 4), reorder=1.0, reorder_delay_ms=1, store_delay_ms=(5, 7))
    assert {late.draw_store_delay_ms(rng) for _ in range(200)} == {5, 6, 7}
    assert {late.draw_arrivals(rng) for _ in range(200)} == {((delay, True),) for delay in (2, 3, 4, 5)}
    twice = NetworkConditions(delay_ms=(2, 4), duplicate=1.0)
    # A copy may be overtaken: it would hold up what comes after it.
    assert {twice.draw_arrivals(rng) for _ in range(300)} == {
        ((first, False), (second, True)) for first in (2, 3, 4) for second in (2, 3, 4)
    }


def test_what_is_lost_changes_nothing_for_what_comes_after() -> None:
    states = []
    for conditions in (NetworkConditions(), NetworkConditions(loss=1.0), NetworkConditions(duplicate=1.0)):
        rng = random.Random(1)
        conditions.draw_arrivals(rng)
        states.append(rng.getstate())
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("loss", 1.1),
        ("loss", True),
        ("duplicate", -0.1),
        ("reorder", "0.5"),
        ("store_loss", float("nan")),
        ("delay_ms", (5, 4)),
        ("delay_ms", (-1, 4)),
        ("delay_ms", 5),
        ("delay_ms", (5,)),
        ("delay_ms", (1, 2, 3)),
        ("store_delay_ms", (0.5, 4)),
        ("reorder_delay_ms", -1),
    ],
)
def test_wrong_conditions_are_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"NetworkConditions.{field} is"):
        NetworkConditions(**{field: value})  # type: ignore[arg-type]


def test_it_works_in_real_time_too() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(1, 20)), seed=5)
        alice, bob = await join(network, "alice", "bob")
        listener = Listener(bob)
        before = time.time_ns()
        for number in range(20):
            await alice.send(envelope(number))
        await asyncio.sleep(0.2)
        assert listener.payloads == [number.to_bytes(8, "big") for number in range(20)]
        assert all(before <= record.time_ns <= time.time_ns() for record in network.trace)

    asyncio.run(main())


def test_payloads_are_handed_over_without_copies() -> None:
    async def main() -> list[bytes]:
        network = MemoryNetwork(NetworkConditions(delay_ms=(1, 5)))
        sender, *receivers = await join(network, "a", "b", "c", "d", "e")
        listeners = [Listener(node) for node in receivers]
        payload = bytes(100_000)
        await sender.send(MessageEnvelope(TOPIC, payload))
        await asyncio.sleep(1)
        assert network.store is not None
        stored = [message.envelope for message in network.store]
        assert stored[0] is not None
        assert stored[0].payload is payload
        return [*(listener.payloads[0] for listener in listeners), payload]

    heard = run_virtual(main())
    assert all(payload is heard[-1] for payload in heard)


def test_the_trace_keeps_payloads_where_asked_to() -> None:
    async def main() -> None:
        for trace_payloads, expected in ((False, None), (True, (5).to_bytes(8, "big"))):
            network = MemoryNetwork(trace_payloads=trace_payloads)
            alice, _ = await join(network, "alice", "bob")
            await alice.send(envelope(5))
            assert network.trace[0].payload == expected
            assert "payload" not in repr(network.trace[0])

    run_virtual(main())
