"""SDS-R, the Lamport rule and content ids against what @waku/sds computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conformance.vector_files import load

from shardwire._native import HistoryEntry, LocalLog, farmhash64
from shardwire.config import ChannelConfig
from shardwire.sds import Now
from shardwire.sds.identity import message_ids_of
from shardwire.sds.lamport import LamportClock
from shardwire.sds.repair import (
    REPAIR_HASHES,
    Repair,
    in_response_group,
    repair_hash,
    request_offset_ms,
    response_offset_ms,
)


def test_repair_hash() -> None:
    examples = load("sds_repair")["hash_examples"]
    assert len(examples) == 8
    for text, value in examples:
        assert repair_hash(text) == int(value)


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
        assert request_offset_ms(me, message_id, row["t_min"], row["t_max"], farmhash64) == row["t_req_offset"], row
        assert response_offset_ms(me, sender, message_id, row["t_max"], farmhash64) == row["t_resp_offset"], row
        mine, senders = row["groups5"]
        assert in_response_group(me, sender, message_id, 5, farmhash64) == (mine == senders), row


def test_nim_hashes() -> None:
    cases = load("nim_derived")["hash"]
    assert len(cases) > 10
    for case in cases:
        assert farmhash64(case["input"]) == int(case["hash_i64"]), case["input"]


def test_the_wire_decides_how_the_machine_hashes() -> None:
    """The moment of a request, from the outside: under "nim" it is nim-sds's."""
    for wire_format, hashed in REPAIR_HASHES.items():
        repair = Repair(
            replace(ChannelConfig.logos().sds, wire_format=wire_format), "alice", LocalLog(1, str).entries, syncs=True
        )
        repair.on_missing(HistoryEntry("m1"), 1_000)
        repair.settle(31_000)
        assert repair.next_request_ms() == 1_000 + request_offset_ms("alice", "m1", 30_000, 120_000, hashed)


@pytest.mark.parametrize("case", load("lamport")["cases"], ids=str)
def test_lamport_on_send(case: dict[str, Any]) -> None:
    now = Now(0, case["now_ms"])
    clock = LamportClock("spec", 300_000, now)
    assert clock.timestamp == case["now_ms"]
    clock.timestamp = int(case["current"])
    assert clock.tick(now) == int(case["after_send"])


def test_lamport_on_delivery_takes_the_larger_and_adds_nothing() -> None:
    clock = LamportClock("spec", 300_000, Now(0, 1_000))
    clock.observe(1_500)
    assert clock.timestamp == 1_500
    clock.observe(1_200)
    assert clock.timestamp == 1_500


def test_lamport_under_nim_counts_seconds() -> None:
    clock = LamportClock("nim", 300_000, Now(0, 1_760_000_000_999))
    assert clock.timestamp == 0
    assert clock.tick(Now(0, 1_760_000_000_999)) == 1_760_000_001
    assert clock.tick(Now(0, 1_760_000_000_999)) == 1_760_000_002


def test_content_ids() -> None:
    cases = load("sds_message_id")["cases"]
    assert len(cases) > 4
    for case in cases:
        payload = bytes.fromhex(case["payload_hex"])
        assert message_ids_of("content-sha256", "any", [payload]) == (case["message_id"],)
