"""The shape of the house: what breaks it is found, by the gates of `make lint` and by a look at the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "shardwire"
PYTHON_LINES_MAX = 400


def purity(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "scripts" / "check_purity.py"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("python/shardwire/sds/outputs.py", "import time"),
        ("python/shardwire/sds/outputs.py", "now = datetime.now()"),
        ("python/shardwire/segmentation/config.py", "jitter = random.random()"),
        ("python/shardwire/segmentation/config.py", "generator = random.Random()"),
        ("python/shardwire/sds/outputs.py", "await asyncio.sleep(1)"),
        ("rust/core/src/lib.rs", "let now = std::time::Instant::now();"),
        ("rust/core/src/lib.rs", "let file = std::fs::read(path);"),
    ],
)
def test_purity_gate_finds_what_is_planted(tmp_path: Path, path: str, line: str) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "check_purity.py", tmp_path / "scripts")
    planted = tmp_path / path
    planted.parent.mkdir(parents=True)
    planted.write_text(f"# nothing of the kind\n{line}\n")
    answer = purity(tmp_path)
    assert answer.returncode == 1
    assert f"{path}:2: {line}" in answer.stdout


def test_purity_gate_passes_the_house() -> None:
    answer = purity(ROOT)
    assert answer.returncode == 0, answer.stdout


def lint_imports(directory: Path, import_path: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of the `pyproject.toml` in a directory, held against what is imported from `import_path`."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=directory,
        env={"PYTHONPATH": str(import_path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("sds/outputs.py", "from shardwire.segmentation import Reassembler", "Arrows point down"),
        ("node/protocol.py", "from shardwire.channel import ReliableChannel", "Arrows point down"),
        ("errors.py", "from shardwire.node import MemoryNode", "Arrows point down"),
        ("sds/outputs.py", "import asyncio", "The state machines"),
    ],
)
def test_import_linter_finds_what_is_planted(tmp_path: Path, path: str, line: str, contract: str) -> None:
    shutil.copytree(PACKAGE, tmp_path / "shardwire", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "shardwire" / path
    target.write_text(target.read_text() + f"\n{line}\n")
    answer = lint_imports(tmp_path, tmp_path)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert f"{contract}" in answer.stdout
    assert "BROKEN" in answer.stdout


def test_import_linter_passes_the_house() -> None:
    """004, Architecture: segmentation, SDS, node and channel are layers, none of which reaches over another."""
    answer = lint_imports(ROOT, PACKAGE.parent)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Arrows point down KEPT" in answer.stdout


def test_python_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for directory in (PACKAGE, ROOT / "spark_jobs", ROOT / "scripts")
        for path in directory.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > PYTHON_LINES_MAX
    }
    assert not long


def test_test_files_have_names_of_their_own() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_tracked_files_name_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    offending = []
    for name in listed:
        if name.startswith("tests/vectors") or not (ROOT / name).is_file():
            continue
        content = (ROOT / name).read_bytes()
        # Split, so that this file does not name what it looks for.
        if any(marker in content for marker in (b"/wor" + b"k/", b"/roo" + b"t/", b"/hom" + b"e/")):
            offending.append(name)
    assert offending == []
