"""Runs the tests of a mutant in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutants.catalogue import ROOT, Mutant

Verdict = Literal["killed", "survived", "broken"]

TEST_TIMEOUT_S = 120
RUN_TIMEOUT_S = 900
# What says that a change was no change of behaviour but a text that does not run.
_BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError", "UnboundLocalError")
# What mutants change and what finds its files beside itself is copied; all else, and what of these is large, is linked.
_COPIED = ("python", "tests")
_LINKED_WITHIN = ("vectors", "corpus", "node_modules")
_LEFT_OUT = (".git", ".venv", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache", "target")
_NATIVE_LIBRARIES = ("lib_native.so", "lib_native.dylib")


@dataclass(frozen=True)
class Report:
    """What became of a run.

    Attributes:
        verdict: "killed" where a test failed, "survived" where all passed, "broken" where they could not run.
        detail: The test that failed and with what, or why they could not run.
        seconds: How long it took.
    """

    verdict: Verdict
    detail: str
    seconds: float


class Tree:
    """A copy of the repository in which one source at a time is changed.

    Args:
        directory: Where it is made; must not exist.
        rust: Whether the native module can be built in it.
    """

    def __init__(self, directory: Path, *, rust: bool = False) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        copied = (*_COPIED, "rust") if rust else _COPIED
        for entry in ROOT.iterdir():
            if entry.name in _LEFT_OUT:
                continue
            if entry.name in copied:
                self._copy(entry, directory / entry.name)
            else:
                (directory / entry.name).symlink_to(entry)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        linked = [path for path in source.rglob("*") if path.name in _LINKED_WITHIN and path.is_dir()]

        def leave_out(directory: str, names: list[str]) -> Iterable[str]:
            # What Python is writing at this moment has a name of its own.
            return [name for name in names if Path(directory, name) in linked or ".pyc." in name]

        # Compiled files come along: they hold for every source that is not changed.
        shutil.copytree(source, target, ignore=leave_out, symlinks=True)
        for path in linked:
            if not any(parent in linked for parent in path.parents):
                (target / path.relative_to(source)).symlink_to(path)

    def judge(self, mutant: Mutant) -> Report:
        """Applies a mutant, runs its tests, and takes it back."""
        path = self.directory / mutant.file
        original, status = path.read_text(), path.stat()
        path.write_text(mutant.applied(original))
        if not mutant.is_rust:
            # Never the moment that a compiled file names.
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10_000_000_000))
        try:
            if mutant.is_rust and (error := self._build()):
                return Report("broken", error, 0.0)
            return self.run(mutant.tests)
        finally:
            path.write_text(original)
            if not mutant.is_rust:
                # cargo compiles what is newer than what it made, Python what is not of the moment that it noted.
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _build(self) -> str:
        """Builds the native module; what went wrong, or nothing."""
        target = ROOT / "target" / "mutants"
        command = ["cargo", "build", "--quiet", "--package", "shardwire-python", "--features", "pyo3/abi3-py311"]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        answer = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, check=False
        )
        if answer.returncode:
            return f"it does not compile: {answer.stderr.strip()[-500:]}"
        (module,) = (self.directory / "python/shardwire").glob("_native*.so")
        (library,) = (path for name in _NATIVE_LIBRARIES if (path := target / "debug" / name).exists())
        module.unlink()
        shutil.copy(library, module)
        return ""

    def run(self, tests: Iterable[str]) -> Report:
        """Runs tests until the first that fails."""
        report = self.directory / "report.xml"
        report.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.directory / 'python'}{os.pathsep}{self.directory}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        # The run that this may be part of has settings of its own.
        for name in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
            environment.pop(name, None)
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={report}"]
        began = time.monotonic()
        try:
            answer = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=self.directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Report("broken", f"its tests took longer than {RUN_TIMEOUT_S} s", time.monotonic() - began)
        seconds = time.monotonic() - began
        if answer.returncode == 0:
            return Report("survived", "every test passed", seconds)
        failure = first_failure(report) if answer.returncode == 1 and report.exists() else None
        if failure is None:
            return Report("broken", (answer.stdout + answer.stderr).strip()[-1_000:], seconds)
        name, message = failure
        if message.startswith(_BROKEN):
            return Report("broken", f"{name}: {message}", seconds)
        return Report("killed", f"{name}: {message}", seconds)


def first_failure(report: Path) -> tuple[str, str] | None:
    """The name of the first test that failed in its body, and with what: not in its setup, nor while collected."""
    for case in ElementTree.parse(report).iter("testcase"):
        failure = case.find("failure")
        if failure is not None:
            lines = failure.get("message", "").strip().splitlines() or [""]
            return case.get("name", ""), lines[0]
    return None
