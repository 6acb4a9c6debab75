"""Finds clocks, sleeps, sockets, files and global randomness in the rooms that take time as an argument."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTHON_ROOMS = ("python/shardwire/sds", "python/shardwire/segmentation")
RUST_ROOMS = ("rust/core/src",)

PYTHON_IMPURE = re.compile(
    r"\b(time\.(time|monotonic|perf_counter|sleep|process_time)(_ns)?\b|datetime\.(now|utcnow|today)\b"
    r"|asyncio\.|loop\.time\(|os\.urandom|secrets\.|uuid\.uuid[14]"
    r"|random\.(random|randint|randrange|choice|choices|sample|shuffle|uniform|getrandbits|randbytes|seed|SystemRandom)\b"
    r"|random\.Random\(\)|open\(|\.(read|write)_(text|bytes)\()"
    r"|^\s*(import|from)\s+(time|datetime|socket|asyncio|threading|sqlite3|secrets|uuid|pathlib|os)\b"
)
RUST_IMPURE = re.compile(
    r"\b(Instant::now|SystemTime|std::time|std::net|std::fs|std::io::(Read|Write|stdin|stdout)"
    r"|thread::sleep|thread_rng|rand::|getrandom|static\s+mut)\b"
)
# Build scripts aside, a Rust test at the foot of its file may read vectors.
RUST_TESTS_BEGIN = "#[cfg(test)]"


def impure_lines(
    text: str, pattern: re.Pattern[str], comment: str, end: str | None = None
) -> Iterator[tuple[int, str]]:
    """Numbers and contents of the lines that match, comments aside, up to the line that equals `end`."""
    for number, line in enumerate(text.splitlines(), 1):
        if end is not None and line.strip() == end:
            return
        if pattern.search(line.split(comment, 1)[0]):
            yield number, line.strip()


def findings(root: Path = ROOT) -> list[str]:
    """One line `path:number: content` for each offence."""
    found = []
    rooms: list[tuple[str, str, re.Pattern[str], str, str | None]] = [
        (room, "*.py", PYTHON_IMPURE, "#", None) for room in PYTHON_ROOMS
    ]
    rooms += [(room, "*.rs", RUST_IMPURE, "//", RUST_TESTS_BEGIN) for room in RUST_ROOMS]
    for room, glob, pattern, comment, end in rooms:
        for path in sorted((root / room).rglob(glob)):
            if path.stem.endswith("tests"):
                continue
            offences = impure_lines(path.read_text(encoding="utf-8"), pattern, comment, end)
            found += [f"{path.relative_to(root)}:{number}: {line}" for number, line in offences]
    return found


def main() -> int:
    found = findings()
    for line in found:
        print(line)
    print(f"purity: {len(found)} offences in {', '.join(PYTHON_ROOMS + RUST_ROOMS)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
