"""docs/spec_map.toml: every requirement is proven by tests that exist and run, or says "not yet".

Beside tests it may name the decision by which we deviate from the requirement.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "not yet"
DEVIATION = "deviation:"

COLLECTOR = """
import inspect, json, pytest, sys

class Collector:
    tests = {}
    def pytest_collection_finish(self, session):
        for item in session.items:
            skipped = any(True for _ in item.iter_markers("skip")) or any(True for _ in item.iter_markers("xfail"))
            for mark in item.iter_markers("skipif"):
                skipped = skipped or bool(mark.args and mark.args[0])
            source = inspect.getsource(item.function) if hasattr(item, "function") else ""
            self.tests[item.nodeid] = skipped or "pytest.skip(" in source or "pytest.xfail(" in source

collector = Collector()
code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[collector])
with open(sys.argv[1], "w") as file:
    json.dump({"code": int(code), "tests": collector.tests}, file)
"""


def collect(directory: Path, output: Path, *arguments: str) -> dict[str, bool]:
    """Every test under `directory` by node id, and whether it is skipped."""
    answer = subprocess.run(
        [sys.executable, "-c", COLLECTOR, str(output), *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(output.read_text())
    assert result["code"] == 0, answer.stdout + answer.stderr
    return result["tests"]


def check_map(
    requirements: list[str], entries: dict[str, object], tests: dict[str, bool], pages: dict[str, str]
) -> list[str]:
    """What is wrong with a map, one line each; `pages` holds the text of every decision by its name."""
    wrong = [f"{name}: not in docs/requirements.toml" for name in entries if name not in requirements]
    wrong += [f"{name}: not in docs/spec_map.toml" for name in requirements if name not in entries]
    for name, entry in entries.items():
        if entry == NOT_YET:
            continue
        if not isinstance(entry, list) or not entry:
            wrong.append(f"{name}: neither a list of tests nor {NOT_YET!r}")
            continue
        deviations = [node for node in entry if node.startswith(DEVIATION)]
        wrong += [f"{name}: {text}" for text in check_deviations(name, deviations, pages)]
        nodes = [node for node in entry if node not in deviations]
        if not nodes:
            wrong.append(f"{name}: a deviation and no test of what we do")
        for node in nodes:
            matching = [test for test in tests if test == node or test.startswith(f"{node}[")]
            if not matching:
                wrong.append(f"{name}: there is no test {node}")
            elif all(tests[test] for test in matching):
                wrong.append(f"{name}: {node} is skipped")
    return wrong


def check_deviations(name: str, deviations: list[str], pages: dict[str, str]) -> list[str]:
    wrong = []
    for page in (entry.removeprefix(DEVIATION) for entry in deviations):
        if page not in pages:
            wrong.append(f"there is no decision {page}")
        elif not re.search(rf"\b{name}\b", pages[page]):
            wrong.append(f"the decision {page} does not name it")
    return wrong


def load(name: str) -> dict[str, object]:
    return tomllib.loads((ROOT / "docs" / name).read_text())


def test_spec_map_names_every_requirement_and_only_tests_that_run(tmp_path: Path) -> None:
    requirements = [entry["id"] for entry in load("requirements.toml")["requirement"]]  # type: ignore[attr-defined]
    assert len(requirements) == len(set(requirements))
    entries = load("spec_map.toml")["requirements"]
    tests = collect(ROOT, tmp_path / "tests.json", "tests")
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert check_map(requirements, entries, tests, pages) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({}, "A-1: not in docs/spec_map.toml"),
        ({"A-1": NOT_YET, "B-1": NOT_YET}, "B-1: not in docs/requirements.toml"),
        ({"A-1": ["tests/test_a.py::test_gone"]}, "A-1: there is no test tests/test_a.py::test_gone"),
        ({"A-1": ["tests/test_a.py::test_skipped"]}, "A-1: tests/test_a.py::test_skipped is skipped"),
        ({"A-1": ["tests/test_a.py::test_skips"]}, "A-1: tests/test_a.py::test_skips is skipped"),
        ({"A-1": []}, "A-1: neither a list of tests nor 'not yet'"),
        ({"A-1": "tested by hand"}, "A-1: neither a list of tests nor 'not yet'"),
        ({"A-1": ["deviation:why"]}, "A-1: a deviation and no test of what we do"),
        ({"A-1": ["tests/test_a.py::test_runs", "deviation:gone"]}, "A-1: there is no decision gone"),
        ({"A-1": ["tests/test_a.py::test_runs", "deviation:other"]}, "A-1: the decision other does not name it"),
    ],
)
def test_check_map_complains(tmp_path: Path, entries: dict[str, object], complaint: str) -> None:
    directory = tmp_path / "tests"
    directory.mkdir()
    (directory / "test_a.py").write_text(
        inspect.cleandoc(
            """
            import pytest

            @pytest.mark.parametrize("n", [1, 2])
            def test_runs(n):
                pass

            @pytest.mark.skip(reason="to be found")
            def test_skipped():
                pass

            def test_skips():
                pytest.skip("to be found")
            """
        )
    )
    tests = collect(tmp_path, tmp_path / "tests.json", "tests")
    assert len(tests) == 4
    pages = {"why": "We deviate from A-1.", "other": "We deviate from A-10."}
    assert check_map(["A-1"], {"A-1": ["tests/test_a.py::test_runs", "deviation:why"]}, tests, pages) == []
    assert check_map(["A-1"], entries, tests, pages) == [complaint]
