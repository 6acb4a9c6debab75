"""Worlds in several processes."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Outcome = TypeVar("Outcome")


def run_many(
    run: Callable[[int], Outcome], seeds: Iterable[int], jobs: int, *, worlds_at_once: int = 1
) -> Iterator[Outcome]:
    """Runs the world of each seed, in `jobs` processes; their outcomes in the order of the seeds."""
    with multiprocessing.get_context("spawn").Pool(jobs, quiet) as pool:
        yield from pool.imap(run, seeds, chunksize=worlds_at_once)


def quiet() -> None:
    """Channels warn of every fault that a world has."""
    logging.getLogger("shardwire").setLevel(logging.CRITICAL)
