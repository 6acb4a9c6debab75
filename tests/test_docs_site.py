"""The reference that `make docs` makes from the code: nothing public is left out, and everything says what it is."""

from __future__ import annotations

import dataclasses
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import shardwire
from shardwire import config, errors
from shardwire.event_names import EVENT_TYPES

ROOT = Path(__file__).resolve().parent.parent
HOOKS: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "docs_hooks.py"))
PAGES: dict[str, str] = dict(HOOKS["reference_pages"]())


def rows(page: str) -> Iterator[list[str]]:
    for line in PAGES[page].splitlines():
        if line.startswith(("| `", "| [`")):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def test_every_metric_has_a_row_with_its_meaning() -> None:
    told = {row[0].strip("`"): row for row in rows("metrics")}
    assert told.keys() == shardwire.METRICS.keys()
    assert all(row[1] in ("counted", "held now", "measured") and row[2] for row in told.values())


@pytest.mark.parametrize(
    "kind",
    [value for value in vars(config).values() if dataclasses.is_dataclass(value)],
    ids=lambda kind: kind.__name__,
)
def test_every_option_has_a_row_with_default_and_meaning(kind: Any) -> None:
    section = PAGES["configuration"].split(f"## {kind.__name__}\n")[1].split("\n## ")[0]
    told = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            told[cells[0].strip("`")] = cells[1:]
    assert list(told) == [field.name for field in dataclasses.fields(kind)]
    assert [name for name, cells in told.items() if not all(cells)] == []


def test_every_event_and_its_fields_say_what_they_are() -> None:
    for kind in EVENT_TYPES:
        section = PAGES["events"].split(f"## {kind.__name__}\n")[1].split("\n## ")[0]
        assert all(f"`{name}`" in section for name in kind.names)
        for field in dataclasses.fields(kind):
            assert re.search(rf"\| `{field.name}` \| `.+` \| \S.+ \|", section), f"{kind.__name__}.{field.name}"


def test_every_error_is_told() -> None:
    told = {row[0].strip("`"): row[2] for row in rows("errors")}
    public = {name for name in shardwire.__all__ if isinstance(getattr(errors, name, None), type)}
    assert public <= told.keys()
    assert all(told.values())


def test_every_command_and_its_options_are_told() -> None:
    import typer

    from shardwire.cli.app import app

    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        section = PAGES["cli"].split(f"## shardwire {name}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert all(f"`{option}`" in section for option in parameter.opts), f"{name} {parameter.opts}"
        assert "| what it does |" in section


def test_every_public_name_has_a_place() -> None:
    told = {re.findall(r"`([^`]+)`", row[0])[0] for row in rows("api")}
    assert told >= set(shardwire.__all__)
    shown = "\n".join(PAGES[module] for module in HOOKS["MODULES"])
    missing = [
        name
        for name in shardwire.__all__
        if not re.search(rf"::: shardwire\.\S*\b{name}$", shown, re.MULTILINE)
        and name not in ("__version__", "Keccak256", "keccak256", "keccak256_many", "erasure", "HistoryEntry")
        and not name.endswith("Id")
    ]
    assert missing == []


def test_the_navigation_names_pages_that_exist() -> None:
    class Loader(yaml.SafeLoader):
        """Passes over what names Python objects."""

    site = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    made = {*HOOKS["PROJECT_PAGES"].values(), *(f"reference/{name}.md" for name in PAGES)}

    def pages(entries: Any) -> Iterator[str]:
        for entry in entries:
            if isinstance(entry, str):
                yield entry
            else:
                for value in entry.values():
                    yield from [value] if isinstance(value, str) else pages(value)

    named = list(pages(site["nav"]))
    assert [page for page in named if page not in made and not (ROOT / "docs" / page).exists()] == []
    # Every page is reached by the navigation.
    own = {
        f"{folder}/{page.name}"
        for folder in ("guide", "howto", "tutorials")
        for page in (ROOT / "docs" / folder).glob("*.md")
    }
    assert own - set(named) == set()
    assert site["strict"] is True


@pytest.mark.parametrize(
    ("text", "source", "target", "expected"),
    [
        ("[a](docs/guide/nats.md)", "README.md", "index.md", "[a](guide/nats.md)"),
        ("[a](docs/guide/nats.md#b)", "README.md", "index.md", "[a](guide/nats.md#b)"),
        ("[a](../../SECURITY.md)", "docs/howto/keys.md", "howto/keys.md", "[a](../project/security.md)"),
        ("[a](nats.md)", "docs/guide/mqtt.md", "guide/mqtt.md", "[a](../guide/nats.md)"),
        ("[a](https://example.org/b.md)", "README.md", "index.md", "[a](https://example.org/b.md)"),
        ("[a](LICENSE)", "README.md", "index.md", "[a](LICENSE)"),
    ],
)
def test_links_hold_on_the_site(text: str, source: str, target: str, expected: str) -> None:
    moved: Callable[[str, str, str], str] = HOOKS["moved"]
    assert moved(text, source, target) == expected
