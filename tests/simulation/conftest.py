"""Settings of every simulation."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _quiet_channels() -> None:
    """Faults are what a simulation is made of: they are not worth a line each."""
    logging.getLogger("shardwire").setLevel(logging.CRITICAL)
