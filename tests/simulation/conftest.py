"""Settings of every simulation."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet_channels() -> Iterator[None]:
    """Faults are what a simulation is made of: they are not worth a line each."""
    logger = logging.getLogger("shardwire")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
