"""Bloom filters equal those of @waku/sds, and what was derived of nim-sds, bit for bit."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from conformance.vector_files import load

from shardwire._native import BloomFilter

FILTERS = [
    filter_
    for filter_ in load("bloom")["filters"]
    # A forced number of hashes or bits is an option of the peer's class that no SDS channel uses.
    if filter_.get("options", {}).get("k_hashes") is None
    and filter_.get("options", {}).get("force_n_bits_per_elem") is None
    and "derived" in filter_
]
NIM = load("nim_derived")
HASHN = load("hashn")


def _set_bits(data: bytes, *, big_endian: bool) -> list[int]:
    bits = []
    for word in range(len(data) // 8):
        value = int.from_bytes(data[word * 8 : word * 8 + 8], "big" if big_endian else "little")
        bits += [word * 64 + bit for bit in range(64) if value >> bit & 1]
    return bits


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case["name"])
def test_spec_filters_are_byte_equal(case: dict[str, Any]) -> None:
    options, derived = case["options"], case["derived"]
    bloom = BloomFilter(options["capacity"], options["error_rate"], "spec")
    assert (bloom.hash_count, bloom.bit_count) == (derived["k"], derived["m_bits"])
    bloom.insert_many(case["inserted"])
    data = bloom.to_bytes()
    assert len(data) == bloom.size_bytes == derived["bytes"]
    assert hashlib.sha256(data).hexdigest() == case["bytes_sha256"]
    assert _set_bits(data, big_endian=True) == case["set_bits"]
    ids = [message_id for message_id, _ in case["lookups"]]
    held = [position for position, (_, held) in enumerate(case["lookups"]) if held]
    assert [position for position, message_id in enumerate(ids) if message_id in bloom] == held
    assert BloomFilter(options["capacity"], options["error_rate"], "spec").review(data, ids) == held


@pytest.mark.parametrize("case", NIM["bloom"], ids=lambda case: f"{case['capacity']}-{len(case['inserted'])}")
def test_nim_filters_are_byte_equal(case: dict[str, Any]) -> None:
    bloom = BloomFilter(case["capacity"], case["error_rate"], "nim")
    assert (bloom.hash_count, bloom.bit_count) == (case["k"], case["m_bits"])
    bloom.insert_many(case["inserted"])
    data = bloom.to_bytes()
    assert len(data) == bloom.size_bytes == case["serialized_len"]
    assert hashlib.sha256(data).hexdigest() == case["serialized_sha256"]
    ids = [message_id for message_id, _ in case["lookups"]]
    held = [position for position, (_, held) in enumerate(case["lookups"]) if held]
    assert bloom.review(data, ids) == held
    copy = BloomFilter(case["capacity"], case["error_rate"], "nim")
    assert copy.load(data)
    assert copy.to_bytes() == data


# The default filter has 150,000 bits, one of the sizes that the hash vectors cover: the bits that one id sets there
# are the positions they list. Non-ASCII ids are hashed as UTF-8 here, as the specification's own vectors are.
def test_string_hashes_set_the_bits_of_the_vectors() -> None:
    numbers = HASHN["n"]
    checked = 0
    for case in HASHN["vectors"]:
        if case["max"] != 150_000 or not case["input"].isascii():
            continue
        bloom = BloomFilter(10_000, 0.001, "spec")
        bloom.insert(case["input"])
        bits = set(_set_bits(bloom.to_bytes(), big_endian=True))
        positions = {position for number, position in zip(numbers, case["hashes"], strict=True) if number < 10}
        assert positions <= bits
        checked += 1
    assert checked >= 10


def test_nim_string_hashes_set_the_bits_of_the_vectors() -> None:
    for case in NIM["hash"]:
        bloom = BloomFilter(10_000, 0.001, "nim")
        bloom.insert(case["input"])
        words = bloom.to_bytes()
        # The envelope's first field: one key byte, a three byte length, then the words.
        bits = set(_set_bits(words[4 : 4 + 2344 * 8], big_endian=False))
        assert set(case["hashN_150000"]) <= bits
        assert len(bits) <= 10


def _named(rule: str, count: int) -> list[str]:
    return [hashlib.sha256(f"{rule}-{number}".encode()).hexdigest() for number in range(count)]


def test_full_filters_are_byte_equal_and_err_on_the_same_ids() -> None:
    cases = {case["name"]: case for case in load("bloom")["filters"]}
    overfull = cases["overfull_100_0.01_200ids"]
    bloom = BloomFilter(100, 0.01, "spec")
    bloom.insert_many(_named("many", 200))
    assert bloom.to_bytes().hex() == overfull["bytes_hex"]
    assert bloom.review(bloom.to_bytes(), _named("probe", 2_000)) == overfull["false_positive_probe_indices"]
    full = cases["full_10000_0.001"]
    bloom = BloomFilter(10_000, 0.001, "spec")
    bloom.insert_many(_named("full", 10_000))
    assert hashlib.sha256(bloom.to_bytes()).hexdigest() == full["bytes_sha256"]
    held = bloom.review(bloom.to_bytes(), _named("nf", 20_000))
    assert held is not None
    assert len(held) == full["false_positives"]
