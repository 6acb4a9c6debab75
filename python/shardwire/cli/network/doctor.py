"""What `shardwire doctor` does: says what a node is and has, and what to do where something is missing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.output import Output
from shardwire.errors import NodeError
from shardwire.node import ConnectionState, MqttNode, NatsNode, UdpNode, WakuRestNode
from shardwire.node.waku_message import PubsubTopics
from shardwire.quoting import printable

if TYPE_CHECKING:
    from shardwire.node.nats import NatsStreamStatus
    from shardwire.node.rest import WakuNodeStatus
    from shardwire.node.transport import TransportNode

# Stores file by time, and Waku nodes refuse what is stamped otherwise by more than 20 s.
CLOCK_AHEAD_MS_MAX = 10_000
_PROTOCOLS = {
    "relay": "/vac/waku/relay/",
    "store": "/vac/waku/store-query/",
    "filter": "/vac/waku/filter-subscribe/",
    "lightpush": "/vac/waku/lightpush/",
}
_UNREACHABLE = "see that it runs there, that host, port and credentials are right, and that no firewall is between"


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes:
        facts: By name, in the order in which people read them.
        problems: What keeps channels from working, each with its remedy.
        notes: What may be meant so, each with what to do where it is not.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def examine(
    node: TransportNode,
    interruption: Interruption,
    output: Output,
    *,
    topic: str | None,
    timeout_s: float,
    neighbours_wait_s: float,
) -> int:
    """Starts the node, asks it what it is, and prints that.

    Args:
        node: The node; not started.
        interruption: When to give up.
        output: Where it is told.
        topic: Whose shard a Waku node should serve; None for none.
        timeout_s: For all but that neighbours are heard.
        neighbours_wait_s: How long neighbours over UDP may take to be heard.

    Returns:
        0 where channels can use it, else 1.

    Raises:
        NodeError: It cannot be used at all.
        OSError: The standard output could not be written.
    """
    report = Report({"node": node.name})
    try:
        async with asyncio.timeout(timeout_s + neighbours_wait_s if isinstance(node, UdpNode) else timeout_s):
            await interruption.unless(node.start())
            await interruption.unless(_look(node, report, topic, neighbours_wait_s))
    except TimeoutError:
        report.problems.append(f"{node.name} did not answer within {timeout_s:g} s: {_UNREACHABLE}")
    except NodeError as error:
        # It may say what to do itself.
        report.problems.append(f"{error}; {_UNREACHABLE}")
    finally:
        await node.stop()
    async with output.without_blocking(interruption):
        _print(report, output)
    return int(bool(report.problems))


def _print(report: Report, output: Output) -> None:
    found = {"facts": report.facts, "problems": report.problems, "notes": report.notes}
    output.event("examined", usable=not report.problems, **found)
    for name, value in report.facts.items():
        output.result(f"{name.replace('_', ' '):22} {printable(_written(value))}")
    for kind, lines in (("problem", report.problems), ("note", report.notes)):
        for line in lines:
            output.result(f"{kind}: {printable(line)}")
    if not report.problems:
        output.result("channels can use it")


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "not told"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


async def _look(node: TransportNode, report: Report, topic: str | None, neighbours_wait_s: float) -> None:
    match node:
        case WakuRestNode():
            _look_at_waku(await node.status(), node, report, topic)
        case NatsNode():
            await _look_at_nats(node, report)
        case MqttNode():
            _look_at_mqtt(node, report)
        case UdpNode():
            await _look_at_udp(node, report, neighbours_wait_s)
    report.facts["message_bytes_max"] = node.max_message_size_bytes
    report.facts["has_store"] = node.has_store
    if not node.has_store:
        report.notes.append("without a store participants give one another what they missed, while they are there")


def _look_at_waku(status: WakuNodeStatus, node: WakuRestNode, report: Report, topic: str | None) -> None:
    info, facts = status.info, report.facts
    facts["kind"] = "Waku node, used by filter and lightpush" if status.light else "Waku node, used by relay"
    facts["version"] = f"{info.version} ({info.dialect})"
    facts["connection"] = status.state.value
    if status.peers is None:
        facts["peers"] = "the node shows none"
        report.notes.append("the node shows no peers: start it with --rest-admin to see them here")
    else:
        connected = [peer for peer in status.peers if peer.connected]
        facts["peers"] = len(connected)
        for name, protocol in _PROTOCOLS.items():
            facts[f"peers_{name}"] = sum(peer.speaks(protocol) for peer in connected)
        needed = ("filter", "lightpush") if status.light else ("relay",)
        lacking = [name for name in needed if not facts[f"peers_{name}"]]
        if lacking:
            report.problems.append(
                f"no {' and no '.join(lacking)} peer: connect the node to others, by --staticnode or by discovery"
            )
    facts["store_peer"] = status.store_peer or ("the node chooses" if node.has_store else "none")
    if not node.has_store:
        report.notes.append(
            "no store is in reach: give the node one (--storenode), or name it by ?store_peer= in the URL"
        )
    _look_at_shards(status, node, report, topic)
    if status.health is not None:
        facts["health"] = status.health.node
    rln = None if status.health is None else status.health.rln
    facts["rln"] = rln or "the node does not say"
    if rln not in (None, "ready", "not_mounted"):
        report.problems.append(
            f"the RLN of the node is {rln}: it refuses messages until its membership is there and read"
        )
    _look_at_clock(info.clock_ahead_ms, report)
    if status.state is ConnectionState.DISCONNECTED and not report.problems:
        report.problems.append("the node says that it is disconnected: connect it to others")


def _look_at_shards(status: WakuNodeStatus, node: WakuRestNode, report: Report, topic: str | None) -> None:
    shards = status.info.shards
    if shards is None:
        report.facts["shards"] = "the node does not say"
    else:
        report.facts["cluster_id"] = shards.cluster_id
        report.facts["shards"] = ", ".join(map(str, sorted(shards.shards)))
    if topic is None:
        return
    config = node.config
    place = PubsubTopics(config.cluster_id, config.num_shards_in_cluster).of(topic)
    report.facts["topic_lies_in"] = place
    shard = int(place.rpartition("/")[2])
    if shards is not None and shard not in shards.shards:
        report.problems.append(
            f"the topic lies in shard {shard} of {config.num_shards_in_cluster}, which the node does not serve: "
            f"start it with --shard={shard}, or say how many the cluster has by ?num_shards_in_cluster= in the URL"
        )


async def _look_at_nats(node: NatsNode, report: Report) -> None:
    status, facts = await node.status(), report.facts
    facts["kind"] = "NATS server"
    facts["version"] = status.server_version
    facts["server"] = status.server_name
    if status.cluster is not None:
        facts["cluster"] = status.cluster
    facts["connection"] = status.state.value
    facts["tls"] = status.tls
    facts["round_trip_ms"] = round(status.round_trip_ms, 1)
    facts["payload_bytes_max"] = status.payload_bytes_max
    facts["jetstream"] = status.jetstream
    if status.stream is None:
        if status.no_stream_reason:
            report.notes.append(
                f"no stream keeps messages: {status.no_stream_reason}; start the server with -js for one"
            )
        return
    _look_at_stream(status.stream, report)


def _look_at_stream(stream: NatsStreamStatus, report: Report) -> None:
    report.facts |= {
        "stream": stream.name,
        "stream_messages": stream.messages,
        "stream_bytes": stream.size_bytes,
        "stream_bytes_max": stream.size_bytes_max,
        "stream_age_max_ms": stream.age_max_ms,
        "stream_replicas": stream.replicas,
    }
    _look_at_clock(stream.clock_ahead_ms, report)


def _look_at_mqtt(node: MqttNode, report: Report) -> None:
    status = node.status()
    report.facts |= {
        "kind": "MQTT 5 broker",
        "connection": status.state.value,
        "tls": status.tls,
        "packet_bytes_max": status.packet_bytes_max,
        "receive_max": status.receive_max,
        "session_expiry_ms": status.session_expiry_ms,
    }


async def _look_at_udp(node: UdpNode, report: Report, wait_s: float) -> None:
    waits_for = node.status()
    try:
        async with asyncio.timeout(wait_s):
            # Nobody sets an event for it.
            while waits_for.peers_missing or not waits_for.neighbours:
                await asyncio.sleep(0.05)
                waits_for = node.status()
    except TimeoutError:
        pass
    status = node.status()
    group = {} if status.group is None else {"group": status.group}
    report.facts |= {
        "kind": "datagrams to peers" if status.group is None else "datagrams to a group",
        "connection": status.state.value,
        "address": status.address,
        **group,
        "neighbours": [neighbour.address for neighbour in status.neighbours],
        "datagram_bytes_max": status.datagram_bytes,
    }
    for address in status.peers_missing:
        report.problems.append(f"nothing is heard of {address}: start it, and let UDP through to that port and back")
    silent = [neighbour.address for neighbour in status.neighbours if not neighbour.responds]
    for address in silent:
        report.problems.append(f"{address} says hello and confirms nothing: see what is between")
    if not status.neighbours and not status.peers_missing:
        report.notes.append("nobody else is here so far: others reach this address, or name them by ?peers= in the URL")


def _look_at_clock(ahead_ms: int | None, report: Report) -> None:
    report.facts["clock_ahead_ms"] = ahead_ms
    if ahead_ms is not None and abs(ahead_ms) > CLOCK_AHEAD_MS_MAX:
        direction = "ahead of" if ahead_ms > 0 else "behind"
        report.problems.append(
            f"the server's clock is {abs(ahead_ms) / 1000:.0f} s {direction} ours: set both, by NTP, or messages are "
            "refused and not found in stores"
        )
