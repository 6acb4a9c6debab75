"""Every limit at its value and one past it, every reason of an outcome, whatever a caller or a peer hands over."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from shardwire import ConfigError, InvalidSegmentError
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    ReassemblyLimits,
    SegmentationConfig,
    SegmentDiscarded,
    SegmentStored,
    SetDropped,
    inspect,
    segment,
)

SIZE = 256
CONFIG = SegmentationConfig(segment_size_bytes=SIZE, enable_reed_solomon=True, parity_rate=0.5)


def config(**limits: Any) -> SegmentationConfig:
    return dataclasses.replace(CONFIG, limits=ReassemblyLimits(**limits))


def wire_of(seed: int, data_segments: int = 4) -> list[bytes]:
    return segment(random.Random(seed).randbytes(data_segments * SIZE), CONFIG)


def altered(data: bytes, seed: int = 0) -> bytes:
    """The same header around other bytes."""
    start, stop = 100, len(data) - 20
    return data[:start] + random.Random(repr((seed, data))).randbytes(stop - start) + data[stop:]


# --- limits ---


def sets_kept(count: int, authenticated: bool = True, **limits: Any) -> bool:
    """Whether as many sets, each of its own sender unless authenticated, are held together."""
    reassembler = Reassembler(config(**limits))
    for number in range(count):
        sender = "a" if authenticated else f"a{number}"
        reassembler.receive(wire_of(number)[0], now_ms=0, sender=sender, authenticated=authenticated)
    return reassembler.stats()["sets_held"] == count


def bytes_kept(past: int, authenticated: bool = True, share: float = 1.0, **scale: int) -> bool:
    """Whether three sets are held where the budget is `past` bytes less than they are."""
    wire = [wire_of(number, data_segments=2)[0] for number in range(3)]
    held = sum(map(len, wire)) - past
    limits: dict[str, Any] = {field: held * times for field, times in scale.items()}
    reassembler = Reassembler(config(unauthenticated_share=share, **limits))
    for number, data in enumerate(wire):
        sender = "a" if authenticated else f"a{number}"
        reassembler.receive(data, now_ms=0, sender=sender, authenticated=authenticated)
    return reassembler.stats()["sets_held"] == 3


def candidates_kept(count: int, limit: int) -> bool:
    reassembler = Reassembler(config(candidates_per_slot_max=limit))
    outcomes = [reassembler.receive(altered(wire_of(1)[0], seed), now_ms=0) for seed in range(count)]
    return all(isinstance(outcome, SegmentStored) for outcome in outcomes)


def completion_known_after(others: int, limit: int) -> bool:
    reassembler = Reassembler(config(completed_remembered_max=limit))
    wire = [segment(bytes([number]), CONFIG)[0] for number in range(others + 1)]
    for data in wire:
        assert isinstance(reassembler.receive(data, now_ms=0), PayloadReconstructed)
    return isinstance(reassembler.receive(wire[0], now_ms=0), SegmentDiscarded)


def set_lives(until_ms: int, timeout_ms: int) -> bool:
    reassembler = Reassembler(config(timeout_ms=timeout_ms))
    reassembler.receive(wire_of(1)[0], now_ms=1_000)
    return reassembler.expire(1_000 + until_ms) == []


def crafted(config: SegmentationConfig) -> tuple[bytes, list[bytes], list[bytes]]:
    """A payload, its segments with five wrong ones that are alike at one offset, and those five as they should be."""
    payload = random.Random(11).randbytes(24 * SIZE)
    wire = segment(payload, config)
    assert len(wire) == 32
    genuine = []
    for ordinal in (2, 5, 11, 17, 29):
        genuine.append(wire[ordinal])
        data = bytearray(wire[ordinal])
        data[-100] ^= ordinal | 64
        wire[ordinal] = bytes(data)
    return payload, wire, genuine


def searching(work_budget: int) -> SegmentationConfig:
    return dataclasses.replace(CONFIG, parity_rate=1 / 3, limits=ReassemblyLimits(work_budget=work_budget))


def set_survives(rivals: int, work_budget: int) -> bool:
    """Whether a set of eight, one of them wrong, outlives the attempts that wrong rivals of the others bring about."""
    config = SegmentationConfig(segment_size_bytes=SIZE, limits=ReassemblyLimits(work_budget=work_budget))
    *genuine, last = segment(random.Random(3).randbytes(8 * SIZE), config)
    reassembler = Reassembler(config)
    for data in [*genuine, altered(last), *map(altered, genuine[:rivals])]:
        # Nobody's name tells them apart: as many payloads are hashed as there are choices.
        outcome = reassembler.receive(data, now_ms=0)
        if isinstance(outcome, SetDropped):
            return False
    return True


LIMITS: dict[str, tuple[Callable[[], bool], Callable[[], bool]]] = {
    "sets_max": (lambda: sets_kept(3, sets_max=3), lambda: sets_kept(4, sets_max=3)),
    "sets_per_sender_max": (
        lambda: sets_kept(3, sets_per_sender_max=3),
        lambda: sets_kept(4, sets_per_sender_max=3),
    ),
    "buffered_bytes_max": (
        lambda: bytes_kept(0, buffered_bytes_max=1),
        lambda: bytes_kept(1, buffered_bytes_max=1),
    ),
    "buffered_bytes_per_sender_max": (
        lambda: bytes_kept(0, buffered_bytes_per_sender_max=1),
        lambda: bytes_kept(1, buffered_bytes_per_sender_max=1),
    ),
    "unauthenticated_share": (
        lambda: (
            sets_kept(3, False, sets_max=6, unauthenticated_share=0.5)
            and bytes_kept(0, False, 0.5, buffered_bytes_max=2)
        ),
        lambda: (
            sets_kept(4, False, sets_max=6, unauthenticated_share=0.5)
            or bytes_kept(1, False, 0.5, buffered_bytes_max=2)
        ),
    ),
    "candidates_per_slot_max": (lambda: candidates_kept(3, 3), lambda: candidates_kept(4, 3)),
    "completed_remembered_max": (lambda: completion_known_after(2, 3), lambda: completion_known_after(3, 3)),
    "timeout_ms": (lambda: set_lives(499, 500), lambda: set_lives(500, 500)),
    "work_budget": (lambda: set_survives(4, 15), lambda: set_survives(4, 14)),
}


def test_every_limit_has_a_case() -> None:
    assert LIMITS.keys() == {field.name for field in dataclasses.fields(ReassemblyLimits)}


@pytest.mark.parametrize("name", LIMITS)
def test_at_the_limit_and_one_past_it(name: str) -> None:
    at, past = LIMITS[name]
    assert at()
    assert not past()


def test_a_spent_budget_drops_the_set_and_genuine_segments_begin_anew() -> None:
    small = config(work_budget=1)
    reassembler = Reassembler(small)
    wire = wire_of(3)
    outcomes = [reassembler.receive(altered(data, seed), now_ms=0) for seed in range(4) for data in wire]
    dropped = [outcome for outcome in outcomes if isinstance(outcome, SetDropped)]
    assert {outcome.reason for outcome in dropped} == {"HashMismatch"}
    reassembler.expire(10**9)
    assert any(isinstance(reassembler.receive(data, now_ms=0), PayloadReconstructed) for data in wire)


@pytest.mark.parametrize(("work_budget", "keeps_the_set"), [(1, False), (2, False), (3, False), (4, True), (32, True)])
def test_genuine_segments_reopen_the_attempt_after_a_search_that_was_too_long(
    work_budget: int, keeps_the_set: bool
) -> None:
    payload, wire, genuine = crafted(searching(32))
    reassembler = Reassembler(searching(work_budget))
    # One more than can be located or searched for.
    wire[20] = altered(wire[20])
    outcomes = [reassembler.receive(data, now_ms=0) for data in wire]
    assert not any(isinstance(outcome, PayloadReconstructed) for outcome in outcomes)
    dropped = any(isinstance(outcome, SetDropped) for outcome in outcomes)
    outcomes = [reassembler.receive(data, now_ms=0) for data in genuine]
    dropped |= any(isinstance(outcome, SetDropped) for outcome in outcomes)
    assert dropped != keeps_the_set
    # What was dropped has to come again; otherwise the segments that were wrong are enough.
    outcomes += [reassembler.receive(data, now_ms=0) for data in ([*genuine, *wire] if dropped else [])]
    assert [outcome.payload for outcome in outcomes if isinstance(outcome, PayloadReconstructed)] == [payload]


@pytest.mark.parametrize("forged_segments", [1, 2, 3])
def test_a_flood_of_ids_that_fills_the_bytes_leaves_a_slow_sender_alone(forged_segments: int) -> None:
    small = config(sets_max=1_000_000, sets_per_sender_max=1_000_000, buffered_bytes_max=400_000)
    reassembler = Reassembler(small)
    payload = random.Random(5).randbytes(40 * SIZE)
    honest = segment(payload, CONFIG)
    found = []
    # Twice within the time that the flood needs to fill the bytes, then slowly.
    for data in honest[:4]:
        reassembler.receive(data, now_ms=0, sender="honest")
    for number in range(10_000):
        for data in wire_of(number)[:forged_segments]:
            reassembler.receive(data, now_ms=0, sender=f"forged {number}")
        if number % 200 == 199:
            found.append(reassembler.receive(honest[4 + number // 200], now_ms=0, sender="honest"))
    assert reassembler.stats()["Evicted"] > 9_000
    assert reassembler.stats()["bytes_held"] <= 200_000
    assert [outcome.payload for outcome in found if isinstance(outcome, PayloadReconstructed)] == [payload]


def test_a_few_large_ids_do_not_keep_small_senders_out() -> None:
    small = config(buffered_bytes_max=400_000, buffered_bytes_per_sender_max=100_000)
    reassembler = Reassembler(small)
    for number in range(8):
        wire = wire_of(number, data_segments=100)
        for data in wire[:95]:
            reassembler.receive(data, now_ms=0, sender=f"large {number}")
    payload = random.Random(5).randbytes(8 * SIZE)
    outcomes = [reassembler.receive(data, now_ms=1, sender="small") for data in segment(payload, CONFIG)]
    assert any(isinstance(outcome, PayloadReconstructed) for outcome in outcomes)


# --- reasons ---


def by_evicting() -> list[SetDropped]:
    reassembler = Reassembler(config(sets_max=1))
    for number in range(2):
        reassembler.receive(wire_of(number)[0], now_ms=0, sender="a", authenticated=True)
    return reassembler.poll_dropped()


def by_expiring() -> list[SetDropped]:
    reassembler = Reassembler(CONFIG)
    reassembler.receive(wire_of(0)[0], now_ms=0)
    return reassembler.expire(300_000)


def last_of(*received: bytes, **limits: Any) -> list[Any]:
    reassembler = Reassembler(config(**limits))
    return [[reassembler.receive(data, now_ms=0) for data in received][-1]]


REASONS: dict[str, Callable[[], list[Any]]] = {
    "Undecodable": lambda: last_of(b"\x0a\xff"),
    "Invalid": lambda: last_of(b""),
    "Oversized": lambda: last_of(wire_of(0)[0], buffered_bytes_max=1_000),
    "Duplicate": lambda: last_of(wire_of(0)[0], wire_of(0)[0]),
    "CountMismatch": lambda: last_of(
        *wire_of(0)[:2], segment(random.Random(0).randbytes(4 * SIZE), dataclasses.replace(CONFIG, parity_rate=0.25))[0]
    ),
    "QuotaExceeded": lambda: last_of(wire_of(0)[0], altered(wire_of(0)[0]), candidates_per_slot_max=1),
    "AlreadyCompleted": lambda: last_of(segment(b"x", CONFIG)[0], segment(b"x", CONFIG)[0]),
    "Expired": by_expiring,
    "Evicted": by_evicting,
    "HashMismatch": lambda: last_of(segment(b"one", CONFIG)[0].replace(b"one", b"two")),
}


def test_every_reason_has_a_case() -> None:
    assert REASONS.keys() == {name for name in Reassembler(CONFIG).stats() if name[0].isupper()}


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_given_and_its_detail_says_why(reason: str) -> None:
    [outcome] = REASONS[reason]()
    assert isinstance(outcome, SetDropped if reason in ("Expired", "Evicted", "HashMismatch") else SegmentDiscarded)
    assert outcome.reason == reason
    assert isinstance(outcome, SetDropped) or outcome.detail


def test_the_detail_of_a_full_position_names_the_limit() -> None:
    [outcome] = REASONS["QuotaExceeded"]()
    assert outcome.detail == "data segment 0 has 1 candidates: at most 1"


# --- whatever comes ---


@pytest.mark.parametrize("wire_format", ["raw", "draft", "lip243"])
def test_bytes_of_any_kind_are_outcomes(wire_format: Any) -> None:
    receiving = dataclasses.replace(CONFIG, wire_format=wire_format, segment_size_bytes=SIZE + 128)
    others = [
        segment(bytes(2_000), dataclasses.replace(receiving, wire_format=other))[0]
        for other in ("raw", "draft", "lip243")
    ]
    megabyte = b"\x0a" + b"\x80\x80\x40" + bytes(1 << 20)
    reassembler = Reassembler(receiving)
    for data in [b"", b"\x00", bytes(1 << 20), b"\xff" * (1 << 20), megabyte, *others]:
        for buffer in (data, bytearray(data), memoryview(data), memoryview(bytes(2 * len(data)))[::2]):
            outcome = reassembler.receive(buffer, now_ms=0, sender="s" * 1_000, message_key=b"k" * 1_000)
            assert isinstance(outcome, SegmentStored | SegmentDiscarded | SetDropped | PayloadReconstructed)
            with contextlib.suppress(InvalidSegmentError):
                inspect(buffer, wire_format=wire_format)
    assert reassembler.stats()["bytes_held"] < 100_000


def test_a_clock_that_goes_back_or_far_loses_nothing() -> None:
    reassembler = Reassembler(CONFIG)
    wire = wire_of(0)
    for data, now_ms in zip(wire, (10**6, 0, -(2**63)), strict=False):
        assert isinstance(reassembler.receive(data, now_ms=now_ms), SegmentStored)
    assert reassembler.expire(-(2**63)) == []
    assert reassembler.receive(wire[3], now_ms=2**63 - 1).entire_message_hash  # type: ignore[union-attr]
    reassembler.receive(wire_of(1)[0], now_ms=2**63 - 1)
    assert reassembler.next_expiry_ms() == 2**63 - 1
    assert [dropped.reason for dropped in reassembler.expire(2**63 - 1)] == ["Expired"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"segment": "text"}, TypeError, "object is required, not str: encode the text"),
        ({"segment": None}, TypeError, "object is required, not NoneType: give bytes"),
        ({"segment": [1, 2]}, TypeError, "bytes-like object is required, not list"),
        ({"now_ms": float("nan")}, TypeError, "now_ms must be an integer of milliseconds, not float"),
        ({"now_ms": "0"}, TypeError, "now_ms must be an integer of milliseconds, not str"),
        ({"now_ms": None}, TypeError, "now_ms must be an integer of milliseconds, not NoneType"),
        ({"now_ms": 2**63}, ConfigError, "now_ms is 9223372036854775808: .* to 9223372036854775807"),
        ({"now_ms": -(2**63) - 1}, ConfigError, "now_ms is -9223372036854775809: .* from -9223372036854775808"),
        ({"sender": b"alice"}, TypeError, "sender must be a str or None, not bytes"),
        ({"sender": "\ud800"}, ConfigError, "sender is .*UTF-8"),
        ({"authenticated": 1}, TypeError, "authenticated is 1: it must be True or False"),
        ({"message_key": "key"}, TypeError, "message_key must be a bytes-like .*, not str: encode the text"),
    ],
)
def test_mistakes_of_a_caller_raise_at_once(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    reassembler = Reassembler(CONFIG)
    with pytest.raises(error, match=message):
        reassembler.receive(**{"segment": b"", "now_ms": 0, **arguments})
    assert reassembler.stats()["received"] == 0
    if "now_ms" in arguments:
        with pytest.raises(error, match=message):
            reassembler.expire(**arguments)


@pytest.mark.parametrize("key", [b"key", bytearray(b"key"), memoryview(b"key"), memoryview(b"k.e.y")[::2]])
def test_a_message_key_is_any_buffer(key: Any) -> None:
    reassembler = Reassembler(CONFIG)
    [data] = segment(b"x", CONFIG)
    assert isinstance(reassembler.receive(data, now_ms=0, message_key=key), PayloadReconstructed)
    again = reassembler.receive(data, now_ms=0, message_key=b"key")
    assert isinstance(again, SegmentDiscarded)


@pytest.mark.parametrize("config", [{}, ReassemblyLimits()])
def test_what_is_no_configuration_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match=f"config is {type(config).__name__}: it must be a SegmentationConfig"):
        Reassembler(config)


@pytest.mark.parametrize(
    "arguments",
    [{"wire_format": None}, {"wire_format": "RAW"}]
    + [{"max_total_segments": value} for value in (-1, 0, 257, 1 << 40, 1.5, None, True)],
)
def test_inspect_names_what_it_does_not_take(arguments: dict[str, Any]) -> None:
    [(name, value)] = arguments.items()
    with pytest.raises(ConfigError, match=f"{name} is .?{value}.?: it must be"):
        inspect(wire_of(0)[0], **arguments)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ReassemblyLimits)])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", None, True])
def test_limits_that_are_none_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        ReassemblyLimits(**{field: value})


def test_a_limit_that_is_too_large_is_told_the_largest() -> None:
    with pytest.raises(ConfigError, match=r"work_budget is 9223372036854775808: .* from 1 to 9223372036854775807"):
        ReassemblyLimits(work_budget=1 << 63)


@pytest.mark.parametrize("row", [("put_segment", b"k"), (1, b"k", b"v"), "row", 7, ("put_segment", "k", b"v")])
def test_records_of_another_shape_raise(row: Any) -> None:
    with pytest.raises(TypeError, match=r"records\[1\]: it must be a tuple of a str and two bytes"):
        Reassembler(CONFIG).restore([("put_segment", b"", b""), row])
    with pytest.raises(TypeError, match="records is int: it must be a list"):
        Reassembler(CONFIG).restore(7)  # type: ignore[arg-type]
