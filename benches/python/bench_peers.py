"""The cases of `peers.py` under pytest-benchmark, which measures one candidate after the other. Run by `make bench`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from benches.python.peers import CASES, Case

CANDIDATES = [(name, candidate) for name, (_, candidates) in CASES.items() for candidate in candidates]


@functools.lru_cache(maxsize=1)
def case_of(name: str) -> Case:
    return CASES[name][0]()


@pytest.mark.parametrize(("name", "candidate"), CANDIDATES)
def test_candidate(name: str, candidate: str, benchmark: Callable[..., Any]) -> None:
    case = case_of(name)
    if candidate not in case.candidates:
        pytest.skip(f"not installed: {', '.join(case.absent)}")
    benchmark.group = case.name
    benchmark(case.candidates[candidate])
