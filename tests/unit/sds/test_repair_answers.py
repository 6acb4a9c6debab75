"""What a repair answer sets off in those who hold the message already."""

from __future__ import annotations

import pytest
from sds_exchange import Exchange, Party, at

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import TransmitKind

T_MAX_MS = Party("anybody").sds.repair_t_max_ms


def request_of(sender: str, number: int, message_id: str) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=f"{sender}-sync-{number}",
        channel_id="room",
        lamport_timestamp=1,
        repair_request=[HistoryEntry(message_id)],
    ).encode()


def settled_group() -> tuple[Exchange, str, bytes]:
    """Ten members that wait for everyone, with one message that all hold and have acknowledged: its id and bytes."""
    exchange = Exchange([Party(f"p{number}", delivered_when=9) for number in range(10)])
    exchange.party("p0").send("held by all", at(0))
    exchange.run(60_000)
    first = exchange.party("p0").transmitted[0]
    assert first.kind is TransmitKind.FIRST
    return exchange, first.message_id, first.payload


def syncs_in(exchange: Exchange, duration_ms: int) -> int:
    before = sum(party.count(TransmitKind.SYNC) for party in exchange.parties)
    exchange.run(exchange.now_ms + duration_ms)
    return sum(party.count(TransmitKind.SYNC) for party in exchange.parties) - before


def hear(exchange: Exchange, data: bytes) -> None:
    for party in exchange.parties[1:]:
        party.machine.handle_message(data, at(exchange.now_ms))


def test_an_answer_to_a_request_is_not_acknowledged_by_those_who_hold_it() -> None:
    exchange, message_id, data = settled_group()
    hear(exchange, request_of("newcomer", 1, message_id))
    hear(exchange, data)
    # One periodic sync may fall into that time.
    assert syncs_in(exchange, 10_000) <= 1
    assert all(party.machine.stats()["repair_answers"] == 0 for party in exchange.parties[1:])


def test_a_retransmission_is_acknowledged_although_somebody_asked_once() -> None:
    exchange, message_id, data = settled_group()
    hear(exchange, data)
    assert syncs_in(exchange, 10_000) >= 9
    hear(exchange, request_of("newcomer", 1, message_id))
    hear(exchange, data)
    exchange.run(exchange.now_ms + 10_000)
    hear(exchange, data)
    assert syncs_in(exchange, 10_000) >= 9


def test_a_request_overtaken_by_its_answer_is_not_answered_again() -> None:
    exchange, message_id, data = settled_group()
    hear(exchange, data)
    exchange.run(exchange.now_ms + 500)
    hear(exchange, request_of("newcomer", 1, message_id))
    exchange.run(exchange.now_ms + T_MAX_MS)
    assert sum(party.count(TransmitKind.REPAIR) for party in exchange.parties[1:]) == 0
    hear(exchange, request_of("newcomer", 2, message_id))
    exchange.run(exchange.now_ms + T_MAX_MS)
    assert sum(party.count(TransmitKind.REPAIR) for party in exchange.parties[1:]) == 1


def test_a_request_out_of_a_store_is_not_answered() -> None:
    exchange, message_id, _ = settled_group()
    for party in exchange.parties[1:]:
        data = request_of("newcomer", 1, message_id)
        party.machine.handle_message(data, at(exchange.now_ms), from_store=True)
    exchange.run(exchange.now_ms + T_MAX_MS)
    assert sum(party.count(TransmitKind.REPAIR) for party in exchange.parties[1:]) == 0


@pytest.mark.parametrize("sender_hears_all", [False, True])
def test_only_what_brings_the_content_silences_those_who_would_answer(sender_hears_all: bool) -> None:
    """A sender that hears another content under its id answers unasked, and the others need not then."""
    exchange, message_id, data = settled_group()
    held = SdsMessage.decode(data)
    lies = [
        SdsMessage(sender_id=sender, message_id=message_id, channel_id="room", lamport_timestamp=1, content=content)
        for sender in ("mallory", held.sender_id)
        for content in (None, b"0/1/1|another")
    ]
    hear(exchange, request_of("newcomer", 1, message_id))
    for lie in lies:
        hear(exchange, lie.encode())
        if sender_hears_all or lie.content is None:
            exchange.parties[0].machine.handle_message(lie.encode(), at(exchange.now_ms))
    exchange.run(exchange.now_ms + T_MAX_MS)
    answering = exchange.parties if sender_hears_all else exchange.parties[1:]
    assert sum(party.count(TransmitKind.REPAIR) for party in answering) >= 1
