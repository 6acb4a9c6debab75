"""Processes killed in the middle of a conversation. `python -m tests.faults.kill --count 500` goes on for longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Each of the named points, and random moments, twice.
LIVES = 44


@pytest.mark.slow
@pytest.mark.parametrize("redelivery", ["at-least-once", "at-most-once"])
def test_what_killed_processes_leave_behind(redelivery: str) -> None:
    """In a process of its own: it forks, which a test runner with threads should not."""
    command = [sys.executable, "-m", "tests.faults.kill", "--count", str(LIVES), "--redelivery", redelivery]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
