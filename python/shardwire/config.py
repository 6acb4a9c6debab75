"""Every option of shardwire, as frozen dataclasses that refuse wrong values when they are made.

Times are integers in milliseconds (`_ms`), sizes in bytes (`_bytes`). `ChannelConfig.logos()` holds the defaults of
specification 003, `ChannelConfig.waku()` those of specification 004.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from shardwire._config_checks import check_bools, check_choices, check_integers, check_methods, check_share, refuse
from shardwire.errors import ConfigError

if TYPE_CHECKING:
    from shardwire.persistence import Persistence

ErasureCode = Literal["leopard", "vandermonde"]
SegmentWireFormat = Literal["raw", "draft", "lip243"]
SdsWireFormat = Literal["spec", "nim"]
MessageIdRule = Literal["send", "content-sha256"]
DeliveredWhen = Literal["any"] | int | frozenset[str]
Redelivery = Literal["at-least-once", "at-most-once"]
Repair = Literal["arq", "parity"]
RateCounts = Literal["message", "segment"]

T = TypeVar("T", bound="ChannelConfig")

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class ReassemblyLimits:
    """What a receiver may hold for payloads that are not complete (specifications 001 and 002, Denial of Service).

    Attributes:
        sets_max: Incomplete sets held at once, over all senders.
        sets_per_sender_max: Incomplete sets held at once with segments of one sender.
        buffered_bytes_max: Wire bytes held in incomplete sets, over all senders.
        buffered_bytes_per_sender_max: Wire bytes held for one sender.
        unauthenticated_share: Part of both global budgets that senders without an authenticated identity share.
        candidates_per_slot_max: Different segments kept for one position of a set.
        completed_remembered_max: Completed sets remembered, so that a late segment does not reopen one.
        timeout_ms: A set expires this long after its last new segment; under a rate limit after 3 epochs at least.
        work_budget: Reconstructions that guesses at wrong segments of a set may cost; as many are kept for the rest.
    """

    sets_max: int = 1_000
    sets_per_sender_max: int = 100
    buffered_bytes_max: int = 256 * MEBIBYTE
    buffered_bytes_per_sender_max: int = 64 * MEBIBYTE
    unauthenticated_share: float = 0.5
    candidates_per_slot_max: int = 4
    completed_remembered_max: int = 100_000
    timeout_ms: int = 300_000
    work_budget: int = 32

    def __post_init__(self) -> None:
        check_integers(self, 1, ("sets_max", "sets_per_sender_max", "buffered_bytes_max"))
        check_integers(self, 1, ("buffered_bytes_per_sender_max", "candidates_per_slot_max", "timeout_ms"))
        check_integers(self, 1, ("work_budget",))
        check_integers(self, 0, ("completed_remembered_max",))
        check_share(self, "unauthenticated_share", zero=False)


@dataclass(frozen=True, slots=True)
class SegmentationConfig:
    """How payloads become segments (specification 002; 003 SegmentationConfig).

    Attributes:
        segment_size_bytes: Payload bytes of a data segment; under `lip243` the size of a serialized segment.
        enable_reed_solomon: Whether parity segments are made.
        parity_rate: Parity segments per data segment, counted in millionths.
        parity_for_single_segment: Whether a payload that fits one segment gets parity too.
        erasure_code: The code of parity that is made, and the first one tried on receipt.
        wire_format: The segment wire.
        max_total_segments: A sender emits fewer data and parity segments than this, a receiver accepts as many.
        max_tail_candidates: Lengths tried for a recovered last segment; None means `segment_size_bytes`.
        limits: What a receiver holds.
    """

    segment_size_bytes: int = 102_400
    enable_reed_solomon: bool = False
    parity_rate: float = 0.125
    parity_for_single_segment: bool = False
    erasure_code: ErasureCode = "leopard"
    wire_format: SegmentWireFormat = "raw"
    max_total_segments: int = 256
    max_tail_candidates: int | None = None
    limits: ReassemblyLimits = field(default_factory=ReassemblyLimits)

    def __post_init__(self) -> None:
        check_integers(self, 1, ("segment_size_bytes",), 1 << 30)
        check_bools(self, ("enable_reed_solomon", "parity_for_single_segment"))
        check_share(self, "parity_rate")
        check_choices(self, "erasure_code", ("leopard", "vandermonde"))
        check_choices(self, "wire_format", ("raw", "draft", "lip243"))
        check_integers(self, 2, ("max_total_segments",), 256)
        if self.max_tail_candidates is not None:
            check_integers(self, 1, ("max_tail_candidates",), 1 << 30)
        if not isinstance(self.limits, ReassemblyLimits):
            raise refuse(self, "limits", self.limits, "a ReassemblyLimits")
        codes = self.enable_reed_solomon and self.erasure_code == "leopard"
        if codes and self.wire_format != "lip243" and self.segment_size_bytes % 64:
            nearest = max(64, round(self.segment_size_bytes / 64) * 64)
            limit = f"a multiple of 64 for erasure_code='leopard': the nearest is {nearest}"
            raise refuse(self, "segment_size_bytes", self.segment_size_bytes, limit)
        if self.wire_format == "lip243":
            check_integers(self, 192, ("segment_size_bytes",), 1 << 30)
        # Under `raw` any rate gives a single segment one of parity; a rate counts in millionths.
        parity = self.enable_reed_solomon and self.wire_format == "raw" and self.parity_rate >= 0.5e-6
        if parity and self.parity_for_single_segment and self.max_total_segments == 2:
            raise refuse(self, "max_total_segments", 2, "at least 3 where a single segment has parity")


@dataclass(frozen=True, slots=True)
class SdsConfig:
    """Scalable Data Sync (specification 003 SdsConfig; 004 ReliableChannelOptions).

    Attributes:
        persistence: Where state is kept; None gives each channel a `MemoryPersistence` of its own.
        acknowledgement_timeout_ms: How long an unacknowledged message waits before it is sent again.
        max_retransmissions: How often it is sent again before delivery is given up.
        back_off_percent: How much longer each wait is than the one before, up to eight times the first; 0: equal.
        causal_history_size: Entries of the local log that a message names.
        bloom_filter_capacity: Messages the bloom filter is sized for.
        bloom_filter_error_rate: Its false positive rate at that number.
        bloom_interval_ms: Least time between two messages that carry the filter; 0 puts it on every message.
        possible_acks_threshold: Participants whose filter must hold a message before it counts as acknowledged.
        timeout_for_lost_messages_ms: A dependency missing for this long is declared lost; 0 never.
        enable_repair: Whether SDS-R repair is asked for and answered.
        outgoing_buffer_messages_max: Dispatched, unacknowledged messages; `send` awaits room; larger ones leave alone.
        incoming_buffer_messages_max: Received messages, partial ones too, that wait for causes or the application.
        incoming_buffer_bytes_max: Bytes of whole messages that wait for the application, before nothing is taken in.
        missing_messages_max: Missing dependencies tracked.
        log_messages_max: Messages kept in the local log.
        max_lamport_skew_ms: How far ahead of our clock a received Lamport timestamp may move ours.
        message_id: "send" names the send and the place in it; "content-sha256" is the rule of @waku/sds.
        wire_format: "spec" (also @waku/sds) or "nim" (nim-sds).
        repair_t_min_ms: SDS-R T_min.
        repair_t_max_ms: SDS-R T_max.
        repair_groups: SDS-R response groups.
    """

    persistence: Persistence | None = None
    acknowledgement_timeout_ms: int = 5_000
    max_retransmissions: int = 5
    back_off_percent: int = 0
    causal_history_size: int = 2
    bloom_filter_capacity: int = 10_000
    bloom_filter_error_rate: float = 0.001
    bloom_interval_ms: int = 30_000
    possible_acks_threshold: int = 2
    timeout_for_lost_messages_ms: int = 300_000
    enable_repair: bool = True
    outgoing_buffer_messages_max: int = 1_024
    incoming_buffer_messages_max: int = 10_000
    incoming_buffer_bytes_max: int = 256 * MEBIBYTE
    missing_messages_max: int = 10_000
    log_messages_max: int = 100_000
    max_lamport_skew_ms: int = 300_000
    message_id: MessageIdRule = "send"
    wire_format: SdsWireFormat = "spec"
    repair_t_min_ms: int = 30_000
    repair_t_max_ms: int = 120_000
    repair_groups: int = 1

    def __post_init__(self) -> None:
        check_integers(self, 1, ("acknowledgement_timeout_ms", "possible_acks_threshold"))
        check_integers(self, 1, ("outgoing_buffer_messages_max", "incoming_buffer_messages_max"))
        check_integers(self, 1, ("incoming_buffer_bytes_max",))
        check_integers(self, 1, ("missing_messages_max", "log_messages_max", "repair_groups"))
        check_integers(self, 0, ("max_retransmissions", "causal_history_size", "bloom_interval_ms"))
        check_integers(self, 0, ("timeout_for_lost_messages_ms", "max_lamport_skew_ms", "repair_t_min_ms"))
        check_integers(self, 0, ("repair_t_max_ms",))
        check_integers(self, 0, ("back_off_percent",), 900)
        check_integers(self, 1, ("bloom_filter_capacity",), 10_000_000)
        check_share(self, "bloom_filter_error_rate", zero=False, one=False)
        check_bools(self, ("enable_repair",))
        check_methods(
            self, "persistence", ("load", "commit", "close"), "a Persistence, such as SqlitePersistence(path)"
        )
        check_choices(self, "message_id", ("send", "content-sha256"))
        check_choices(self, "wire_format", ("spec", "nim"))
        if self.repair_t_max_ms <= self.repair_t_min_ms:
            raise refuse(
                self, "repair_t_max_ms", self.repair_t_max_ms, f"above repair_t_min_ms, {self.repair_t_min_ms}"
            )
        # A dependent would otherwise be released before its cause was answered.
        lost = self.timeout_for_lost_messages_ms
        if self.enable_repair and 0 < lost < 2 * self.repair_t_max_ms:
            raise refuse(
                self,
                "timeout_for_lost_messages_ms",
                lost,
                f"0 or at least 2 x repair_t_max_ms ({2 * self.repair_t_max_ms}) while repair is on",
            )


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """Synchronisation, retrieval and their pace (specification 004, Implementation Suggestions).

    Attributes:
        sync_min_interval_ms: Least interval between periodic sync messages of the channel; 0 turns them off.
        sweep_in_buf_interval_ms: How often the incoming buffer is swept; 0 sweeps at once.
        process_task_min_elapse_ms: Least time between two runs of the incoming task; 0 runs at once.
        retrieve_frequency_ms: How often missing messages are asked of the store.
        store_queries_per_minute_max: Store queries sent in any minute.
        query_on_connect: Whether the store is asked for what was missed when the node connects, or says that it missed.
        query_on_connect_interval_ms: Time after which a connection asks again.
        participant_ttl_ms: A sender unheard for this long is no longer a member.
        acknowledgement_sync: Whether a received message is acknowledged by a sync of its own, outside the
            periodic schedule; False leaves only the schedule of specification 004.
    """

    sync_min_interval_ms: int = 30_000
    sweep_in_buf_interval_ms: int = 0
    process_task_min_elapse_ms: int = 0
    retrieve_frequency_ms: int = 1_000
    store_queries_per_minute_max: int = 120
    query_on_connect: bool = True
    query_on_connect_interval_ms: int = 300_000
    participant_ttl_ms: int = 600_000
    acknowledgement_sync: bool = True

    def __post_init__(self) -> None:
        check_integers(self, 0, ("sync_min_interval_ms", "sweep_in_buf_interval_ms", "process_task_min_elapse_ms"))
        check_integers(self, 1, ("retrieve_frequency_ms", "store_queries_per_minute_max"))
        check_integers(self, 1, ("query_on_connect_interval_ms", "participant_ttl_ms"))
        check_bools(self, ("query_on_connect", "acknowledgement_sync"))


@dataclass(frozen=True, slots=True)
class RateLimitConfig:
    """RLN rate limit (specification 003 RateLimitConfig; 004 Rate limit management).

    Attributes:
        enabled: Whether the limit is enforced.
        epoch_size_ms: Length of an epoch; epochs are floor(unix time / epoch).
        messages_per_epoch: The quota; required when enabled.
        counts: "message" counts a send once, "segment" counts every envelope.
        ephemeral_drop_threshold: Share of the quota from which ephemeral messages are dropped.
        ack_reserve: Share of the quota kept for acknowledgements.
        queue_bytes_max: Bytes that may wait for the quota before `send` raises `QueueFullError`.
    """

    enabled: bool = False
    epoch_size_ms: int = 600_000
    messages_per_epoch: int | None = None
    counts: RateCounts = "message"
    ephemeral_drop_threshold: float = 0.9
    ack_reserve: float = 0.1
    queue_bytes_max: int = 256 * MEBIBYTE

    def __post_init__(self) -> None:
        check_bools(self, ("enabled",))
        check_integers(self, 1, ("epoch_size_ms", "queue_bytes_max"))
        check_choices(self, "counts", ("message", "segment"))
        check_share(self, "ephemeral_drop_threshold")
        check_share(self, "ack_reserve", one=False)
        if self.messages_per_epoch is not None:
            check_integers(self, 1, ("messages_per_epoch",))
        elif self.enabled:
            raise refuse(self, "messages_per_epoch", None, "an integer of at least 1 when the rate limit is enabled")


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """Everything a reliable channel is configured with. `logos()` and `waku()` are the presets.

    Attributes:
        segmentation: How payloads become segments.
        sds: Scalable Data Sync.
        sync: Synchronisation and retrieval.
        rate_limit: The rate limit.
        auto_start: Whether `create_reliable_channel` starts the channel.
        delivered_when: Who must be able to reconstruct a message before `delivered` fires: "any" other
            participant, a number of them, or a set of sender ids.
        redelivery: After a crash "at-least-once" hands the event in progress over again, flagged;
            "at-most-once" does not.
        repair: "arq" sends again what is shown missing.
        envelope_meta: Marker stamped on every envelope and required of received ones; None for no marker.
    """

    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    sds: SdsConfig = field(default_factory=SdsConfig)
    sync: SyncConfig = field(default_factory=SyncConfig)
    rate_limit: RateLimitConfig = field(default_factory=RateLimitConfig)
    auto_start: bool = True
    delivered_when: DeliveredWhen | Set[str] = "any"
    redelivery: Redelivery = "at-least-once"
    repair: Repair = "arq"
    envelope_meta: bytes | None = None

    def __post_init__(self) -> None:
        parts = {
            "segmentation": SegmentationConfig,
            "sds": SdsConfig,
            "sync": SyncConfig,
            "rate_limit": RateLimitConfig,
        }
        for name, kind in parts.items():
            if not isinstance(getattr(self, name), kind):
                raise refuse(self, name, getattr(self, name), f"a {kind.__name__}")
        check_bools(self, ("auto_start",))
        check_choices(self, "redelivery", ("at-least-once", "at-most-once"))
        check_choices(self, "repair", ("arq", "parity"))
        if self.repair == "parity":
            raise refuse(self, "repair", "parity", "'arq': repair by parity on demand is not built yet")
        self._check_delivered_when()
        meta = self.envelope_meta
        # 14/WAKU2-MESSAGE: meta is at most 64 bytes.
        if meta is not None and (not isinstance(meta, bytes) or not 1 <= len(meta) <= 64):
            raise refuse(self, "envelope_meta", meta, "None or 1 to 64 bytes")

    def _check_delivered_when(self) -> None:
        value: Any = self.delivered_when
        if value == "any":
            return
        if isinstance(value, Set) and value and all(isinstance(name, str) and name for name in value):
            object.__setattr__(self, "delivered_when", frozenset(value))
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise refuse(
                self, "delivered_when", value, "'any', an integer of at least 1 or a non-empty set of sender ids"
            )

    @classmethod
    def logos(cls, **changes: Any) -> Self:
        """The defaults of specification 003, with `changes` to top-level fields."""
        return replace(cls(), **changes)

    @classmethod
    def waku(cls, **changes: Any) -> Self:
        """The defaults of specification 004, with `changes` to top-level fields."""
        return replace(ReliableChannelOptions()._config(cls), **changes)


# The fields that options of other names stand for.
_OPTION_OF_FIELD = {"acknowledgement_timeout_ms": "retry_interval_ms", "max_retransmissions": "max_retry_attempts"}


@dataclass(frozen=True, slots=True)
class ReliableChannelOptions:
    """The options of specification 004 under their own names and defaults; `to_config()` gives the `ChannelConfig`.

    Raises:
        ConfigError: An option is out of its limits.
    """

    sync_min_interval_ms: int = 30_000
    retry_interval_ms: int = 30_000
    max_retry_attempts: int = 10
    retrieve_frequency_ms: int = 10_000
    sweep_in_buf_interval_ms: int = 5_000
    query_on_connect: bool = True
    auto_start: bool = True
    process_task_min_elapse_ms: int = 1_000
    causal_history_size: int = 200
    timeout_for_lost_messages_ms: int | None = None
    possible_acks_threshold: int = 2

    def to_config(self) -> ChannelConfig:
        """The channel configuration that these options describe."""
        return self._config(ChannelConfig)

    def __post_init__(self) -> None:
        try:
            self._config(ChannelConfig)
        except ConfigError as error:
            _, _, rest = str(error).partition(".")
            field, _, text = rest.partition(" ")
            raise ConfigError(f"{type(self).__name__}.{_OPTION_OF_FIELD.get(field, field)} {text}") from None

    def _config(self, kind: Callable[..., T]) -> T:
        lost_ms = self.timeout_for_lost_messages_ms
        return kind(
            segmentation=SegmentationConfig(erasure_code="vandermonde", wire_format="draft"),
            sds=SdsConfig(
                acknowledgement_timeout_ms=self.retry_interval_ms,
                max_retransmissions=self.max_retry_attempts,
                causal_history_size=self.causal_history_size,
                bloom_interval_ms=0,
                possible_acks_threshold=self.possible_acks_threshold,
                timeout_for_lost_messages_ms=0 if lost_ms is None else lost_ms,
                message_id="content-sha256",
            ),
            sync=SyncConfig(
                sync_min_interval_ms=self.sync_min_interval_ms,
                sweep_in_buf_interval_ms=self.sweep_in_buf_interval_ms,
                process_task_min_elapse_ms=self.process_task_min_elapse_ms,
                retrieve_frequency_ms=self.retrieve_frequency_ms,
                query_on_connect=self.query_on_connect,
                acknowledgement_sync=False,
            ),
            rate_limit=RateLimitConfig(counts="segment"),
            auto_start=self.auto_start,
        )
