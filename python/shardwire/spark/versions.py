"""What the installed PySpark lacks, and what stands in its place. Nothing else asks for a version.

Features are looked for by name where there is one to import: vendors carry them back into older versions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyspark

from shardwire.errors import ConfigError

# Oldest and newest minor versions that the tests run on.
TESTED = ("3.5", "4.0", "4.1", "4.3")


def version_of(text: str) -> tuple[int, int]:
    """Major and minor number of a version as Spark's vendors write it, for example 3.5.2-amzn-1."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


VERSION = version_of(pyspark.__version__)

# UDFs over Arrow arrays: since 4.1.
arrow_udf: Any
try:
    from pyspark.sql.pandas.functions import arrow_udf
except ImportError:
    arrow_udf = None

# Data sources in Python: since 4.0.
data_source: Any
try:
    from pyspark.sql import datasource as data_source
except ImportError:
    data_source = None

# Filters that Spark hands to such a source: since 4.1.
HAS_SOURCE_FILTERS = hasattr(data_source, "EqualTo")

# State of a key with timers: over pandas since 4.0, over rows since 4.1.
stateful_processor: Any
try:
    from pyspark.sql.streaming import stateful_processor
except ImportError:
    stateful_processor = None
HAS_STATE_OF_ROWS = stateful_processor is not None and VERSION >= (4, 1)
HAS_STATE_OF_FRAMES = stateful_processor is not None

# Batches on their way to Python are cut by bytes since 4.0; before, by rows alone, and one of 2 GiB fails its task.
CUTS_BATCHES_BY_BYTES = VERSION >= (4, 0)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource as DataSource
    from pyspark.sql.datasource import DataSourceReader as DataSourceReader
    from pyspark.sql.datasource import DataSourceStreamReader as DataSourceStreamReader
    from pyspark.sql.datasource import InputPartition as InputPartition
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor as StatefulProcessor
else:

    class _Missing:
        """Stands for a class that is missing, so that the modules that derive from it can be imported."""

    StatefulProcessor = getattr(stateful_processor, "StatefulProcessor", _Missing)
    DataSource, DataSourceReader, DataSourceStreamReader, InputPartition = (
        getattr(data_source, name, _Missing)
        for name in ("DataSource", "DataSourceReader", "DataSourceStreamReader", "InputPartition")
    )


def require_data_sources() -> None:
    """Refuses what needs a data source in Python.

    Raises:
        ConfigError: PySpark is older than 4.0.
    """
    if data_source is None:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no data sources in Python, which waku-store needs: use PySpark 4.0 or "
            "newer, or read the store with shardwire.node.StoreClient into Parquet files"
        )


def require_state() -> None:
    """Refuses what needs state with timers.

    Raises:
        ConfigError: PySpark is older than 4.0.
    """
    if stateful_processor is None:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no state with timers in Python, which reconstruct_stream needs: use "
            "PySpark 4.0 or newer, or run reconstruct on what has arrived"
        )
