"""One session on a local cluster of two executor processes, shared by every test that needs Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_ENV = "SHARDWIRE_TEST_KEYS"
ENV_KEY = bytes(range(100, 132))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from shardwire.spark import local_cluster_session

    # Executors inherit the environment of the process that starts the cluster.
    os.environ[KEY_ENV] = ENV_KEY.hex()
    session = local_cluster_session("shardwire-tests")
    yield session
    session.stop()
