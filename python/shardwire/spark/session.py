"""Spark sessions with the settings that large binary rows want."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shardwire.ending_signals import interrupted_after
from shardwire.spark import versions
from shardwire.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# Batches of 1 to 4 MB cross to Python 1.5 times faster than the default of 64 MB where rows are large.
ARROW_BATCH_BYTES = 2 * 1024 * 1024

# Where batches are cut by rows alone: 2 GiB, which fails the task, are then rows of 8 MB.
ARROW_BATCH_ROWS = 256

_BATCH_SETTING = (
    {"spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES)}
    if versions.CUTS_BATCHES_BY_BYTES
    else {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS)}
)
_SETTINGS = {
    **_BATCH_SETTING,
    # Parquet's writer otherwise takes in a hundred rows before it looks at their size: a hundred payloads of 30 MB
    # are more than an executor has.
    "parquet.page.size.row.check.min": "1",
    # Otherwise Spark refuses files with times in ns, as pandas writes them; so it gives the numbers that we take.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
}
_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
# A short-lived cluster stops its executors by signal, which these report as failures.
logger.shutdown.name = org.apache.spark
logger.shutdown.level = off
"""


def configure(spark: SparkSession) -> SparkSession:
    """Sets on a session what the functions of this package need to be fast, and to read times in ns; returns it."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    return spark


@contextmanager
def job_session(app_name: str, master: str | None = None) -> Iterator[SparkSession]:
    """The session of a `spark-submit` job: resources are the submitter's, and so is the master unless one is named.

    Spark's own logs are off unless `spark.log.level` is set. It is stopped at the end, so that a cluster takes its
    executors back whatever else keeps the driver alive. A session that is there already is neither
    silenced nor stopped.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Workers otherwise take the first python3 on their path. On a cluster the submitter names theirs.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ensure_java()
    # Spark's own active session is that of a thread alone.
    is_ours = SparkContext._active_spark_context is None
    builder = SparkSession.builder.appName(app_name)
    if is_ours:
        # Spark's progress bars would write over the lines of a job.
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        if master is not None:
            builder = builder.master(master)
    _start_java(SparkConf(loadDefaults=False))
    before = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    try:
        if before is not None and signal.getsignal(signal.SIGINT) is not before:
            # Spark's handler calls Java, which fails within another call; what it cancels ends with the session anyway.
            signal.signal(signal.SIGINT, before)
        if is_ours and spark.conf.get("spark.log.level", None) is None:
            # What fails is told in one line, where Spark's own logs tell it in hundreds.
            spark.sparkContext.setLogLevel("FATAL")
        yield configure(spark)
    finally:
        if is_ours:
            # Where the driver's Java has died there is nothing to stop, and its death is what is to be told.
            with suppress(Py4JError, OSError):
                spark.stop()


def local_cluster_session(
    app_name: str = "shardwire",
    *,
    workers: int = 2,
    cores: int = 1,
    memory_mib: int = 1024,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on a cluster of real executor processes on this machine: nothing listens beyond 127.0.0.1.

    Args:
        app_name: Shown in Spark's own logs.
        workers: Executors.
        cores: Cores of each.
        memory_mib: Java memory of each, in MiB.
        conf: Further Spark settings; they win over ours.

    Returns:
        The session; the caller stops it. A session that is already active is returned as it is.

    Raises:
        ConfigError: There is no Java that Spark can run on.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    ensure_java()
    home = _private_spark_home()
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # A machine without a network has no address of its own to bind to.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = (home / "shardwire-log4j2.properties").as_uri()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(max(2, workers * cores)),
        "spark.sql.warehouse.dir": (home / "warehouse").as_uri(),
        **(conf or {}),
    }
    settings = {
        "spark.master": f"local-cluster[{workers},{cores},{memory_mib}]",
        "spark.app.name": app_name,
        **settings,
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    _start_java(SparkConf(loadDefaults=False).setAll(list(settings.items())))
    session = configure(builder.getOrCreate())
    for name in _SETTINGS.keys() & settings:
        session.conf.set(name, settings[name])
    return session


def _start_java(conf: SparkConf) -> None:
    """Starts Spark's Java, where it does not run. What interrupts does so after that."""
    from pyspark import SparkContext

    with interrupted_after():
        # Java whose driver ends while it starts stays for ever; and an interruption within a fork is dropped.
        SparkContext._ensure_initialized(conf=conf)


@cache
def _private_spark_home() -> Path:
    """A directory that stands for pyspark's own: executors of a local cluster write their logs into Spark's home."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = Path(tempfile.mkdtemp(prefix="shardwire-spark-"))
    for entry in installed.iterdir():
        if entry.name not in ("work", "__pycache__"):
            (home / entry.name).symlink_to(entry)
    (home / "shardwire-log4j2.properties").write_text(_LOGGING)
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home
