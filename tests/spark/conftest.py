"""One session on a local cluster of two executor processes, shared by every test that needs Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_ENV = "SHARDWIRE_TEST_KEYS"
ENV_KEY = bytes(range(100, 132))
SETTINGS = {
    # An executor that died does not come back at its address: asking it thrice, 5 s apart, only takes time.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    # Copies of slow tasks start at once. There are none on a single host, so that most tests see nothing of it.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    # Also where no other task tells how long one takes: a stage that is run again for one of its tasks has just that.
    "spark.speculation.task.duration.threshold": "2s",
}
# Far beyond what any test needs, and below the limit at which pytest gives up without freeing the cluster.
JOB_LIMIT_S = 240


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    from shardwire.spark import local_cluster_session

    # Executors inherit the environment of the process that starts the cluster.
    os.environ[KEY_ENV] = ENV_KEY.hex()
    session = local_cluster_session("shardwire-tests", conf=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session; what a test still runs on it after `JOB_LIMIT_S` is cancelled, and the test fails."""
    stuck: list[str] = []

    def cancel() -> None:
        context = spark_session.sparkContext
        jobs = context.statusTracker().getActiveJobsIds()
        executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
        stuck.append(f"jobs {list(jobs)} did not end within {JOB_LIMIT_S} s and were cancelled; {executors} executors")
        for query in spark_session.streams.active:
            query.stop()
        context.cancelAllJobs()

    timer = threading.Timer(JOB_LIMIT_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        yield spark_session
    finally:
        timer.cancel()
    if stuck:
        pytest.fail(stuck[0])
