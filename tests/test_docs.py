"""Every code block of the README and the guide is run, in order, one process a page, and prints what the page says."""

from __future__ import annotations

import itertools
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_servers import LiveServer, Mosquitto, NatsServer
from mypy import api
from waku_servers import WakuNodes

ROOT = Path(__file__).resolve().parent.parent
GUIDES = [ROOT / "docs" / name for name in ("guide", "howto", "tutorials")]
PAGES = [ROOT / "README.md", *(page for guide in GUIDES for page in sorted(guide.glob("*.md")))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A make target sets up, builds and tests the whole project: that it exists is checked here, CI runs it.
MAKE = re.compile(r"make( \w[\w-]*(=\S+)?)*")


# The servers that the examples of a page run against, and the variable that tells them where.
SERVERS: dict[str, tuple[str, Callable[[Path], LiveServer | WakuNodes]]] = {
    "archives.md": ("NATS_URL", lambda directory: NatsServer(directory, jetstream=True)),
    "cli_channels.md": ("SHARDWIRE_NODE", lambda directory: NatsServer(directory, jetstream=True)),
    "mqtt.md": ("MQTT_URL", Mosquitto),
    "nats.md": ("NATS_URL", lambda directory: NatsServer(directory, jetstream=True)),
    "waku_rest.md": ("WAKU_URLS", WakuNodes),
}


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line it begins on."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in FENCE.finditer(text)]


def matches(expected: str, printed: str) -> bool:
    """Whether a page's output is what was printed; `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def run_python(page: Path, code: list[Block], directory: Path) -> list[str]:
    """Runs a page's Python blocks in one process and namespace; what each printed."""
    mark = "\x1eend of block\x1e"
    padded = [f"{chr(10) * (block.line - 1)}{block.text}" for block in code]
    runner = (
        "import sys\n"
        f"space = {{'__name__': '__main__'}}\nfor text in {padded!r}:\n"
        f"    exec(compile(text, {page.name!r}, 'exec'), space)\n"
        f"    print({mark!r}, flush=True)\n"
    )
    script = directory / "page.py"
    script.write_text(runner)
    answer = subprocess.run(
        [sys.executable, str(script)], cwd=directory, capture_output=True, text=True, check=False, timeout=240
    )
    assert answer.returncode == 0, f"{page.name}: {answer.stderr}"
    return answer.stdout.split(mark)[: len(code)]


def run_console(block: Block, directory: Path) -> list[tuple[str, str, str]]:
    """Runs the `$` lines of a block: (command, what the page says it prints, what it printed)."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    results = []
    for chunk in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = chunk.partition("\n")
        where, command_run = directory, command
        if MAKE.fullmatch(command):
            where, command_run = ROOT, f"{command} --dry-run"
        answer = subprocess.run(
            ["bash", "-c", command_run],
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert answer.returncode == 0, f"$ {command}\n{answer.stdout}{answer.stderr}"
        results.append((command, expected, answer.stdout))
    return results


def run_page(page: Path, directory: Path) -> None:
    found = blocks(page.read_text())
    unknown = [block for block in found if block.language not in ("python", "console", "text")]
    assert not unknown, f"{page.name}:{unknown[0].line}: a block is python, console, or the text that one prints"
    for block in found:
        if block.language == "console":
            for command, expected, printed in run_console(block, directory):
                assert not expected.strip() or matches(expected, printed), f"$ {command}\n{printed}"
    code = [block for block in found if block.language == "python"]
    if not code:
        return
    printed = dict(zip(code, run_python(page, code, directory), strict=True))
    for before, block in itertools.pairwise(found):
        if block.language == "text":
            assert before.language == "python", f"{page.name}:{block.line}: no block above prints this"
            assert matches(block.text, printed[before]), f"{page.name}:{block.line}: printed {printed[before]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name not in SERVERS:
        run_page(page, tmp_path)
        return
    variable, make_server = SERVERS[page.name]
    with make_server(tmp_path / "server") as server:
        monkeypatch.setenv(variable, server.url)
        run_page(page, tmp_path)


def write_programs(pages: Sequence[Path], directory: Path) -> list[str]:
    """The Python of each page as a module, its lines where they stand on the page."""
    written = []
    for page in pages:
        lines: list[str] = []
        for block in blocks(page.read_text()):
            if block.language == "python":
                lines += [""] * (block.line - 1 - len(lines))
                lines += block.text.splitlines()
        if lines:
            program = directory / f"{page.parent.name}_{page.stem}.py"
            program.write_text("\n".join(lines) + "\n")
            written.append(str(program))
    return written


def mypy_says(programs: list[str], directory: Path) -> str:
    settings = directory / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\nignore_missing_imports = true\n")
    said, errors, _ = api.run([f"--config-file={settings}", f"--cache-dir={directory / 'cache'}", *programs])
    assert not errors, errors
    return said


def test_code_on_pages_passes_mypy_strict(tmp_path: Path) -> None:
    programs = write_programs(PAGES, tmp_path)
    assert len(programs) > 20
    said = mypy_says(programs, tmp_path)
    assert said.startswith("Success"), said


def test_code_that_mypy_refuses_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nnumber: int = 'many'\n```\n")
    assert "_page.py:4: error" in mypy_says(write_programs([page], tmp_path), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise ValueError\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ make nothing-of-the-kind\n```\n",
        "```rust\nfn main() {}\n```\n",
    ],
)
def test_wrong_page_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)


def test_right_page_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nfirst = 1\n```\n\n```python\nprint(first, 'and more')\n```\n\n```text\n1 ...\n```\n\n"
        "```console\n$ echo a > b\n$ cat b\na\n```\n"
    )
    run_page(page, tmp_path)


def test_links_lead_somewhere() -> None:
    broken = []
    for page in [*PAGES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("docs/guide/segmentation.md", "A participant without segmentation reads nothing of `raw`"),
        ("docs/guide/channel.md", "There is no default cipher: without `encryption=` everything travels in the clear"),
        ("docs/guide/channel.md", "Another database takes [three methods of your own](../howto/persistence.md)"),
        ("docs/howto/persistence.md", "any bytes, unique in it, empty where there is only one"),
        ("SECURITY.md", "Without an `Encryption` a channel is not confidential"),
        ("SECURITY.md", "Store queries tell the store which messages a participant lacks"),
    ],
)
def test_pages_say_what_the_specifications_want_documented(page: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / page).read_text().split())


def test_every_decision_is_listed() -> None:
    directory = ROOT / "docs" / "decisions"
    index = (directory / "README.md").read_text()
    assert [page.name for page in directory.glob("2*.md") if f"({page.name})" not in index] == []


def test_figures_are_those_of_the_results() -> None:
    script = ROOT / "benches" / "figures.py"
    figures: dict[str, Callable[[], str]] = runpy.run_path(str(script))
    assert (ROOT / "docs" / "guide" / "performance.md").read_text() == figures["page"](), f"run {script.name}"
