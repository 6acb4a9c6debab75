"""What a release is made from: versions that agree, and a workflow that uses every wheel before it publishes one."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "Cargo.toml", "CHANGELOG.md", "scripts/check_release.py")
TAG = "v7.1.0"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Of a release that is as it should be."""
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("pyproject.toml", "Cargo.toml"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(re.sub(r'^version = ".*"', 'version = "7.1.0"', text, count=1, flags=re.MULTILINE))
    changes = (tmp_path / "CHANGELOG.md").read_text()
    (tmp_path / "CHANGELOG.md").write_text(changes.replace("## Unreleased", "## 7.1.0 - 2027-01-31", 1))
    return tmp_path


def check(sources: Path, tag: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(sources / "scripts/check_release.py"), tag, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_sources_that_agree_are_a_release_and_its_notes_are_the_changelogs(sources: Path) -> None:
    done = check(sources, TAG, "--notes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("### Added")
    changes = sources / "CHANGELOG.md"
    changes.write_text(changes.read_text() + "\n## 7.0.0 - 2026-12-31\n\n### Added\n\n- Older.\n")
    assert "Older." not in check(sources, TAG, "--notes").stdout
    assert check(sources, "v7.0.0", "--notes").returncode == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (
            "pyproject.toml",
            'version = "7.1.0"',
            'version = "7.0.9"',
            "pyproject.toml has version 7.0.9, the tag is v7.1.0",
        ),
        ("Cargo.toml", 'version = "7.1.0"', 'version = "7.0.9"', "Cargo.toml has version 7.0.9, the tag is v7.1.0"),
        ("CHANGELOG.md", "## 7.1.0 - 2027-01-31", "## 7.1.0", "CHANGELOG.md has no section '## 7.1.0 - "),
        ("CHANGELOG.md", "## 7.1.0 - 2027-01-31", "## Unreleased", "CHANGELOG.md has no section '## 7.1.0 - "),
    ],
)
def test_what_disagrees_is_named(sources: Path, file: str, old: str, new: str, told: str) -> None:
    path = sources / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    done = check(sources, TAG)
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("tag", ["7.1.0", "v7.1", "v7.1.0-1", "main"])
def test_a_tag_names_a_version(sources: Path, tag: str) -> None:
    done = check(sources, tag)
    assert done.returncode == 1
    assert f"the tag is {tag!r}" in done.stderr


def test_both_files_state_one_version_at_any_time() -> None:
    spec = importlib.util.spec_from_file_location("check_release", ROOT / "scripts/check_release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert not [fault for fault in module.faults(ROOT, f"v{version[1]}") if "CHANGELOG" not in fault]


def test_nothing_is_published_before_every_wheel_was_used() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert set(jobs["publish"]["needs"]) == {"tests", "pythons", "linux", "macos", "use"}
    used = {
        (entry["runner"].endswith("-arm"), "alpine" in entry["image"])
        for entry in jobs["use"]["strategy"]["matrix"]["include"]
    }
    assert used == {(False, False), (False, True), (True, False), (True, True)}
    targets = {entry["target"] for entry in jobs["macos"]["strategy"]["matrix"]["include"]}
    assert targets == {"aarch64-apple-darwin", "x86_64-apple-darwin"}
    for name, job in jobs.items():
        commands = [step.get("run", "") for step in job["steps"]]
        for script in re.findall(r"(?:scripts/\S+\.\w+|\.ci/run)", "\n".join(commands)):
            assert (ROOT / script.strip('"')).exists(), f"{name} runs {script}"


def page_of(sources: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(sources / "scripts/release_page.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_of_a_release_leads_to_its_repository(sources: Path) -> None:
    for name in ("README.md", "scripts/release_page.py"):
        shutil.copy(ROOT / name, sources / name)
    address = "https://example.org/owner/shardwire"
    assert page_of(sources, address, TAG).returncode == 0
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", (sources / "README.md").read_text())
    ours = [(mark, link) for mark, link in links if link.startswith(f"{address}/")]
    # What leads elsewhere did so before.
    assert all(link.startswith("https://") for _, link in links)
    assert len(ours) > 30
    for mark, link in ours:
        kind, ref, path = link.removeprefix(f"{address}/").split("/", 2)
        assert (kind, ref) == ("raw" if mark else "blob", TAG)
        assert (ROOT / path.partition("#")[0]).exists(), path
    urls = tomllib.loads((sources / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Homepage"] == address
    assert all(url.startswith(address) for url in urls.values())
    again = page_of(sources, address, TAG)
    assert again.returncode == 1
    assert "already" in again.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("https://example.org/a",), ("example.org/a", TAG), ("https://e.org/a/", TAG)]
)
def test_a_page_needs_an_address(sources: Path, arguments: tuple[str, ...]) -> None:
    for name in ("README.md", "scripts/release_page.py"):
        shutil.copy(ROOT / name, sources / name)
    before = (sources / "README.md").read_text()
    assert "usage: " in page_of(sources, *arguments).stderr
    assert (sources / "README.md").read_text() == before
