"""An in-process network: nodes, the faults between them, a store, and a trace of everything that was sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping
from itertools import count

from shardwire.config.checks import INTEGER_MIN, check_bool, check_integer, check_kind, check_list, check_text
from shardwire.errors import ConfigError, NodeError
from shardwire.node.clock import Clock, check_clock, running_clock
from shardwire.node.conditions import NetworkConditions
from shardwire.node.inbox import Transit
from shardwire.node.memory import MemoryNode, Outgoing
from shardwire.node.protocol import NodeConfig, StorePage, StoreQuery
from shardwire.node.store import MessageStore
from shardwire.node.trace import Fate, Trace, TraceEntry, TraceRecord

STORE = "store"
TRACE_RECORDS_MAX = 1_000_000
# A clock that goes back further than this was stepped: timestamps follow it.
_CLOCK_STEP_NS = 1_000_000
_TIMESTAMPS_REMEMBERED_MAX = 100_000


class MemoryNetwork:
    """A network of `MemoryNode`s in one process and on one event loop, in real or in virtual time.

    Everything random comes from `seed`, one stream for each receiver: with the same seed, the same nodes and the same
    calls at the same times the trace is the same, and a further listener changes nothing for the others.

    Args:
        conditions: Faults; also an attribute that may be replaced at any time.
        seed: Of all randomness.
        clock: What stamps envelopes and trace; None for the clock of the loop that runs the caller.
        store: Whether there is a store node, called `STORE` in `partition`.
        trace_payloads: Whether the trace keeps payloads (and so holds on to their memory).

    Raises:
        ConfigError: An argument is of a wrong kind.
    """

    def __init__(
        self,
        conditions: NetworkConditions | None = None,
        seed: int = 0,
        clock: Clock | None = None,
        *,
        store: bool = True,
        trace_payloads: bool = False,
    ) -> None:
        check_kind("conditions", conditions, NetworkConditions)
        check_integer("seed", seed, INTEGER_MIN)
        check_clock(clock)
        check_bool("store", store)
        check_bool("trace_payloads", trace_payloads)
        self._conditions = conditions or NetworkConditions()
        self.store: MessageStore | None = MessageStore() if store else None
        self.transit = Transit()
        self._store_online = store
        self._seed = seed
        self._clock = clock
        self._nodes: dict[str, MemoryNode] = {}
        self._randoms: dict[str, random.Random] = {}
        self._groups: dict[str, int] = {}
        self._trace = Trace(TRACE_RECORDS_MAX)
        self._trace_payloads = trace_payloads
        self._request_numbers = count(1)
        self._last_timestamp_ns = 0
        self._timestamps: dict[int, None] = {}

    # --- nodes ---

    def create_node(self, name: str, config: NodeConfig | None = None, *, clock: Clock | None = None) -> MemoryNode:
        """A new node, not started. A stopped node's name may be used again, as after a crash.

        Args:
            name: How trace and partitions call it.
            config: Configuration of the node.
            clock: What stamps its envelopes; None for the network's. With one of its own its Unix time may differ.

        Raises:
            ConfigError: The name is empty, the store's, or that of a node that is not stopped; `config` is none.
        """
        check_kind("config", config, NodeConfig)
        check_clock(clock)
        if not isinstance(name, str) or not name or name == STORE:
            raise ConfigError(f"node name {name!r}: it must be a non-empty string other than {STORE!r}")
        present = self._nodes.get(name)
        if present is not None and not present.stopped:
            raise ConfigError(f"node name {name!r} is in use: stop that node first or take another name")
        self._nodes[name] = MemoryNode(self, name, config or NodeConfig(), clock)
        return self._nodes[name]

    @property
    def nodes(self) -> Mapping[str, MemoryNode]:
        """The nodes by name, stopped ones included."""
        return self._nodes

    @property
    def clock(self) -> Clock:
        """What stamps envelopes and trace: the one given, or that of the running loop."""
        return running_clock() if self._clock is None else self._clock

    # --- faults ---

    @property
    def conditions(self) -> NetworkConditions:
        """Faults on the way to every node that has none of its own; may be replaced at any time."""
        return self._conditions

    @conditions.setter
    def conditions(self, conditions: NetworkConditions) -> None:
        if not isinstance(conditions, NetworkConditions):
            raise ConfigError(f"conditions is a {type(conditions).__name__}: it must be a NetworkConditions")
        self._conditions = conditions

    def partition(self, groups: Iterable[Collection[str]]) -> None:
        """Lets messages pass only within each group. Nodes that no group names are together in a further one; the
        store, where unnamed, belongs to the first. What is already in flight arrives.

        Raises:
            ConfigError: A name stands in two groups or is none, or a group is a text.
        """
        check_list("groups", groups, "groups", read_once=True)
        by_name: dict[str, int] = {}
        for index, group in enumerate(groups):
            check_list(f"groups[{index}]", group, "names of nodes")
            for name in group:
                check_text(f"a name in groups[{index}]", name)
                if by_name.setdefault(name, index) != index:
                    raise ConfigError(f"partition: {name!r} is in two groups: name it once")
        by_name.setdefault(STORE, 0)
        self._groups = by_name
        self.connections_changed()

    def heal(self) -> None:
        """Ends the partition: every node reaches every other one again."""
        self._groups = {}
        self.connections_changed()

    @property
    def store_online(self) -> bool:
        """Whether the store takes messages and answers; assign False for an outage. What it holds stays."""
        return self._store_online

    @store_online.setter
    def store_online(self, online: bool) -> None:
        check_bool("store_online", online)
        if self.store is None and online:
            raise ConfigError("store_online = True: this network was made with store=False")
        self._store_online = online
        self.connections_changed()

    # --- views ---

    @property
    def trace(self) -> list[TraceRecord]:
        """Every envelope that left a node, oldest first, as far as its fate is known now; a new list each time.

        Holds the newest `TRACE_RECORDS_MAX`.
        """
        return list(self._trace)

    def clear_trace(self) -> None:
        """Forgets what `trace` holds so far."""
        self._trace.clear()

    # --- called by nodes ---

    def connections_changed(self) -> None:
        """Lets every node look at whom it reaches."""
        for node in list(self._nodes.values()):
            node.handle_connections_changed()

    def reaches(self, node: MemoryNode, other: str) -> bool:
        """Whether no partition stands between `node` and the node or store called `other`."""
        return not self._groups or self._group(node.name) == self._group(other)

    def reaches_store(self, node: MemoryNode) -> bool:
        """Whether the store is online and on the side of `node`."""
        return self._store_online and self.reaches(node, STORE)

    def reaches_neighbour(self, node: MemoryNode) -> bool:
        """Whether any other connected node is on the side of `node`."""
        return any(
            other.connected and other is not node and self.reaches(node, other.name) for other in self._nodes.values()
        )

    @property
    def has_store(self) -> bool:
        """Whether it was made with a store."""
        return self.store is not None

    def next_request_id(self, node: MemoryNode) -> str:
        """A request id that no other request of this network has."""
        return f"{node.name}-{next(self._request_numbers)}"

    def next_timestamp_ns(self, clock: Clock) -> int:
        """The time, made unique in this network: equal messages of one instant must not share a hash."""
        now_ns = clock.epoch_ns()
        last_ns = self._last_timestamp_ns
        timestamp_ns = last_ns + 1 if now_ns <= last_ns < now_ns + _CLOCK_STEP_NS else now_ns
        while timestamp_ns in self._timestamps:
            timestamp_ns += 1
        self._timestamps[timestamp_ns] = None
        if len(self._timestamps) > _TIMESTAMPS_REMEMBERED_MAX:
            del self._timestamps[next(iter(self._timestamps))]
        self._last_timestamp_ns = timestamp_ns
        return timestamp_ns

    def transmit(self, sender: MemoryNode, outgoing: Outgoing) -> bool:
        """Carries an envelope to everyone in reach; whether the store took it."""
        envelope, message = outgoing.envelope, outgoing.message
        fates: list[Fate] = []
        entry = TraceEntry(
            self.clock.epoch_ns(),
            sender.name,
            outgoing.request_id,
            outgoing.message_hash,
            outgoing.timestamp_ns,
            envelope.content_topic,
            outgoing.size_bytes,
            envelope.ephemeral,
            self._offer_to_store(sender, outgoing),
            fates,
            envelope.payload if self._trace_payloads else None,
        )
        self._trace.append(entry)
        pubsub_topic, content_topic = outgoing.pubsub_topic, envelope.content_topic
        groups = self._groups
        group = self._group(sender.name) if groups else -1
        loop = asyncio.get_running_loop()
        now_s, sender_name = loop.time(), sender.name
        for receiver in self._nodes.values():
            if receiver is sender or not receiver.hears(pubsub_topic, content_topic):
                continue
            name = receiver.name
            conditions = receiver.conditions or self._conditions
            arrivals = conditions.draw_arrivals(self._random(name))
            if groups and self._group(name) != group:
                fates.append(Fate(name, "partitioned"))
            elif not receiver.connected:
                fates.append(Fate(name, "offline"))
            else:
                fate = Fate(name)
                fates.append(fate)
                for delay_ms, may_be_overtaken in arrivals:
                    receiver.inbox.depart(sender_name, delay_ms, may_be_overtaken, message, fate, now_s, loop)
        return entry.stored

    def query_store(self, node: MemoryNode, query: StoreQuery) -> StorePage:
        """Answers a page of the store to `node`.

        Raises:
            NodeError: There is no store, or `node` does not reach it.
        """
        if self.store is None:
            raise NodeError("this network has no store: it was made with store=False")
        if not self.reaches_store(node):
            raise NodeError(f"node {node.name!r}: no store answered")
        return self.store.query(query)

    def draw_store_delay_ms(self) -> int:
        """How long the next answer of the store takes, drawn from `NetworkConditions.store_delay_ms`."""
        return self.conditions.draw_store_delay_ms(self._random(STORE + " answers"))

    # --- details ---

    def _group(self, name: str) -> int:
        return self._groups.get(name, -1)

    def _random(self, name: str) -> random.Random:
        stream = self._randoms.get(name)
        if stream is None:
            # Seeded by text, which Python hashes the same way in every process.
            stream = self._randoms[name] = random.Random(f"{self._seed}/{name}")
        return stream

    def _offer_to_store(self, sender: MemoryNode, outgoing: Outgoing) -> bool:
        if self.store is None:
            return False
        lost = self._random(STORE).random() < self.conditions.store_loss
        if lost or outgoing.envelope.ephemeral or not self.reaches_store(sender):
            return False
        self.store.add(outgoing.message_hash, outgoing.timestamp_ns, outgoing.envelope)
        return True
