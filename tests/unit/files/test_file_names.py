"""A name that a peer suggests is one component of a path, visible, and means the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwire.files.names import fault_of


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "report.pdf",
        "a b.tar.gz",
        "naïve 文件.txt",
        "con fused.txt",
        "x" * 255,
        "a..b",
        "👩\u200d🚀.png",
        "$HOME",
    ],
)
def test_ordinary_names_pass(name: str) -> None:
    assert fault_of(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../evil",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "..\\evil",
        "C:evil",
        "file.txt:stream",
        ".hidden",
        "trailing.",
        "trailing ",
        " leading",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "a\u2028b",
        "gpj.\u202eexe",
        "con",
        "CON.txt",
        "nul .txt",
        "Com1.log",
        "lpt²",
        "what?",
        "a*",
        "x" * 256,
        "é" * 128,
        "\udc80",
    ],
)
def test_others_do_not(name: str) -> None:
    assert fault_of(name) is not None


@given(st.text(max_size=30) | st.text(alphabet="./\\:. \0cC", max_size=8))
def test_what_passes_stays_in_the_directory(name: str) -> None:
    if fault_of(name) is not None:
        return
    assert os.path.normpath(Path("chosen") / name) == str(Path("chosen") / name)
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind("chosen") / name
        assert path.parent == kind("chosen")
        assert path.name == name
