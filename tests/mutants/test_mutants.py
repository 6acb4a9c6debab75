"""The catalogue of mutants holds what it says, the runner tells a kill from a wreck, and a sample is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import judge_all
from tests.mutants.catalogue import ROOT, Catalogue, Mutant, complaints, load, sample, seed_of_tree
from tests.mutants.trial import Tree

MUTANTS_MIN = 60
SAMPLE = 4
# Takes a second.
QUICK = Mutant(
    name="headers-may-take-what-segments-need",
    requirement="S003-04",
    file="python/shardwire/channel/sending/segment_size.py",
    find="header_bytes_max=sds_bytes_max - content,",
    replace="header_bytes_max=sds_bytes_max,",
    tests=("tests/unit/channel/test_segment_size.py::test_the_largest_sds_message_fits_the_node",),
)


def test_every_mutant_applies_breaks_a_requirement_and_names_tests_that_are_mapped_to_it() -> None:
    catalogue = load()
    assert complaints(catalogue) == []
    assert len(catalogue.mutants) >= MUTANTS_MIN


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"find": "no such text"},
            "what it replaces stands 0 times in python/shardwire/channel/sending/segment_size.py",
        ),
        ({"find": "return"}, "times in python/shardwire/channel/sending/segment_size.py"),
        ({"replace": QUICK.find}, "it changes nothing"),
        ({"replace": "        if not"}, "what it makes is no Python"),
        ({"requirement": "S003-999"}, "S003-999 is not in docs/requirements.toml"),
        ({"requirement": "S003-16"}, "docs/spec_map.toml names none of its tests for S003-16"),
        ({"tests": ("tests/unit/channel/test_segment_size.py::test_gone",)}, "there is no test"),
    ],
)
def test_a_catalogue_that_is_wrong_is_complained_of(change: dict[str, object], complaint: str) -> None:
    catalogue = load()
    others = tuple(mutant for mutant in catalogue.mutants if mutant.name != QUICK.name)
    wrong = replace(QUICK, **change)  # type: ignore[arg-type]
    found = complaints(Catalogue((*others, wrong), catalogue.without))
    assert any(text.startswith(QUICK.name) and complaint in text for text in found), found


def test_a_must_without_a_mutant_needs_a_reason() -> None:
    catalogue = load()
    without = tuple(mutant for mutant in catalogue.mutants if mutant.requirement != "S003-16")
    line = "S003-16: neither a mutant nor a reason why it has none"
    assert line in complaints(Catalogue(without, catalogue.without))
    assert line not in complaints(Catalogue(without, {**catalogue.without, "S003-16": "a reason"}))


def test_a_kill_a_survivor_and_a_wreck_are_told_apart(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree")
    source = tree.directory / QUICK.file
    before = source.read_bytes(), source.stat().st_mtime_ns
    verdicts = {
        "changed": tree.judge(QUICK).verdict,
        "as it was": tree.judge(replace(QUICK, replace=QUICK.find)).verdict,
        "cannot be imported": tree.judge(replace(QUICK, find="from dataclasses", replace="from no_such")).verdict,
        "names what is not there": tree.judge(replace(QUICK, replace="header_bytes_max=no_such,")).verdict,
    }
    assert verdicts == {
        "changed": "killed",
        "as it was": "survived",
        "cannot be imported": "broken",
        "names what is not there": "broken",
    }
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert (ROOT / QUICK.file).read_bytes() == before[0]


def test_a_sample_is_killed() -> None:
    """Drawn by the commit, so that in time every mutant has its turn; `make mutants` runs all."""
    mutants = tuple(mutant for mutant in load().mutants if not mutant.is_rust)
    survivors = {
        mutant.name: report.detail
        for mutant, report in judge_all(sample(mutants, SAMPLE, seed_of_tree()), jobs=2)
        if report.verdict != "killed"
    }
    assert survivors == {}
