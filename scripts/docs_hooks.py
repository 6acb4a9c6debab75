"""What mkdocs builds beside the pages in docs: those of the repository, and the reference, made from the code."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import shardwire
from shardwire import config, errors, event_names
from shardwire.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
# Pages of the repository's root, where they stand on the site.
PROJECT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
# Modules whose public names the reference shows, from what everybody needs to what few do.
MODULES = (
    "shardwire.channel",
    "shardwire.config",
    "shardwire.events",
    "shardwire.errors",
    "shardwire.node",
    "shardwire.node.rest",
    "shardwire.node.nats",
    "shardwire.node.mqtt",
    "shardwire.node.udp",
    "shardwire.node.transport",
    "shardwire.persistence",
    "shardwire.encryption",
    "shardwire.files",
    "shardwire.segmentation",
    "shardwire.erasure",
    "shardwire.sds",
    "shardwire.archive",
    "shardwire.monitor",
    "shardwire.testing",
    "shardwire.spark",
)
# The figures that pages quote, with how they were measured.
RESULTS = ROOT / "benches" / "results"
_LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)]*)?\)")
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that stand elsewhere and those that are made."""
    results = [path.relative_to(ROOT).as_posix() for path in sorted(RESULTS.rglob("*.md"))]
    for source in (*PROJECT_PAGES, *results):
        target = place_of(source)
        files.append(File.generated(config, target, content=moved((ROOT / source).read_text(), source, target)))
    for name, text in reference_pages():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for page in list(files.documentation_pages()):
        if page.generated_by is None and page.abs_src_path is not None:
            text = Path(page.abs_src_path).read_text()
            files.remove(page)
            source = f"docs/{page.src_uri}"
            files.append(File.generated(config, page.src_uri, content=moved(text, source, page.src_uri)))
    return files


def place_of(source: str) -> str:
    """Where a page of the repository stands on the site."""
    if source.startswith("benches/results/"):
        return source.removeprefix("benches/")
    return PROJECT_PAGES.get(source) or source.removeprefix("docs/")


def moved(text: str, source: str, target: str) -> str:
    """A page whose links hold where it stands on the site."""

    def link(found: re.Match[str]) -> str:
        path = (ROOT / source).parent / found[1]
        try:
            inside = path.resolve().relative_to(ROOT).as_posix()
        except ValueError:
            return found[0]
        place = place_of(inside)
        if place == inside and not (ROOT / "docs" / inside).exists():
            return found[0]
        up = "../" * target.count("/")
        return f"]({up}{place}{found[2] or ''})"

    return _LINK.sub(link, text)


def reference_pages() -> Iterator[tuple[str, str]]:
    """The pages of the reference: their names, and what they say."""
    yield "api", api_page()
    yield "events", events_page()
    yield "configuration", configuration_page()
    yield "metrics", metrics_page()
    yield "errors", errors_page()
    yield "cli", cli_page()
    for module in MODULES:
        yield module, module_page(module)


def api_page() -> str:
    lines = ["# API", "", "Everything that an application needs is importable from `shardwire`.", ""]
    lines += ["| module | what it is |", "|---|---|"]
    for name in MODULES:
        lines.append(f"| [`{name}`]({name}.md) | {summary_of(importlib.import_module(name))} |")
    lines += ["", "| name | what it is |", "|---|---|"]
    homes = {
        value: name for name in reversed(MODULES) for value in getattr(importlib.import_module(name), "__all__", ())
    }
    for name in shardwire.__all__:
        home = homes.get(name)
        shown = f"[`{name}`]({home}.md#{home}.{name})" if home and home != "shardwire.erasure" else f"`{name}`"
        value = getattr(shardwire, name)
        said = summary_of(value) if callable(value) and getattr(value, "__module__", "builtins") != "builtins" else ""
        lines.append(f"| {shown} | {said} |")
    return "\n".join(lines)


def module_page(module: str) -> str:
    lines = [f"# {module}", "", summary_of(importlib.import_module(module)), ""]
    for name in public_names(module):
        lines += [
            f"::: {module}.{name}",
            "    options:",
            "      show_root_heading: true",
            "      show_root_toc_entry: true",
            "",
        ]
    return "\n".join(lines)


def public_names(module: str) -> list[str]:
    """What a module exports and defines, or takes from the rooms below it."""
    loaded = importlib.import_module(module)
    listed = getattr(loaded, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name for name, value in vars(loaded).items() if getattr(value, "__module__", None) == module and name[0] != "_"
    ]


