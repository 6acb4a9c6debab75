"""Messages of the library, as commands and jobs tell them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from shardwire.archive import reconstruct
from shardwire.config import ReassemblyLimits, SegmentationConfig
from shardwire.errors import ConfigError
from shardwire.option_words import in_words_of_the_line

ARCHIVE = pa.table({"payload": pa.array([b""], pa.binary())})
CONFIG = SegmentationConfig(enable_reed_solomon=True)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: replace(CONFIG, segment_size_bytes=0), "--segment-size is 0: "),
        (lambda: replace(CONFIG, segment_size_bytes=65), "a multiple of 64 for --erasure-code 'leopard': "),
        (lambda: replace(CONFIG, parity_rate=2), "--parity-rate is 2: "),
        (lambda: ReassemblyLimits(timeout_ms=0), "--timeout-ms is 0: "),
        (lambda: reconstruct(ARCHIVE, by=["x"]), "--by names the column 'x': the archive has payload"),
        (lambda: reconstruct(ARCHIVE, by=["payload"] * 2), "--by names a column twice: payload, payload"),
        (lambda: reconstruct(ARCHIVE, key="x", unwrap=["sds"]), "--key is 'x' and --unwrap has 1 steps: a key needs "),
    ],
)
def test_names_of_the_library_become_options(call: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        call()
    words = in_words_of_the_line(str(raised.value))
    assert told in words
    # What a message goes through twice it says as after once.
    assert in_words_of_the_line(words) == words
