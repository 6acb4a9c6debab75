"""Deliberate changes of our own source, kept as data beside this file, and what holds of them without running any."""

from __future__ import annotations

import ast
import hashlib
import random
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = Path(__file__).resolve().parent
# Every requirement of this level, of these documents, has a mutant or a reason why it has none.
COVERED_LEVELS = ("MUST", "MUST NOT")
COVERED_DOCUMENTS = ("S003", "S004")
_FIELDS = {"name", "requirement", "file", "find", "replace", "tests"}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        name: Its own in the whole catalogue.
        requirement: What it breaks, by its id in docs/requirements.toml.
        file: What is changed, from the root of the repository.
        find: Text that stands exactly once in it.
        replace: What takes its place.
        tests: Node ids, of which at least one must fail.
    """

    name: str
    requirement: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    @property
    def is_rust(self) -> bool:
        """Whether the native module has to be built for it."""
        return self.file.endswith(".rs")

    def applied(self, source: str) -> str:
        return source.replace(self.find, self.replace)


@dataclass(frozen=True)
class Catalogue:
    """All mutants.

    Attributes:
        mutants: They.
        without: Requirements that have none, and why.
    """

    mutants: tuple[Mutant, ...]
    without: dict[str, str]


def load(directory: Path = DIRECTORY) -> Catalogue:
    """Every file of the catalogue.

    Raises:
        ValueError: An entry has other fields than it should.
    """
    mutants: list[Mutant] = []
    without: dict[str, str] = {}
    for path in sorted(directory.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        without.update(content.get("without", {}))
        for entry in content.get("mutant", []):
            if set(entry) != _FIELDS:
                raise ValueError(f"{path.name}: {entry.get('name')!r} has the fields {sorted(entry)}")
            mutants.append(Mutant(**{**entry, "tests": tuple(entry["tests"])}))
    return Catalogue(tuple(mutants), without)


def complaints(catalogue: Catalogue, root: Path = ROOT) -> list[str]:
    """What is wrong with the catalogue, one line each."""
    requirements: dict[str, dict[str, Any]] = {
        entry["id"]: entry for entry in tomllib.loads((root / "docs/requirements.toml").read_text())["requirement"]
    }
    mapped = tomllib.loads((root / "docs/spec_map.toml").read_text())["requirements"]
    wrong: list[str] = []
    names = [mutant.name for mutant in catalogue.mutants]
    wrong += [f"{name}: the name stands twice" for name in sorted(set(names)) if names.count(name) > 1]
    for mutant in catalogue.mutants:
        wrong += [f"{mutant.name}: {text}" for text in _complaints_of(mutant, requirements, mapped, root)]
    changed = {mutant.requirement for mutant in catalogue.mutants}
    for name, entry in requirements.items():
        wants_one = entry["level"] in COVERED_LEVELS and name.startswith(COVERED_DOCUMENTS)
        if wants_one and name not in changed and name not in catalogue.without:
            wrong.append(f"{name}: neither a mutant nor a reason why it has none")
    for name in catalogue.without:
        if name not in requirements or name in changed:
            wrong.append(f"{name}: a reason for having no mutant, of a requirement that has one or is none")
    return wrong


def _complaints_of(
    mutant: Mutant, requirements: dict[str, dict[str, Any]], mapped: dict[str, Any], root: Path
) -> list[str]:
    wrong: list[str] = []
    path = root / mutant.file
    source = path.read_text() if path.is_file() else ""
    count = source.count(mutant.find)
    if count != 1:
        wrong.append(f"what it replaces stands {count} times in {mutant.file}")
    elif mutant.applied(source) == source:
        wrong.append("it changes nothing")
    elif not mutant.is_rust:
        try:
            ast.parse(mutant.applied(source))
        except SyntaxError as error:
            wrong.append(f"what it makes is no Python: {error}")
    if mutant.requirement not in requirements:
        wrong.append(f"{mutant.requirement} is not in docs/requirements.toml")
    elif not set(mutant.tests) & set(mapped[mutant.requirement]):
        wrong.append(f"docs/spec_map.toml names none of its tests for {mutant.requirement}")
    if not mutant.tests:
        wrong.append("it names no test")
    for node in mutant.tests:
        file, _, function = node.partition("::")
        test_file = root / file
        function = function.partition("[")[0].rpartition("::")[2]
        if not test_file.is_file() or f"def {function}(" not in test_file.read_text():
            wrong.append(f"there is no test {node}")
    return wrong


def sample(mutants: tuple[Mutant, ...], count: int, seed: str) -> list[Mutant]:
    """So many of them, the same for the same seed."""
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def seed_of_tree(root: Path = ROOT) -> str:
    """The commit's hash; where there is no repository, the hash of the sources."""
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        return answer.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        digest = hashlib.sha256()
        for path in sorted((root / "python").rglob("*.py")):
            digest.update(path.read_bytes())
        return digest.hexdigest()
