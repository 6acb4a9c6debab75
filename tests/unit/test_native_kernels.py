"""How the kernels were compiled."""

from __future__ import annotations

import re
from pathlib import Path

from shardwire import _native


def test_no_instruction_is_a_function_call() -> None:
    """An intrinsic that the compiler could not inline into its kernel is called for every register: a third of the
    speed, and right all the same. It leaves its name among the symbols of the library."""
    library = Path(_native.__file__).read_bytes()
    assert b"shardwire_core" in library, "the library has no symbols to look at"
    assert not re.findall(rb"core_arch\w*_mm\w*", library)
