"""The column functions under their names in SQL, and the data source of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwire.config import SegmentationConfig
from shardwire.spark import functions, versions
from shardwire.spark.store_source import WakuStoreDataSource
from shardwire.spark.udfs import arrow_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes the column functions known to SQL on a session, and from PySpark 4.0 on the data source `waku-store`.

    Turns `spark.sql.python.filterPushdown.enabled` on, without which the source does not load from PySpark 4.1 on.

    Names: keccak256, decode_segment (wire raw), decode_segment_draft, decode_segment_lip243, decode_sds (wire spec),
    decode_sds_nim, decode_waku_message, message_hash (five arguments), shard_of (8 shards), segment (default
    configuration).
    """
    functions_in_sql = {
        "keccak256": functions.keccak256_batches(),
        "decode_segment": functions.decode_segment_batches("raw", 256, True),
        "decode_segment_draft": functions.decode_segment_batches("draft", 256, True),
        "decode_segment_lip243": functions.decode_segment_batches("lip243", 256, True),
        "decode_sds": functions.decode_sds_batches("spec"),
        "decode_sds_nim": functions.decode_sds_batches("nim"),
        "decode_waku_message": functions.decode_waku_message_batches(),
        "message_hash": functions.message_hash_batches(),
        "shard_of": functions.shard_of_batches(8),
        "segment": functions.segment_batches(SegmentationConfig()),
    }
    for name, function in functions_in_sql.items():
        udf: Any = arrow_form(function)
        spark.udf.register(name, udf)
    if versions.HAS_SOURCE_FILTERS:
        # Spark refuses a source that takes filters while this is off, and it is off by default.
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if versions.data_source is not None:
        spark.dataSource.register(WakuStoreDataSource)
