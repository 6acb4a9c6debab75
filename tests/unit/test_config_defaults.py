"""Every option: its default in both presets, the names of the older text, and what it refuses."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from shardwire import (
    ChannelConfig,
    ConfigError,
    MemoryPersistence,
    RateLimitConfig,
    ReassemblyLimits,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
    SyncConfig,
    create_reliable_channel,
)
from shardwire.node import MemoryNetwork, run_virtual
from shardwire.segmentation import Reassembler

# (part, field, logos(), waku()), as the API's contract has them.
DEFAULTS = [
    ("segmentation", "segment_size_bytes", 102_400, 102_400),
    ("segmentation", "enable_reed_solomon", False, False),
    ("segmentation", "parity_rate", 0.125, 0.125),
    ("segmentation", "parity_for_single_segment", False, False),
    ("segmentation", "erasure_code", "leopard", "vandermonde"),
    ("segmentation", "wire_format", "raw", "draft"),
    ("segmentation", "max_total_segments", 256, 256),
    ("sds", "persistence", None, None),
    ("sds", "acknowledgement_timeout_ms", 5_000, 30_000),
    ("sds", "max_retransmissions", 5, 10),
    ("sds", "back_off_percent", 0, 0),
    ("sds", "causal_history_size", 2, 200),
    ("sds", "bloom_filter_capacity", 10_000, 10_000),
    ("sds", "bloom_filter_error_rate", 0.001, 0.001),
    ("sds", "bloom_interval_ms", 30_000, 0),
    ("sds", "possible_acks_threshold", 2, 2),
    ("sds", "timeout_for_lost_messages_ms", 300_000, 0),
    ("sds", "enable_repair", True, True),
    ("sds", "outgoing_buffer_messages_max", 1_024, 1_024),
    ("sds", "incoming_buffer_messages_max", 10_000, 10_000),
    ("sds", "incoming_buffer_bytes_max", 256 << 20, 256 << 20),
    ("sds", "missing_messages_max", 10_000, 10_000),
    ("sds", "log_messages_max", 100_000, 100_000),
    ("sds", "log_bytes_max", 32 << 20, 32 << 20),
    ("sds", "max_lamport_skew_ms", 300_000, 300_000),
    ("sds", "replay_window_ms", 0, 0),
    ("sds", "message_id", "send", "send"),
    ("sds", "wire_format", "spec", "spec"),
    ("sds", "repair_t_min_ms", 30_000, 30_000),
    ("sds", "repair_t_max_ms", 120_000, 120_000),
    ("sds", "repair_groups", 1, 1),
    ("sync", "sync_min_interval_ms", 30_000, 30_000),
    ("sync", "sweep_in_buf_interval_ms", 0, 5_000),
    ("sync", "process_task_min_elapse_ms", 0, 1_000),
    ("sync", "retrieve_frequency_ms", 1_000, 10_000),
    ("sync", "store_queries_per_minute_max", 120, 120),
    ("sync", "query_on_connect", True, True),
    ("sync", "query_on_connect_interval_ms", 300_000, 300_000),
    ("sync", "participant_ttl_ms", 600_000, 600_000),
    ("sync", "acknowledgement_sync", True, False),
    ("rate_limit", "enabled", False, False),
    ("rate_limit", "epoch_size_ms", 600_000, 600_000),
    ("rate_limit", "messages_per_epoch", None, None),
    ("rate_limit", "counts", "message", "segment"),
    ("rate_limit", "ephemeral_drop_threshold", 0.9, 0.9),
    ("rate_limit", "ack_reserve", 0.1, 0.1),
    ("rate_limit", "queue_bytes_max", 256 << 20, 256 << 20),
]
LIMITS = {
    "sets_max": 1_000,
    "sets_per_sender_max": 100,
    "buffered_bytes_max": 256 << 20,
    "buffered_bytes_per_sender_max": 64 << 20,
    "unauthenticated_share": 0.5,
    "candidates_per_slot_max": 4,
    "completed_remembered_max": 100_000,
    "timeout_ms": 300_000,
    "work_budget": 32,
}
OPTIONS = {
    "sync_min_interval_ms": 30_000,
    "retry_interval_ms": 30_000,
    "max_retry_attempts": 10,
    "retrieve_frequency_ms": 10_000,
    "sweep_in_buf_interval_ms": 5_000,
    "query_on_connect": True,
    "auto_start": True,
    "process_task_min_elapse_ms": 1_000,
    "causal_history_size": 200,
    "timeout_for_lost_messages_ms": None,
    "possible_acks_threshold": 2,
    "enable_repair": True,
}


@pytest.mark.parametrize(("part", "name", "logos", "waku"), DEFAULTS, ids=lambda value: str(value))
def test_default_in_both_presets(part: str, name: str, logos: object, waku: object) -> None:
    assert getattr(getattr(ChannelConfig.logos(), part), name) == logos
    assert getattr(getattr(ChannelConfig.waku(), part), name) == waku


def test_no_option_is_without_an_expectation() -> None:
    for part, kind in (("sds", SdsConfig), ("sync", SyncConfig), ("rate_limit", RateLimitConfig)):
        assert {field.name for field in fields(kind)} == {name for owner, name, *_ in DEFAULTS if owner == part}
    assert {field.name: getattr(ReassemblyLimits(), field.name) for field in fields(ReassemblyLimits)} == LIMITS


def test_defaults_of_the_channel_itself() -> None:
    for config in (ChannelConfig.logos(), ChannelConfig.waku(), ChannelConfig()):
        assert config.auto_start is True
        assert config.delivered_when == "any"
        assert config.redelivery == "at-least-once"
        assert config.envelope_meta is None
    assert ChannelConfig().repair == "auto"
    assert ChannelConfig().parity_on_demand
    assert ChannelConfig.waku().repair == "arq"
    assert ChannelConfig() == ChannelConfig.logos()
    assert ChannelConfig.logos(delivered_when=2).delivered_when == 2
    assert ChannelConfig.waku(auto_start=False).auto_start is False


def test_options_carry_the_names_and_defaults_of_the_older_text() -> None:
    options = ReliableChannelOptions()
    assert {field.name: getattr(options, field.name) for field in fields(options)} == OPTIONS
    assert options.to_config() == ChannelConfig.waku()
    config = ReliableChannelOptions(
        sync_min_interval_ms=1,
        retry_interval_ms=2,
        max_retry_attempts=3,
        retrieve_frequency_ms=4,
        sweep_in_buf_interval_ms=5,
        query_on_connect=False,
        auto_start=False,
        process_task_min_elapse_ms=6,
        causal_history_size=7,
        timeout_for_lost_messages_ms=800_000,
        possible_acks_threshold=9,
        enable_repair=False,
    ).to_config()
    assert (config.sync.sync_min_interval_ms, config.sync.retrieve_frequency_ms) == (1, 4)
    assert (config.sds.acknowledgement_timeout_ms, config.sds.max_retransmissions) == (2, 3)
    assert (config.sync.sweep_in_buf_interval_ms, config.sync.process_task_min_elapse_ms) == (5, 6)
    assert (config.sync.query_on_connect, config.auto_start) == (False, False)
    assert (config.sds.causal_history_size, config.sds.possible_acks_threshold) == (7, 9)
    assert (config.sds.timeout_for_lost_messages_ms, config.sds.enable_repair) == (800_000, False)


@pytest.mark.parametrize("lost_ms", [1, 2, 3, 7, 1_000, 100_000, 239_999, 240_000, 800_000])
def test_a_short_lost_timeout_makes_repair_as_much_faster(lost_ms: int) -> None:
    sds = ReliableChannelOptions(timeout_for_lost_messages_ms=lost_ms).to_config().sds
    assert (sds.timeout_for_lost_messages_ms, sds.enable_repair) == (lost_ms, True)
    assert sds.repair_t_min_ms < sds.repair_t_max_ms
    assert sds.repair_t_max_ms == max(1, min(120_000, lost_ms // 2))
    assert sds.repair_t_min_ms <= sds.repair_t_max_ms / 4 <= 30_000
    assert (
        not ReliableChannelOptions(timeout_for_lost_messages_ms=lost_ms, enable_repair=False)
        .to_config()
        .sds.enable_repair
    )


def test_segment_size_alone_is_enough() -> None:
    config = SegmentationConfig(segment_size_bytes=1_000)
    assert (config.parity_rate, config.max_total_segments, config.limits) == (0.125, 256, ReassemblyLimits())


@pytest.mark.parametrize("config", [ChannelConfig.logos(delivered_when={"bob"}), ChannelConfig.waku()])
def test_configurations_are_frozen_and_pickle(config: ChannelConfig) -> None:
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(FrozenInstanceError):
        config.auto_start = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (SegmentationConfig, {"segment_size_bytes": 0}),
        (SegmentationConfig, {"segment_size_bytes": -1}),
        (SegmentationConfig, {"segment_size_bytes": 1.5}),
        (SegmentationConfig, {"segment_size_bytes": (1 << 30) + 1}),
        (SegmentationConfig, {"parity_rate": -0.1}),
        (SegmentationConfig, {"parity_rate": 1.1}),
        (SegmentationConfig, {"parity_rate": float("nan")}),
        (SegmentationConfig, {"max_total_segments": 257}),
        (SegmentationConfig, {"max_total_segments": 1}),
        (SegmentationConfig, {"wire_format": "morse"}),
        (SegmentationConfig, {"erasure_code": "raptor"}),
        (SegmentationConfig, {"enable_reed_solomon": 1}),
        (SegmentationConfig, {"limits": None}),
        (ReassemblyLimits, {"sets_max": 0}),
        (ReassemblyLimits, {"unauthenticated_share": 0}),
        (SdsConfig, {"acknowledgement_timeout_ms": 0}),
        (SdsConfig, {"max_retransmissions": -1}),
        (SdsConfig, {"max_retransmissions": 1 << 32}),
        (SdsConfig, {"bloom_filter_error_rate": 1.0}),
        (SdsConfig, {"message_id": "uuid"}),
        (SdsConfig, {"persistence": "state.sqlite"}),
        (SdsConfig, {"persistence": MemoryPersistence}),
        (SdsConfig, {"repair_t_max_ms": 30_000}),
        (SdsConfig, {"timeout_for_lost_messages_ms": 239_999}),
        (SyncConfig, {"sync_min_interval_ms": -1}),
        (SyncConfig, {"retrieve_frequency_ms": 0}),
        (RateLimitConfig, {"epoch_size_ms": 0}),
        (RateLimitConfig, {"counts": "bytes"}),
        (RateLimitConfig, {"messages_per_epoch": 0}),
        (RateLimitConfig, {"ack_reserve": 1.0}),
        (RateLimitConfig, {"ephemeral_drop_threshold": 1.01}),
        (ChannelConfig, {"repair": "fec"}),
        (ChannelConfig, {"delivered_when": 0}),
        (ChannelConfig, {"delivered_when": 1 << 63}),
        (ChannelConfig, {"delivered_when": frozenset()}),
        (ChannelConfig, {"delivered_when": frozenset({"\ud800"})}),
        (ChannelConfig, {"delivered_when": frozenset({"a" * 257})}),
        (ChannelConfig, {"envelope_meta": bytes(65)}),
        (ChannelConfig, {"sds": None}),
    ],
    ids=str,
)
def test_wrong_values_are_refused_by_name_and_value(kind: type, wrong: dict[str, object]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigError) as caught:
        kind(**wrong)
    assert f"{kind.__name__}.{name} is {value!r}" in str(caught.value)


NUMBERS = [(part, name) for part, name, value, _ in DEFAULTS if type(value) is int]


@pytest.mark.parametrize("number", [2**31, 2**32, 2**63 - 1, 2**63, 2**64])
@pytest.mark.parametrize(("part", "name"), NUMBERS)
def test_a_number_that_the_core_cannot_take_is_refused_at_once(part: str, name: str, number: int) -> None:
    config = ChannelConfig.logos()
    try:
        config = replace(config, **{part: replace(getattr(config, part), **{name: number})})
    except ConfigError:
        return

    async def scenario() -> None:
        async with MemoryNetwork().create_node("alice") as node:
            channel = await create_reliable_channel(node, "channel", "/shardwire/1/test/proto", "alice", config=config)
            await channel.close()

    run_virtual(scenario())


def test_a_quota_is_required_when_the_limit_is_enabled() -> None:
    with pytest.raises(ConfigError, match="messages_per_epoch is None"):
        RateLimitConfig(enabled=True)
    assert RateLimitConfig(enabled=True, messages_per_epoch=1).enabled


def test_leopard_names_the_nearest_segment_size() -> None:
    with pytest.raises(ConfigError, match="for repair='parity': the nearest is 1024"):
        ChannelConfig(segmentation=SegmentationConfig(segment_size_bytes=1000), repair="parity")
    with pytest.raises(ConfigError, match="the nearest is 1024"):
        SegmentationConfig(segment_size_bytes=1_000, enable_reed_solomon=True)
    assert SegmentationConfig(segment_size_bytes=1_000, enable_reed_solomon=True, erasure_code="vandermonde")
    single = SegmentationConfig(enable_reed_solomon=True, parity_for_single_segment=True, max_total_segments=3)
    with pytest.raises(ConfigError, match="max_total_segments is 2: it must be at least 3"):
        replace(single, max_total_segments=2)
    for works in ({"wire_format": "draft"}, {"wire_format": "lip243"}, {"parity_rate": 0}):
        assert Reassembler(replace(single, max_total_segments=2, **works))
    with pytest.raises(ConfigError, match="segment_size_bytes"):
        replace(SegmentationConfig(), wire_format="lip243", segment_size_bytes=191)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("retry_interval_ms", -1),
        ("max_retry_attempts", "x"),
        ("sync_min_interval_ms", -1),
        ("retrieve_frequency_ms", 0),
        ("sweep_in_buf_interval_ms", 1.5),
        ("process_task_min_elapse_ms", -1),
        ("causal_history_size", -1),
        ("possible_acks_threshold", 0),
        ("timeout_for_lost_messages_ms", False),
        ("timeout_for_lost_messages_ms", -1),
        ("enable_repair", 0),
        ("query_on_connect", 1),
        ("auto_start", None),
    ],
)
def test_a_wrong_option_is_refused_under_its_own_name(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^ReliableChannelOptions\.{option} is {value!r}: it must be"):
        ReliableChannelOptions(**{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("preset", "name", "remedy"),
    [
        (ChannelConfig.logos, "parity_rate", "give segmentation=SegmentationConfig(parity_rate=...)"),
        (ChannelConfig.logos, "acknowledgement_timeout_ms", "give sds=SdsConfig(acknowledgement_timeout_ms=...)"),
        (ChannelConfig.waku, "persistence", "give sds=replace(ChannelConfig.waku().sds, persistence=...)"),
        (ChannelConfig.logos, "deliverd_when", "its fields are segmentation, sds, sync, rate_limit, "),
    ],
)
def test_a_preset_says_where_a_field_belongs_that_is_none_of_its_own(
    preset: Callable[..., ChannelConfig], name: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^ChannelConfig has no '?{name}'?.*{re.escape(remedy)}"):
        preset(**{name: 1})
