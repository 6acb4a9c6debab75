"""Files that are whole or not there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shardwire.durable_files import appears_whole


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a"
    with pytest.raises(FileNotFoundError) as missing, appears_whole(path):
        pass
    assert missing.value.filename == str(path)
    path = tmp_path / "a"
    with pytest.raises(OSError, match="No space") as full, appears_whole(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing, appears_whole(tmp_path / "a"):
        (tmp_path / "b").read_bytes()
    assert missing.value.filename == str(tmp_path / "b")
