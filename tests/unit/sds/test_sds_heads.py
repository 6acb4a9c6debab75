"""What a message names of what came before it, and whose naming counts as an acknowledgement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, contents_of, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, sds_limits
from shardwire.config import MessageIdRule, SdsConfig
from shardwire.sds import TransmitKind

HEADS_MAX = sds_limits()["HEADS_MAX"]
ONLY_HEADS = replace(LOGOS.sds, causal_history_size=0)


def message_id(number: int, ordinal: int = 0) -> str:
    return f"{number:032x}.{ordinal}"


def message(number: int, history: list[str], *, sender: str = "alice", ordinal: int = 0, count: int = 1) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=message_id(number, ordinal),
        channel_id="room",
        lamport_timestamp=at(0).epoch_ms + number,
        causal_history=[HistoryEntry(name) for name in history],
        content=contents_of(f"m{number}", count, count)[ordinal],
    ).encode()


def hear(party: Party, data: bytes, monotonic_ms: int = 0) -> None:
    party.machine.handle_message(data, at(monotonic_ms))
    party.drain(at(monotonic_ms))


def said(party: Party, monotonic_ms: int) -> list[str]:
    """What the next content of `party` names."""
    party.send(f"at {monotonic_ms}", at(monotonic_ms))
    (transmit,) = [out for out in party.drain(at(monotonic_ms)) if out.kind is TransmitKind.FIRST]
    decoded = SdsMessage.decode(transmit.payload)
    assert decoded is not None
    return [entry.message_id for entry in decoded.causal_history]


def silent(rule: MessageIdRule = "send", sds: SdsConfig = ONLY_HEADS) -> Party:
    """A participant that names nothing but heads once everything was said."""
    return Party("bob", sds=replace(sds, message_id=rule), sync=quiet_sync(acknowledgement_sync=False))


@pytest.mark.parametrize("rule", ["send", "content-sha256"])
def test_what_a_delivered_message_follows_is_named_no_more(rule: MessageIdRule) -> None:
    bob = silent(rule)
    hear(bob, message(1, []))
    hear(bob, message(2, [message_id(1)]))
    hear(bob, message(3, [], sender="carol"))
    assert set(bob.machine.inspect()["heads"]) == {message_id(2), message_id(3)}
    assert set(said(bob, 1)) == {message_id(1), message_id(2), message_id(3)}, "acknowledged, once"
    ours = list(bob.machine.inspect()["heads"])
    assert len(ours) == 1
    assert said(bob, 2) == ours


def test_any_content_of_a_send_stands_for_it() -> None:
    bob = silent()
    for ordinal in range(2):
        hear(bob, message(1, [], ordinal=ordinal, count=2))
    assert bob.machine.inspect()["heads"] == (message_id(1, 1),)
    hear(bob, message(2, [message_id(1, 0)], sender="carol"))
    assert bob.machine.inspect()["heads"] == (message_id(2),)


def test_beyond_the_limit_the_oldest_head_is_left_to_the_history() -> None:
    bob = silent()
    for number in range(HEADS_MAX + 2):
        hear(bob, message(number, [], sender=f"s{number}"))
    assert list(bob.machine.inspect()["heads"]) == [message_id(number) for number in range(2, HEADS_MAX + 2)]


@pytest.mark.parametrize("by_sync", [False, True])
@pytest.mark.parametrize(("named_by", "again"), [("alice", True), ("carol", False)])
def test_a_sender_that_names_its_own_message_does_not_acknowledge_it_for_us(
    by_sync: bool, named_by: str, again: bool
) -> None:
    """A lost sync is made good by the next one, unless another participant than the sender acknowledged too."""
    bob = Party("bob", sds=ONLY_HEADS, sync=quiet_sync())
    hear(bob, message(1, []))
    if by_sync:
        sync = SdsMessage(
            sender_id=named_by,
            message_id="sync",
            channel_id="room",
            lamport_timestamp=at(0).epoch_ms,
            causal_history=[HistoryEntry(message_id(1))],
        )
        hear(bob, sync.encode(), 1)
    else:
        hear(bob, message(2, [message_id(1)], sender=named_by), 1)
    named = []
    for number, monotonic_ms in ((3, 2), (4, 10_000)):
        hear(bob, message(number, [], sender="dave"), monotonic_ms)
        (sync_out,) = [out for out in bob.drain(at(monotonic_ms + 5_000)) if out.kind is TransmitKind.SYNC]
        decoded = SdsMessage.decode(sync_out.payload)
        assert decoded is not None
        named.append({entry.message_id for entry in decoded.causal_history})
    assert message_id(1) in named[0]
    assert (message_id(1) in named[1]) is again
