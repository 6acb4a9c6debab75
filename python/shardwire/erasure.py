"""Reed-Solomon erasure coding of shards, byte for byte as deployed encoders do it.

`leopard` is catid/leopard FF8 and takes shards of a multiple of 64 bytes; `vandermonde` is the default matrix of
klauspost/reedsolomon and the reed-solomon-erasure crate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shardwire import _native
from shardwire.config import ErasureCode
from shardwire.config.checks import check_text

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["encode", "reconstruct"]


def encode(data_shards: Iterable[Buffer], parity_count: int, erasure_code: ErasureCode = "leopard") -> list[bytes]:
    """The parity shards of data shards of equal length.

    Args:
        data_shards: At least one shard.
        parity_count: How many parity shards to make; leopard makes at most as many as there are data shards.
        erasure_code: "leopard" or "vandermonde".

    Raises:
        ConfigError: Counts or lengths that the code does not take: names the value and the limit.
        TypeError: A shard is no buffer: names its place.
    """
    check_text("erasure_code", erasure_code)
    return _native.erasure_encode(data_shards, parity_count, erasure_code)


def reconstruct(
    shards: Iterable[Buffer | None], data_count: int, parity_count: int, erasure_code: ErasureCode = "leopard"
) -> list[bytes]:
    """All data shards, in order, from any `data_count` of the shards.

    Args:
        shards: `data_count + parity_count` entries, None where a shard is lost.
        data_count: Data shards that were encoded.
        parity_count: Parity shards that were made of them.
        erasure_code: The code that made them; another code gives other bytes, and nothing here can tell.

    Raises:
        NotEnoughShardsError: Fewer than `data_count` shards are present; carries both numbers.
        ConfigError: Counts or lengths that the code does not take: names the value and the limit.
        TypeError: A shard is neither a buffer nor None: names its place.
    """
    check_text("erasure_code", erasure_code)
    return _native.erasure_reconstruct(shards, data_count, parity_count, erasure_code)
