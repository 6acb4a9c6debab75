"""Parity shards equal those of catid/leopard and of klauspost/reedsolomon, through the Python boundary."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import pytest
from conformance.vector_files import data_shards, load

from shardwire import erasure
from shardwire.errors import ConfigError

Code = Literal["leopard", "vandermonde"]
CASES: list[tuple[Code, dict[str, Any]]] = [("leopard", case) for case in load("leopard_ff8")["cases"]]
CASES += [("vandermonde", case) for case in load("vandermonde")["cases"]]


def _supported(code: Code, case: dict[str, Any]) -> bool:
    # catid changes to another field where the points exceed 256; it refuses more parity than data.
    return "error" not in case and (code == "vandermonde" or case["field"] != "ff16")


def _name(code: Code, case: dict[str, Any]) -> str:
    return f"{code}-{case['k']}-{case['m']}-{case['shard']}"


@pytest.mark.parametrize(
    ("code", "case"), [pytest.param(code, case, id=_name(code, case)) for code, case in CASES if _supported(code, case)]
)
def test_parity_is_byte_equal_and_data_comes_back(code: Code, case: dict[str, Any]) -> None:
    data_count, parity_count = case["k"], case["m"]
    data = data_shards(data_count, case["shard"])
    parity = erasure.encode(data, parity_count, code)
    assert [hashlib.sha256(shard).hexdigest() for shard in parity] == case["parity_sha256"]
    lost = min(data_count, parity_count)
    shards = [*([None] * lost), *data[lost:], *parity]
    assert erasure.reconstruct(shards, data_count, parity_count, code) == data


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=_name(code, case)) for code, case in CASES if not _supported(code, case)],
)
def test_what_leopard_ff8_cannot_hold_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=str(case["m"])):
        erasure.encode(data_shards(case["k"], case["shard"]), case["m"], "leopard")
