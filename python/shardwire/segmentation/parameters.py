"""The native form of a configuration."""

from __future__ import annotations

from functools import lru_cache

from shardwire._native import SegmentationParameters
from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError


def native_parameters(config: SegmentationConfig) -> SegmentationParameters:
    """The validated parameters of a configuration, made once for equal ones.

    Raises:
        ConfigError: The settings do not go together: names the field, the value and the limit. Or what was given is no
            `SegmentationConfig`.
    """
    if not isinstance(config, SegmentationConfig):
        raise ConfigError(f"config is {type(config).__name__}: it must be a SegmentationConfig")
    return _parameters_of(config)


@lru_cache(maxsize=256)
def _parameters_of(config: SegmentationConfig) -> SegmentationParameters:
    tail = config.max_tail_candidates
    return SegmentationParameters(
        segment_size_bytes=config.segment_size_bytes,
        enable_reed_solomon=config.enable_reed_solomon,
        parity_rate=config.parity_rate,
        parity_for_single_segment=config.parity_for_single_segment,
        erasure_code=config.erasure_code,
        wire_format=config.wire_format,
        max_total_segments=config.max_total_segments,
        max_tail_candidates=config.segment_size_bytes if tail is None else tail,
    )
