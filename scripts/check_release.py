"""Checks that the sources are those of a release: `python scripts/check_release.py v0.1.0`.

The tag, pyproject.toml, Cargo.toml and the changelog name one version, and the changelog says when it was released.
`--notes` prints what the changelog says of it.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def faults(root: Path, tag: str) -> list[str]:
    """What keeps the sources below `root` from being the release `tag`."""
    found = []
    version = tag.removeprefix("v")
    if not tag.startswith("v") or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        found.append(f"the tag is {tag!r}: it must be v<major>.<minor>.<patch>, with a1, b1 or rc1 behind it at most")
    stated = {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        "Cargo.toml": tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"],
    }
    found += [f"{file} has version {other}, the tag is {tag}" for file, other in stated.items() if other != version]
    if not notes(root, tag):
        found.append(f"CHANGELOG.md has no section '## {version} - <year>-<month>-<day>' with something in it")
    return found


def notes(root: Path, tag: str) -> str:
    """What the changelog says of a release; nothing where it does not name it with its day."""
    version = re.escape(tag.removeprefix("v"))
    section = re.search(
        rf"^## {version} - \d{{4}}-\d{{2}}-\d{{2}}\n(.*?)(?=^## |\Z)",
        (root / "CHANGELOG.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return section[1].strip() if section else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag")
    parser.add_argument("--notes", action="store_true", help="print what the changelog says of the release")
    arguments = parser.parse_args()
    if found := faults(ROOT, arguments.tag):
        sys.exit("\n".join(found))
    if arguments.notes:
        print(notes(ROOT, arguments.tag))


if __name__ == "__main__":
    main()
