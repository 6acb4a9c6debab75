"""docs/guide/names.md: each name of 003 and 004 stands there, and each of ours that it gives exists."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import shardwire
from shardwire.event_names import EVENT_TYPES

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "guide" / "names.md").read_text()
# What 003 and 004 define: functions, types, events, their fields, options.
NAMES = """
createReliableChannel closeChannel send sendEphemeral onMessageReceived onMessageSent onMessageDelivered
onMessageSendError start stop isStarted encrypt decrypt
ReliableChannel ReliableSendId RequestId ChannelId SenderId MessageId MessagePayload WakuNode NodeConfig Encryption
Persistence HistoryEntry ChunkInfo MessageEvents ReliableChannelEvents MessageReceivedEvent MessageSentEvent
MessageDeliveredEvent MessageSendErrorEvent SendingMessageEvent MessageAcknowledgedEvent PossibleAcknowledgment
MessageError EphemeralDropReason
reliable:message:received reliable:message:sent reliable:message:delivered reliable:message:send-error
sending-message message-sent message-possibly-acknowledged message-acknowledged sending-message-irrecoverable-error
message-received irretrievable-message ephemeral-message-dropped
message requestId message_id chunk_info chunks total_chunks error reason
SegmentationConfig enableReedSolomon segmentSizeBytes SdsConfig sds_config persistence acknowledgementTimeoutMs
maxRetransmissions causalHistorySize RateLimitConfig rate_limit_config enabled epochSizeMs
ReliableChannelOptions sync_min_interval_ms retry_interval_ms max_retry_attempts retrieve_frequency_ms
sweep_in_buf_interval_ms query_on_connect auto_start process_task_min_elapse_ms causal_history_size
timeout_for_lost_messages_ms possible_acks_threshold
"""
THEIRS = NAMES.split()


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def exists(name: str) -> bool:
    """Whether it is exported, or a member of what is."""
    owner, _, member = name.partition(".")
    if owner not in shardwire.__all__:
        return False
    value = getattr(shardwire, owner)
    if not member:
        return True
    return hasattr(value, member) or (is_dataclass(value) and member in {field.name for field in fields(value)})


OURS = sorted(
    {name for row in rows() for name in names(row[1])}
    | {name for row in rows() for name in names(row[2]) if "." in name and name[0].isupper()}
)


@pytest.mark.parametrize("name", OURS)
def test_each_of_our_names_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", THEIRS)
def test_each_of_their_names_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_event_strings_stand_beside_the_classes_that_they_subscribe_to() -> None:
    strings = {string: kind.__name__ for kind in EVENT_TYPES for string in kind.names}
    told = {row[0].strip("`"): names(row[1])[0] for row in rows() if row[0].strip("`") in strings}
    assert len(told) == 12
    assert told == {string: strings[string] for string in told}


@pytest.mark.parametrize("name", ["Nothing", "ReliableChannel.nothing", "SdsConfig.maxRetransmissions", "json.dumps"])
def test_names_that_are_not_ours_are_found(name: str) -> None:
    assert not exists(name)


def test_the_texts_that_name_things_are_str() -> None:
    for name in ("ReliableSendId", "RequestId", "ChannelId", "SenderId", "MessageId"):
        assert getattr(shardwire, name) is str
