"""A directory that comes into being as a whole, in the place of an earlier one and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwire import ConfigError
from shardwire.archive.places import Output


def make(path: Path, content: str, *, replace: bool = False) -> None:
    with Output(path, [], replace=replace) as place:
        (place.staging / "part-0.parquet").write_text(content)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_a_run_that_was_killed_left_is_removed_by_the_next(tmp_path: Path) -> None:
    make(tmp_path / "out", "first")
    for left in ("out.shardwire-staging", "out.shardwire-replaced"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "part-9.parquet").write_text("left")
    make(tmp_path / "out", "second", replace=True)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["part-0.parquet"]
    assert (tmp_path / "out" / "part-0.parquet").read_text() == "second"


def test_what_a_run_that_was_killed_would_have_replaced_comes_back(tmp_path: Path) -> None:
    make(tmp_path / "out.shardwire-replaced", "first")
    with pytest.raises(ConfigError, match="exists: give another one"):
        make(tmp_path / "out", "second")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "part-0.parquet").read_text() == "first"
    make(tmp_path / "out", "second", replace=True)
    assert (tmp_path / "out" / "part-0.parquet").read_text() == "second"


def test_directories_above_it_are_made(tmp_path: Path) -> None:
    make(tmp_path / "above" / "further" / "out", "first")
    assert names(tmp_path / "above" / "further") == ["out"]


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no more"), Output(tmp_path / "out", []) as place:
        (place.staging / "part-0.parquet").write_text("first")
        raise ValueError("no more")
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["notes.txt", "table.parquet"])
def test_what_no_run_made_is_not_replaced(tmp_path: Path, name: str) -> None:
    make(tmp_path / "out", "first")
    foreign = tmp_path / "out" / name
    if name == "table.parquet":
        foreign.mkdir()
    else:
        foreign.write_text("precious")
    with pytest.raises(ConfigError, match=f"is not replaced, since it holds '{name}'"):
        make(tmp_path / "out", "second", replace=True)
    assert names(tmp_path / "out") == sorted(["part-0.parquet", name])


def test_what_takes_its_place_meanwhile_is_left_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(OSError, match="not empty"), Output(path, []) as place:
        (place.staging / "part-0.parquet").write_text("second")
        path.mkdir()
        (path / "notes.txt").write_text("precious")
    assert names(tmp_path) == ["out"]
    assert names(path) == ["notes.txt"]


def test_a_link_is_replaced_and_what_it_leads_to_is_left(tmp_path: Path) -> None:
    make(tmp_path / "kept", "first")
    (tmp_path / "out").symlink_to(tmp_path / "kept")
    make(tmp_path / "out", "second", replace=True)
    assert names(tmp_path) == ["kept", "out"]
    assert not (tmp_path / "out").is_symlink()
    assert [(tmp_path / name / "part-0.parquet").read_text() for name in ("kept", "out")] == ["first", "second"]
