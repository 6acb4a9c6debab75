"""Archives of network traffic on Spark: column functions and reconstruction over the native core (extra `spark`)."""

from __future__ import annotations

import sys

from shardwire.errors import MissingLibraryError

try:
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    # On an executor it is often another Python than the driver's that lacks it.
    raise MissingLibraryError(
        f"shardwire.spark needs the library {error.name}: pip install 'shardwire[spark]' for {sys.executable}, or have "
        "PYSPARK_PYTHON name the Python that has it"
    ) from None

from shardwire.archive.unwrap import Decrypt, UnwrapStep, decrypt
from shardwire.spark import functions, pandas_functions
from shardwire.spark.archive import ArchiveReport, reconstruct_archive
from shardwire.spark.dead_letters import dead_letters
from shardwire.spark.reconstruct import reconstruct
from shardwire.spark.report import ChannelReport, channel_report
from shardwire.spark.segments import segment_messages, with_keccak256
from shardwire.spark.session import job_session, local_cluster_session
from shardwire.spark.sql import register
from shardwire.spark.stream import reconstruct_stream
from shardwire.spark.summary import summarize_archive
from shardwire.spark.unfinished import unfinished_messages

__all__ = [
    "ArchiveReport",
    "ChannelReport",
    "Decrypt",
    "UnwrapStep",
    "channel_report",
    "dead_letters",
    "decrypt",
    "functions",
    "job_session",
    "local_cluster_session",
    "pandas_functions",
    "reconstruct",
    "reconstruct_archive",
    "reconstruct_stream",
    "register",
    "segment_messages",
    "summarize_archive",
    "unfinished_messages",
    "with_keccak256",
]
