"""SDS-R, the Lamport rule and content ids against what @waku/sds computes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from conformance.vector_files import load

from shardwire._native import (
    HistoryEntry,
    MessageChannel,
    Now,
    SdsMessage,
    farmhash64,
    in_response_group,
    request_offset_ms,
    response_offset_ms,
)
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.sds import TransmitKind

LOGOS = ChannelConfig.logos()
INT64_MAX = (1 << 63) - 1


def machine(sds: SdsConfig, now: Now) -> MessageChannel:
    sync = replace(LOGOS.sync, sync_min_interval_ms=0)
    return MessageChannel("room", "alice", sds, sync, now=now, rng=random.Random(1))


def message(sds: SdsConfig, **fields: Any) -> bytes:
    fields = {"message_id": f"{1:032x}.0", "content": b"0/1/1|text", **fields}
    return SdsMessage(sender_id="bob", channel_id="room", **fields).encode(sds.wire_format)


def test_repair_hash() -> None:
    examples = load("sds_repair")["hash_examples"]
    assert len(examples) == 8
    for text, value in examples:
        assert request_offset_ms("", text, 0, INT64_MAX) == int(value) % INT64_MAX


def test_every_row_of_t_req_t_resp_and_response_group() -> None:
    rows = load("sds_repair")["rows"]
    assert len(rows) == 180
    for row in rows:
        config = row["config"]
        me, sender, message_id = row["participant"], row["sender"], row["message_id"]
        assert request_offset_ms(me, message_id, config["t_min"], config["t_max"]) == row["t_req_offset"], row
        assert response_offset_ms(me, sender, message_id, config["t_max"]) == row["t_resp_offset"], row
        groups = config["num_response_groups"]
        assert in_response_group(me, sender, message_id, groups) == row["in_response_group"], row


def test_every_row_under_nim() -> None:
    rows = load("nim_derived")["sds_repair"]
    assert len(rows) == 18
    for row in rows:
        me, sender, message_id = row["participant"], row["sender"], row["message_id"]
        assert request_offset_ms(me, message_id, row["t_min"], row["t_max"], "nim") == row["t_req_offset"], row
        assert response_offset_ms(me, sender, message_id, row["t_max"], "nim") == row["t_resp_offset"], row
        mine, senders = row["groups5"]
        assert in_response_group(me, sender, message_id, 5, "nim") == (mine == senders), row


def test_nim_hashes() -> None:
    cases = load("nim_derived")["hash"]
    assert len(cases) > 10
    for case in cases:
        assert farmhash64(case["input"]) == int(case["hash_i64"]), case["input"]


@pytest.mark.parametrize("wire_format", ["spec", "nim"])
def test_the_wire_decides_how_the_machine_hashes(wire_format: Any) -> None:
    """The moment of a request, from the outside: under "nim" it is nim-sds's."""
    sds = replace(LOGOS.sds, wire_format=wire_format)
    alice = machine(sds, Now(0, 1_000))
    alice.handle_message(message(sds, lamport_timestamp=1, causal_history=[HistoryEntry("m1")]), Now(1_000, 2_000))
    expected_ms = 1_000 + request_offset_ms("alice", "m1", 30_000, 120_000, wire_format)
    assert alice.inspect()["repair_requests"] == {"m1": expected_ms}
    alice.handle_timeout(Now(31_000, 32_000))
    assert alice.inspect()["repair_requests"] == {"m1": expected_ms}


def sent_lamport(alice: MessageChannel, now: Now, sds: SdsConfig = LOGOS.sds) -> int | None:
    number = len(alice.sends())
    alice.send(f"{number:032x}", [b"text"], contents_needed=1)
    transmit = alice.poll_transmit(now, {TransmitKind.FIRST, TransmitKind.FURTHER})
    assert transmit is not None
    decoded = SdsMessage.decode(transmit.payload, sds.wire_format)
    assert decoded is not None
    return decoded.lamport_timestamp


@pytest.mark.parametrize("case", load("lamport")["cases"], ids=str)
def test_lamport_on_send(case: dict[str, Any]) -> None:
    now = Now(0, case["now_ms"])
    assert machine(LOGOS.sds, now).lamport_timestamp == case["now_ms"]
    alice = machine(LOGOS.sds, Now(0, int(case["current"])))
    assert alice.lamport_timestamp == int(case["current"])
    assert sent_lamport(alice, now) == int(case["after_send"])


def test_lamport_on_delivery_takes_the_larger_and_adds_nothing() -> None:
    alice = machine(LOGOS.sds, Now(0, 1_000))
    for number, lamport in ((1, 1_500), (2, 1_200)):
        send_id = f"{number:032x}"
        alice.handle_message(message(LOGOS.sds, lamport_timestamp=lamport, message_id=f"{send_id}.0"), Now(0, 1_000))
        alice.handle_content_placed(f"{send_id}.0", send_id, 0, 1, 1, Now(0, 1_000))
        alice.handle_send_reconstructed("bob", send_id, 1, Now(0, 1_000))
        assert alice.lamport_timestamp == 1_500


def test_lamport_under_nim_counts_seconds() -> None:
    nim = replace(LOGOS.sds, wire_format="nim")
    now = Now(0, 1_760_000_000_999)
    alice = machine(nim, now)
    assert alice.lamport_timestamp == 0
    assert sent_lamport(alice, now, nim) == 1_760_000_001
    assert sent_lamport(alice, now, nim) == 1_760_000_002


def test_content_ids() -> None:
    cases = load("sds_message_id")["cases"]
    assert len(cases) > 4
    alice = machine(replace(LOGOS.sds, message_id="content-sha256"), Now(0, 0))
    for number, case in enumerate(cases):
        payload = bytes.fromhex(case["payload_hex"])
        if payload:
            assert alice.send(str(number), [payload], contents_needed=1) == (case["message_id"],)
