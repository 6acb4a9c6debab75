"""What `shardwire state` does: lists what a state holds, also while another process uses it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shardwire._native import SendProgress, last_seen_ns
from shardwire.channel.limits.node_limits import COUNT_NAME_PREFIX
from shardwire.channel.storing.records import (
    DELIVERY,
    IDENTITY,
    LAST_SEEN,
    NODE_RATE,
    SEND,
    IdentityRecord,
    NodeRateRecord,
)
from shardwire.cli.network.output import Output
from shardwire.cli.network.participation import DATABASE, in_words_of_options
from shardwire.cli.network.spool import MESSAGE_SUFFIX
from shardwire.errors import PersistenceError
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.persistence import StoredChannel, read_channels
from shardwire.persistence.channel_files import state_files
from shardwire.quoting import printable

# Pending sends that people are shown, of each channel.
SENDS_SHOWN_MAX = 20
# States that are named where another one was asked for.
STATES_NAMED_MAX = 5
_SEGMENT_KINDS = ("channel.segment", "segmentation.segment")


@dataclass(frozen=True, slots=True)
class _Channel:
    """What people want to know of a channel."""

    channel_id: str
    sender_id: str | None
    held_by: str | None
    pending: list[dict[str, Any]]
    failed: int
    counts: dict[str, int]
    seen_until: str | None
    lost_commits: int
    size_bytes: int


def describe_state(place: Path, failed: str, output: Output, key: bytes | None = None) -> int:
    """Prints what a state directory, or the database of a `SqlitePersistence`, holds.

    Args:
        place: The directory, or the database.
        failed: Name of the directory of messages that a command failed on.
        output: Where it is told.
        key: Of the state; None where it has none.

    Returns:
        0, or 1 where a database was found corrupt before and lies there still.

    Raises:
        PersistenceError: There is none, or it cannot be read.
    """
    database = place / DATABASE if place.is_dir() else place
    corrupt = sorted(str(path) for path in database.parent.glob(f"{database.name}.corrupt-*[0-9]"))
    if not database.is_file():
        what = "is no file and no directory" if place.exists() else "does not exist"
        if place.is_dir():
            what = f"holds only the corrupt {corrupt[-1]}" if corrupt else f"holds no {DATABASE}"
        raise PersistenceError(
            f"{place} {what}: give the directory that a command had as --state; {_states_near(place)}"
        )
    try:
        stored = read_channels(database, (IDENTITY, SEND, LAST_SEEN, NODE_RATE), key=key)
    except PersistenceError as error:
        raise in_words_of_options(error) from None
    channels = [_read(channel) for channel in stored if not channel.channel_id.startswith(COUNT_NAME_PREFIX)]
    quotas = [_quota(count) for count in stored if count.channel_id.startswith(COUNT_NAME_PREFIX)]
    set_aside = len(list((database.parent / failed).glob(f"*{MESSAGE_SUFFIX}")))
    output.event(
        "state",
        database=str(database),
        size_bytes=_size_bytes(database),
        corrupt=corrupt,
        set_aside=set_aside,
        channels=[
            {
                "channel": channel.channel_id,
                "sender_id": channel.sender_id,
                "held_by": channel.held_by,
                "pending": channel.pending,
                "failed": channel.failed,
                **channel.counts,
                "seen_until": channel.seen_until,
                "lost_commits": channel.lost_commits,
                "size_bytes": channel.size_bytes,
            }
            for channel in channels
        ],
        quotas=quotas,
    )
    output.result(f"{database}: {len(channels)} channels, {_size_bytes(database):,} bytes")
    for channel in channels:
        _print(channel, output)
    for quota in quotas:
        used = f"{quota['used']} used until {quota['until']}" if quota["counted_here"] else "counted elsewhere"
        output.result(f"quota of node {printable(quota['node'])}: {used}")
    if set_aside:
        output.result(f"{set_aside} messages that a command failed on are in {database.parent / failed}")
    for path in corrupt:
        output.result(f"{path} was found corrupt: restore a copy, or move it away")
    return int(bool(corrupt))


def _states_near(place: Path) -> str:
    """Which directories in this one, or beside it where there is none, hold a state, for people."""
    directory = place if place.is_dir() else place.parent
    found = sorted(printable(str(path.parent)) for path in directory.glob(f"*/{DATABASE}"))
    where = "in it" if directory == place else f"in {directory.resolve()}"
    if not found:
        return f"there is none {where}"
    more = f" and {len(found) - STATES_NAMED_MAX} more" if len(found) > STATES_NAMED_MAX else ""
    return f"{where} there is {', '.join(found[:STATES_NAMED_MAX])}{more}"


def _print(channel: _Channel, output: Output) -> None:
    def line(name: str, value: object) -> None:
        output.result(f"  {name:22} {value}")

    output.result(f"channel {printable(channel.channel_id)}")
    line("sender", "none yet" if channel.sender_id is None else printable(channel.sender_id))
    line("in use by", channel.held_by or "nobody")
    line("pending sends", len(channel.pending))
    for send in channel.pending[:SENDS_SHOWN_MAX]:
        store = ", in a store" if send["stored"] else ""
        reached = ", ".join(map(printable, send["delivered_to"])) or "nobody"
        line(
            f"  {send['message_id'][:16]}",
            f"{send['segments_sent']} of {send['segments_total']} segments sent{store}, delivered to {reached}",
        )
    if len(channel.pending) > SENDS_SHOWN_MAX:
        line("  and more", len(channel.pending) - SENDS_SHOWN_MAX)
    line("failed sends", channel.failed)
    for name, count in channel.counts.items():
        line(name.replace("_", " "), count)
    line("nothing missed until", channel.seen_until or "not known")
    if channel.lost_commits:
        line("lost commits", f"{channel.lost_commits}: at some time it was older than what was told of it")
    line("bytes", f"{channel.size_bytes:,}")


def _read(stored: StoredChannel) -> _Channel:
    state = stored.state
    identity = state.records.get((IDENTITY, b""))
    seen = state.records.get((LAST_SEEN, b""))
    sends = [SendProgress.decode(value) for _, value in state.of_kind(SEND)]
    pending = [send for send in sends if not send.delivered and not send.error_stage]
    return _Channel(
        stored.channel_id,
        None if identity is None else IdentityRecord.decode(identity).sender_id,
        stored.held_by,
        [
            {
                "request_ids": send.request_ids,
                "message_id": send.message_id,
                "segments_sent": send.propagated_count,
                "segments_total": send.content_count,
                "sent": send.sent,
                "stored": send.is_stored,
                "delivered_to": send.delivered_to,
            }
            for send in pending
        ],
        sum(bool(send.error_stage) for send in sends),
        {
            "delivered_sends": sum(send.delivered for send in sends),
            "waiting_to_be_read": _records(stored, DELIVERY),
            "segments_of_parts": sum(_records(stored, kind) for kind in _SEGMENT_KINDS),
            "missing_messages": _records(stored, "sds.missing"),
            "messages_in_log": _records(stored, "sds.log"),
        },
        None if seen is None else _time_of(last_seen_ns(seen)),
        stored.lost_commits,
        sum(kind.size_bytes for kind in stored.kinds.values()),
    )


def _quota(stored: StoredChannel) -> dict[str, Any]:
    """The count of a node's rate limit."""
    value = stored.state.records.get((NODE_RATE, b""))
    count = None if value is None else NodeRateRecord.decode(value)
    ends_ns = 0 if count is None else (count.epoch + 1) * count.epoch_size_ms * NANOSECONDS_PER_MS
    return {
        "node": stored.channel_id.removeprefix(COUNT_NAME_PREFIX),
        "counted_here": count is not None and count.is_counted_here,
        "used": 0 if count is None else count.used,
        "until": _time_of(ends_ns),
    }


def _records(stored: StoredChannel, kind: str) -> int:
    found = stored.kinds.get(kind)
    return 0 if found is None else found.records


def _time_of(timestamp_ns: int) -> str | None:
    try:
        return datetime.fromtimestamp(timestamp_ns // 1_000_000_000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _size_bytes(database: Path) -> int:
    real = database.resolve()
    files = (real, real.with_name(f"{real.name}-wal"), *state_files(real))
    return sum(path.stat().st_size for path in files if path.exists())