def summary_of(value: Any) -> str:
    """The first paragraph of a docstring, in one line of a table."""
    return " ".join((value.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


def attributes_of(kind: type) -> dict[str, str]:
    """What the docstring of a class says of its fields."""
    return {
        name: " ".join(text.split()).replace("|", "\\|")
        for name, text in _ATTRIBUTE.findall(inspect.getdoc(kind) or "")
    }


def events_page() -> str:
    lines = ["# Events", "", "What a channel tells, by class; each of its names subscribes too: `channel.on(...)`.", ""]
    for kind in event_names.EVENT_TYPES:
        lines += [
            f"## {kind.__name__}",
            "",
            f"{' '.join(f'`{name}`' for name in kind.names)}",
            "",
            summary_of(kind),
            "",
        ]
        meanings = attributes_of(kind)
        lines += ["| field | type | meaning |", "|---|---|---|"]
        for field in dataclasses.fields(kind):
            lines.append(f"| `{field.name}` | `{_typed(field)}` | {meanings.get(field.name, '')} |")
        lines.append("")
    return "\n".join(lines)


def configuration_page() -> str:
    presets = {"logos": shardwire.ChannelConfig.logos(), "waku": shardwire.ChannelConfig.waku()}
    parts = {
        "SegmentationConfig": "segmentation",
        "SdsConfig": "sds",
        "SyncConfig": "sync",
        "RateLimitConfig": "rate_limit",
    }
    lines = [
        "# Configuration",
        "",
        "Every option. Times are milliseconds, sizes bytes. A value out of its limits raises",
        "",
    ]
    lines[-2] += " `ConfigError`, which names the field, the value and the limit."
    for kind in (
        config.ChannelConfig,
        config.SegmentationConfig,
        config.SdsConfig,
        config.SyncConfig,
        config.RateLimitConfig,
        config.ReassemblyLimits,
        config.ReliableChannelOptions,
        shardwire.NodeConfig,
    ):
        meanings = attributes_of(kind)
        part = parts.get(kind.__name__)
        lines += [f"## {kind.__name__}", "", summary_of(kind), ""]
        lines += [
            f"| field | type | {'logos() | waku()' if part else 'default'} | meaning |",
            f"|---|---|{'---|---' if part else '---'}|---|",
        ]
        for field in dataclasses.fields(kind):
            if part:
                shown = " | ".join(
                    f"`{_value(getattr(getattr(preset, part), field.name))}`" for preset in presets.values()
                )
            else:
                shown = f"`{_default(field)}`"
            lines.append(f"| `{field.name}` | `{_typed(field)}` | {shown} | {meanings.get(field.name, '')} |")
        lines.append("")
    return "\n".join(lines)


def metrics_page() -> str:
    lines = ["# Metrics", "", "What `channel.stats()` counts and holds, and what `channel.measure` tells."]
    lines += [
        " How to export them stands in [Metrics](../guide/metrics.md).",
        "",
        "| name | kind | meaning |",
        "|---|---|---|",
    ]
    for name, meaning in sorted(shardwire.METRICS.items()):
        kind = "measured" if name in shardwire.MEASUREMENTS else "held now" if name in shardwire.GAUGES else "counted"
        lines.append(f"| `{name}` | {kind} | {meaning} |")
    return "\n".join(lines)


def errors_page() -> str:
    lines = ["# Errors", "", "Every message names the value, the limit and the remedy.", ""]
    lines += ["| class | also | what it means |", "|---|---|---|"]
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.ShardwireError) and value.__module__ == errors.__name__:
            also = ", ".join(f"`{base.__name__}`" for base in value.__bases__ if base is not errors.ShardwireError)
            lines.append(f"| `{name}` | {also} | {' '.join((value.__doc__ or '').split('Attributes:')[0].split())} |")
    return "\n".join(lines)


def cli_page() -> str:
    lines = ["# The commands", "", "As `shardwire COMMAND --help` tells them.", ""]
    group: Any = typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):
        text = (command.help or "").replace("\b\n", "")
        lines += [f"## shardwire {name}", "", text.split("\n\n")[0], "", "| | what it does |", "|---|---|"]
        for parameter in command.params:
            names = ", ".join(f"`{option}`" for option in getattr(parameter, "opts", ()) or ())
            if parameter.param_type_name == "argument":
                names = f"`{(parameter.metavar or parameter.name or '').upper()}`"
            lines.append(f"| {names} | {' '.join((getattr(parameter, 'help', None) or '').split())} |")
        lines.append("")
    return "\n".join(lines).replace("'NoneType'", "")


def _typed(field: dataclasses.Field[Any]) -> str:
    return str(field.type).replace("|", "\\|").replace("shardwire.", "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _value(field.default)
    return "required" if field.default_factory is dataclasses.MISSING else f"{field.type}()"


def _value(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return f"{type(value).__name__}()" if dataclasses.is_dataclass(value) else repr(value)
