"""Archives of network traffic on one machine, without Spark: recorded, reconstructed, told about (extra `archive`).

The native core, the columns and the statuses are those of `shardwire.spark`.
"""

from __future__ import annotations

from shardwire.errors import MissingLibraryError

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingLibraryError(
        f"shardwire.archive needs the library {error.name}: pip install 'shardwire[archive]'"
    ) from None

from shardwire.archive.html_page import report_page
from shardwire.archive.reconstruct import Report, reconstruct, reconstruct_files
from shardwire.archive.recorder import Recorder
from shardwire.archive.report import ArchiveSummary, KindTally, Tally, summarize
from shardwire.archive.unwrap import Decrypt, UnwrapStep, decrypt

__all__ = [
    "ArchiveSummary",
    "Decrypt",
    "KindTally",
    "Recorder",
    "Report",
    "Tally",
    "UnwrapStep",
    "decrypt",
    "reconstruct",
    "reconstruct_files",
    "report_page",
    "summarize",
]
