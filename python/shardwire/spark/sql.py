"""The column functions under their names in SQL, and the data source of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwire.config import SegmentationConfig
from shardwire.spark import functions
from shardwire.spark.store_source import WakuStoreDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes the column functions known to SQL on a session, and the data source `waku-store`.

    Turns `spark.sql.python.filterPushdown.enabled` on, without which the source does not load.

    Names: keccak256, decode_segment (wire raw), decode_segment_draft, decode_segment_lip243, decode_sds (wire spec),
    decode_sds_nim, decode_waku_message, message_hash (five arguments), shard_of (8 shards), segment (default
    configuration).
    """
    udfs: dict[str, Any] = {
        "keccak256": functions.keccak256_udf(),
        "decode_segment": functions.decode_segment_udf("raw", 256, True),
        "decode_segment_draft": functions.decode_segment_udf("draft", 256, True),
        "decode_segment_lip243": functions.decode_segment_udf("lip243", 256, True),
        "decode_sds": functions.decode_sds_udf("spec"),
        "decode_sds_nim": functions.decode_sds_udf("nim"),
        "decode_waku_message": functions.decode_waku_message_udf(),
        "message_hash": functions.message_hash_udf(),
        "shard_of": functions.shard_of_udf(8),
        "segment": functions.segment_udf(SegmentationConfig()),
    }
    for name, udf in udfs.items():
        spark.udf.register(name, udf)
    # Spark refuses a source that takes filters while this is off, and it is off by default.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(WakuStoreDataSource)
