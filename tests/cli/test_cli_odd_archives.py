"""Archives that are not as they should be: an answer, or one line that names the file or the column."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.rows import CONFIG, payload_of

from shardwire.cli.app import run
from shardwire.segmentation import segment

PARTS = segment(payload_of(1, 5_000), CONFIG)


def files(directory: Path, *tables: dict[str, Any]) -> Path:
    directory.mkdir()
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), directory / f"{number}.parquet")
    return directory


def two_of_one_name(directory: Path) -> Path:
    directory.mkdir()
    pq.write_table(pa.table([pa.array(PARTS)] * 2, names=["payload"] * 2), directory / "0.parquet")
    return directory


def bytes_of(content: bytes) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        directory.mkdir()
        (directory / "0.parquet").write_bytes(content)
        return directory

    return write


COUNT = len(PARTS)
ODD: dict[str, tuple[Callable[[Path], Path], list[str], list[str]]] = {
    "no file": (lambda path: files(path), [], ["has no Parquet files"]),
    "an empty file": (bytes_of(b""), [], ["0.parquet", "cannot be read as Parquet"]),
    "another format": (bytes_of(b"text, and no more than that"), [], ["0.parquet", "cannot be read as Parquet"]),
    "no payload": (lambda path: files(path, {"data": PARTS}), [], ["the archive has data"]),
    "a payload of text": (
        lambda path: files(path, {"payload": ["text"]}),
        [],
        ["of type string", "binary; decode it before"],
    ),
    "two payloads": (two_of_one_name, [], ["'payload'", "rename all but one"]),
    "a file lacks a column": (
        lambda path: files(path, {"payload": PARTS, "who": ["a"] * COUNT}, {"payload": PARTS}),
        ["--by", "who"],
        ["1.parquet is not like the other files", "'who'"],
    ),
    "the first file lacks a column": (
        lambda path: files(path, {"data": PARTS}, {"payload": PARTS}),
        [],
        ["0.parquet is not like the other files", "the archive has data"],
    ),
    "times by another name in another case": (
        lambda path: files(path, *({"payload": PARTS, name: [1] * COUNT} for name in ("timestamp", "Timestamp"))),
        [],
        ["1.parquet is not like the other files", "the archive has payload, Timestamp"],
    ),
    "a topic in some files and in the messages of others": (
        lambda path: files(path, {"payload": PARTS, "content_topic": ["a"] * COUNT}, {"payload": PARTS}),
        ["--by", "content_topic", "--unwrap", "waku"],
        ["1.parquet is not like the other files", "'content_topic'"],
    ),
    "a file has another type": (
        lambda path: files(path, *({"payload": PARTS, "timestamp": [one] * COUNT} for one in (1, "1"))),
        [],
        ["1.parquet is not like the other files", "'timestamp' of type string"],
    ),
    "a column that keeps apart has another type": (
        lambda path: files(path, *({"payload": PARTS, "topic": [one] * COUNT} for one in (1, "1"))),
        ["--by", "topic"],
        ["1.parquet is not like the other files", "'topic' of type string: it must be int64"],
    ),
}


@pytest.mark.parametrize("command", ["report", "reconstruct"])
@pytest.mark.parametrize("case", ODD)
def test_one_line_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, case: str
) -> None:
    write, options, expected = ODD[case]
    archive = write(tmp_path / "archive")
    size = str(CONFIG.segment_size_bytes)
    # 1 would be an archive that is not whole.
    assert run([command, str(archive), "-o", str(tmp_path / "out"), "-s", size, *options]) == 2
    told = capsys.readouterr().err
    assert told.startswith("shardwire: ")
    assert told.count("\n") == 1
    assert "defect" not in told
    for text in expected:
        assert text in told
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("command", ["report", "reconstruct"])
@pytest.mark.parametrize(
    "tables",
    [
        [{"payload": pa.array([], pa.binary())}],
        [{"payload": pa.array([None, None], pa.binary())}],
        [{"payload": pa.array([*PARTS, None], pa.binary()), "timestamp": pa.array([5] * COUNT + [None], pa.int64())}],
        # What nobody asks for may differ, and units of time do.
        [{"payload": PARTS, "note": [1] * COUNT}, {"payload": PARTS, "note": ["x"] * COUNT}],
        [{"payload": PARTS, "timestamp": pa.array([5] * COUNT, kind)} for kind in (pa.int64(), pa.timestamp("ms"))],
        # Of what is null in every row pandas and pyarrow write no type.
        [{"payload": PARTS, "timestamp": pa.nulls(COUNT)}, {"payload": PARTS, "timestamp": [5] * COUNT}],
        [{"payload": PARTS, "timestamp": [5] * COUNT}, {"payload": pa.nulls(1), "timestamp": pa.nulls(1)}],
        [{"payload": PARTS, "timestamp": pa.array([-(2**63), *[2**63 - 1] * (COUNT - 1)], pa.int64())}],
    ],
)
def test_odd_rows_are_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, tables: list[dict[str, Any]]
) -> None:
    archive = files(tmp_path / "archive", *tables)
    size = str(CONFIG.segment_size_bytes)
    assert run([command, str(archive), "-o", str(tmp_path / "out"), "-s", size]) == 0
    assert capsys.readouterr().err == ""


def test_a_page_in_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = files(tmp_path / "archive", {"payload": PARTS})
    assert run(["report", str(archive), "-o", str(tmp_path / "absent" / "page.html")]) == 2
    assert f"there is no directory '{tmp_path / 'absent'}'" in capsys.readouterr().err


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return files(tmp_path / "archive", {"payload": PARTS})


def test_a_page_takes_no_place_in_the_archive(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = archive / "0.parquet"
    before = file.read_bytes()
    (tmp_path / "link.html").symlink_to(file)
    for output in (file, tmp_path / "link.html", archive / "page.html"):
        assert run(["report", str(archive), "-o", str(output)]) == 2
        assert "overlap" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert [entry.name for entry in archive.iterdir()] == ["0.parquet"]


def test_only_an_earlier_output_is_replaced(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    for _ in range(2):
        assert run(["reconstruct", str(archive), "-o", str(home), "--overwrite"]) == 0
    (home / "sub").mkdir()
    (home / "sub" / "precious.txt").write_text("precious")
    (tmp_path / "file").write_text("precious")
    capsys.readouterr()
    for output, what in ((home, "holds 'sub'"), (tmp_path / "file", "is a file")):
        assert run(["reconstruct", str(archive), "-o", str(output), "--overwrite"]) == 2
        assert what in capsys.readouterr().err
    assert (home / "sub" / "precious.txt").read_text() == (tmp_path / "file").read_text() == "precious"


def test_outputs_without_a_name(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    for output, what in ((".", "exists"), ("", "empty"), ("/", "overlap|root")):
        assert run(["reconstruct", str(archive), "-o", output]) == 2
        error = capsys.readouterr().err
        assert any(word in error for word in what.split("|"))
        assert "defect" not in error


def test_a_report_tells_rows_that_are_no_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = files(tmp_path / "archive", {"payload": [*PARTS, *[b"junk"] * 50]})
    assert run(["report", str(archive), "-o", str(tmp_path / "page.html")]) == 0
    assert "1 complete" in (told := capsys.readouterr().out)
    assert told.rstrip().endswith("; 50 rows are no segments")


@pytest.mark.parametrize("command", ["report", "reconstruct"])
def test_a_path_that_is_not_utf_8_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    archive = files(tmp_path / "archive", {"payload": PARTS})
    odd = tmp_path / os.fsdecode(b"n\xff")
    if command == "reconstruct":
        assert run([command, str(archive), "-o", str(odd)]) == 2
        assert r"n\udcff' is not UTF-8" in capsys.readouterr().err
    archive.rename(odd)
    assert run([command, str(odd), "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert r"n\udcff/0.parquet' is not UTF-8" in told
    assert told.count("\n") == 1
