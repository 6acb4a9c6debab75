"""Settings of every test."""

from __future__ import annotations

import os

from hypothesis import settings

# The examples of a test are those of its code, so that a change is judged by what it does and not by luck; the profile
# `search` draws new ones at every run.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
