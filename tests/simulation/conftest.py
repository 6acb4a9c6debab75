"""Settings of every simulation."""

from __future__ import annotations

import pytest

from tests.simulation.processes import quiet


@pytest.fixture(autouse=True)
def _quiet_channels() -> None:
    """Faults are what a simulation is made of: they are not worth a line each."""
    quiet()
