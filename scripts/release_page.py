#!/usr/bin/env python3
"""Readies the sources for a registry's page: what is relative in README.md leads to the repository, and
pyproject.toml names it. Only a release knows where that is; the checkout is changed and not committed.

usage: scripts/release_page.py ADDRESS REF, as https://example.org/owner/name v0.2.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^):#\s]+)")
# Names that the registry shows with a picture of their own.
PAGES = {
    "Homepage": "",
    "Documentation": "/blob/{ref}/docs/guide/getting_started.md",
    "Changelog": "/blob/{ref}/CHANGELOG.md",
    "Source": "/tree/{ref}",
    "Issues": "/issues",
    "Security": "/blob/{ref}/SECURITY.md",
}


def with_addresses(text: str, address: str, ref: str) -> str:
    """A page of the repository's root, readable anywhere."""

    def absolute(found: re.Match[str]) -> str:
        mark, label, path = found.groups()
        # A picture is wanted itself, and not the page around it.
        return f"{mark}[{label}]({address}/{'raw' if mark else 'blob'}/{ref}/{path}"

    return _LINK.sub(absolute, text)


def with_urls(project: str, address: str, ref: str) -> str:
    """A pyproject.toml that names its repository."""
    lines = (f'{name} = "{address}{page.format(ref=ref)}"' for name, page in PAGES.items())
    before, scripts, after = project.partition("[project.scripts]\n")
    if not scripts or "[project.urls]" in project:
        sys.exit("release_page: pyproject.toml has no [project.scripts], or has [project.urls] already")
    return "\n".join([before + "[project.urls]", *lines, "", scripts + after])


def main() -> None:
    if len(sys.argv) != 3 or not re.fullmatch(r"https://[^\s\"]+[^/\s\"]", sys.argv[1]):
        sys.exit("usage: scripts/release_page.py ADDRESS REF, as https://example.org/owner/name v0.2.0")
    address, ref = sys.argv[1:]
    readme, project = ROOT / "README.md", ROOT / "pyproject.toml"
    changed = with_urls(project.read_text(), address, ref)
    readme.write_text(with_addresses(readme.read_text(), address, ref))
    project.write_text(changed)


if __name__ == "__main__":
    main()
