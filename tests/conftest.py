"""Settings of every test."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The examples of a test are those of its code, so that a change is judged by what it does and not by luck; the profile
# `search` draws new ones at every run.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def _same_log_level() -> Iterator[None]:
    """What a test does to the level of our logger ends with it: simulations and benchmarks turn it down."""
    logger = logging.getLogger("shardwire")
    level = logger.level
    yield
    logger.setLevel(level)
