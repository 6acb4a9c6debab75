"""Which files the demo takes, and how it cuts them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardwire import PayloadTooLargeError, ShardwireError
from shardwire.cli.app import demo, run
from shardwire.cli.demo.settings import (
    DATA_SEGMENTS_MIN,
    FILE_BYTES_MIN,
    SEGMENT_SIZE_BYTES,
    largest_file_bytes,
    plan_demo,
)
from shardwire.cli.demo.source import DEFAULT_BYTES_MIN, PREFIX_BYTES, default_source, load_source, python_binaries


def sparse_file(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_largest_file_is_what_leopard_and_the_segment_count_allow() -> None:
    # 128 data and 64 parity segments: one more data segment and Leopard leaves its 8-bit field.
    assert largest_file_bytes() == 128 * SEGMENT_SIZE_BYTES == 13_107_200


@pytest.mark.parametrize("size", [FILE_BYTES_MIN, FILE_BYTES_MIN + 1, 100_000, 6_553_599, 6_553_600, 13_107_200])
def test_every_file_makes_enough_segments(size: int) -> None:
    plan = plan_demo(size)
    assert plan.data_segment_count >= DATA_SEGMENTS_MIN
    assert plan.parity_segment_count == -(-plan.data_segment_count // 2)
    assert plan.segment_count < 256
    # The send needs more than one epoch wherever in one it begins.
    quota = plan.config.rate_limit.messages_per_epoch
    assert quota is not None
    assert quota < plan.segment_count


def test_large_files_keep_the_usual_segment_size() -> None:
    assert plan_demo(6_553_600).config.segmentation.segment_size_bytes == SEGMENT_SIZE_BYTES
    assert plan_demo(6_553_599).config.segmentation.segment_size_bytes < SEGMENT_SIZE_BYTES


def test_file_one_byte_too_large_is_refused_with_both_numbers(tmp_path: Path) -> None:
    file = sparse_file(tmp_path / "large.bin", 13_107_201)
    with pytest.raises(PayloadTooLargeError, match=r"13,107,201 bytes and one message holds 13,107,200") as caught:
        load_source(file)
    assert (caught.value.payload_bytes, caught.value.limit_bytes) == (13_107_201, 13_107_200)


def test_file_one_byte_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardwireError, match=r"4,095 bytes and the demo needs 4,096"):
        load_source(sparse_file(tmp_path / "small.bin", 4_095))


def test_refusals_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        [str(sparse_file(tmp_path / "small.bin", 4_095))],
        [str(tmp_path)],
        [str(tmp_path), "--as-file"],
        ["--as-file"],
    ):
        assert run(["demo", *arguments, "-o", str(tmp_path / "output")]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "output").exists()


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardwireError, match="no regular file"):
        load_source(tmp_path)


def test_default_input_is_a_binary_of_this_python() -> None:
    source = load_source(None)
    assert 4_096 <= len(source.payload) <= 13_107_200
    assert any(str(path) in source.name for path in python_binaries())


def test_default_input_prefers_a_whole_binary_of_5_to_13_mb(tmp_path: Path) -> None:
    small = sparse_file(tmp_path / "small", 20_000)
    fitting = sparse_file(tmp_path / "fitting", DEFAULT_BYTES_MIN)
    huge = sparse_file(tmp_path / "huge", 30_000_000)
    assert default_source([small, huge, fitting]).name == str(fitting)
    taken = default_source([small, huge])
    assert len(taken.payload) == PREFIX_BYTES
    assert taken.name.endswith(str(huge))
    assert len(default_source([small]).payload) == 20_000
    with pytest.raises(ShardwireError, match="name a file"):
        default_source([])


def test_the_help_and_the_guide_say_the_same_of_exit_codes() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "guide" / "cli.md"
    said = [" ".join(text.split()) for text in (demo.__doc__ or "", page.read_text())]
    helped, guided = (re.findall(r"xits with 0 where both receivers [^.]*\.", text) for text in said)
    assert len(helped) == 1
    assert helped == guided
