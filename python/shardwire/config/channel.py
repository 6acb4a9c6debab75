"""The whole of a channel's configuration: the defaults of Logos 003, and the options of Waku 004."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

from shardwire.config.checks import INTEGER_MAX, check_bools, check_choices, refuse
from shardwire.config.rate_limit import RateLimitConfig
from shardwire.config.sds import SdsConfig, SyncConfig
from shardwire.config.segmentation import SegmentationConfig, refuse_size
from shardwire.config.without_store import MEMBERS_ASSUMED, without_store
from shardwire.errors import ConfigError
from shardwire.quoting import quoted

DeliveredWhen = Literal["any"] | int | frozenset[str]
Redelivery = Literal["at-least-once", "at-most-once"]
Repair = Literal["auto", "arq", "parity"]

T = TypeVar("T", bound="ChannelConfig")

# Ids of channels and participants travel in every message, those of participants twice in a history entry.
ID_BYTES_MAX = 256


class ChannelChanges(TypedDict, total=False):
    """What `ChannelConfig.logos()` and `waku()` take by keyword: the fields of a `ChannelConfig`, by name."""

    segmentation: SegmentationConfig
    sds: SdsConfig
    sync: SyncConfig
    rate_limit: RateLimitConfig
    auto_start: bool
    delivered_when: DeliveredWhen | Set[str]
    redelivery: Redelivery
    repair: Repair
    envelope_meta: bytes | None


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
        redelivery: After a crash "at-least-once" hands the events in progress over again, flagged: one, or
            up to 64 where many waited. "at-most-once" does not; it takes a commit for each.
        repair: "arq" sends again what is shown missing; "parity" sends as many segments of parity as the receiver lacks
            that lacks most, which repair a different loss at each; at first as much leaves as earlier messages needed,
            or what `segmentation` asks for where that is more and the code has room for it. "auto" is
            "parity" wherever that works: segments can be coded and announce parity, ids name their send,
            `sds.enable_repair` lets receivers say what they lack; else "arq".
        envelope_meta: Marker stamped on every envelope and required of received ones; None for no marker.
    """

    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    sds: SdsConfig = field(default_factory=SdsConfig)
    sync: SyncConfig = field(default_factory=SyncConfig)
    rate_limit: RateLimitConfig = field(default_factory=RateLimitConfig)
    auto_start: bool = True
    delivered_when: DeliveredWhen | Set[str] = "any"
    redelivery: Redelivery = "at-least-once"
    repair: Repair = "auto"
    envelope_meta: bytes | None = None

    def __post_init__(self) -> None:
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise refuse(self, name, getattr(self, name), f"a {kind.__name__}")
        check_bools(self, ("auto_start",))
        check_choices(self, "redelivery", ("at-least-once", "at-most-once"))
        check_choices(self, "repair", ("auto", "arq", "parity"))
        if self.repair == "parity" and self.segmentation.wire_format == "draft":
            raise refuse(self, "repair", "parity", "'arq' under wire_format='draft', where nothing announces parity")
        if self.repair == "parity" and self.sds.message_id != "send":
            raise refuse(self, "repair", "parity", "'arq' for message_id='content-sha256': ids must name their send")
        if self.repair == "parity" and not self.segmentation.has_codable_size:
            raise refuse_size(self.segmentation, "repair='parity'")
        self._check_delivered_when()
        meta = self.envelope_meta
        # 14/WAKU2-MESSAGE: meta is at most 64 bytes.
        if meta is not None and (not isinstance(meta, bytes) or not 1 <= len(meta) <= 64):
            raise refuse(self, "envelope_meta", meta, "None or 1 to 64 bytes")

    def _check_delivered_when(self) -> None:
        value: Any = self.delivered_when
        if isinstance(value, str) and value == "any":
            return
        if isinstance(value, Set) and value and all(_may_be_sender_id(name) for name in value):
            object.__setattr__(self, "delivered_when", frozenset(value))
            return
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= INTEGER_MAX:
            is_too_large = isinstance(value, int) and value > INTEGER_MAX
            integer = f"from 1 to {INTEGER_MAX}" if is_too_large else "of at least 1"
            ids = f"a non-empty set of sender ids, of 1 to {ID_BYTES_MAX} bytes each"
            raise refuse(self, "delivered_when", value, f"'any', an integer {integer} or {ids}")

    @classmethod
    def logos(cls, **changes: Unpack[ChannelChanges]) -> Self:
        """The defaults of Logos 003, with `changes` to top-level fields.

        Raises:
            ConfigError: A change is none of these fields, or out of its limits.
        """
        _check_names(changes, "{kind}({name}=...)")
        return replace(cls(), **changes)

    @classmethod
    def waku(cls, **changes: Unpack[ChannelChanges]) -> Self:
        """The defaults of Waku 004, with `changes` to top-level fields.

        A part that is given counts alone: `SdsConfig(...)` has the defaults of Logos 003 in all that it does not say,
        `dataclasses.replace(ChannelConfig.waku().sds, ...)` those of Waku 004.

        Raises:
            ConfigError: A change is none of these fields, or out of its limits.
        """
        _check_names(changes, "replace(ChannelConfig.waku().{part}, {name}=...)")
        return replace(ReliableChannelOptions()._config(cls), **changes)

    @property
    def parity_on_demand(self) -> bool:
        """Whether losses are repaired with parity: what `repair` comes to with the rest of the configuration."""
        if self.repair != "auto":
            return self.repair == "parity"
        announces = self.segmentation.wire_format != "draft" and self.segmentation.has_codable_size
        return announces and self.sds.message_id == "send" and self.sds.enable_repair

    def without_store(self, members: int = MEMBERS_ASSUMED) -> Self:
        """The same for a network without a store, where participants get from each other what they missed.

        Repair comes within seconds instead of minutes. Only fields that hold their defaults change: what was set to
        something else stays. A channel that is made without a configuration on a node without a store has this one.

        Args:
            members: Participants that the channel may have: the more there are, the longer each waits for another one
                to ask or to answer first.

        Raises:
            ConfigError: `members` is no integer of at least 2.
        """
        sds, sync = without_store(self.sds, self.sync, members)
        return replace(self, sds=sds, sync=sync)


_PARTS: dict[str, type[SegmentationConfig | SdsConfig | SyncConfig | RateLimitConfig]] = {
    "segmentation": SegmentationConfig,
    "sds": SdsConfig,
    "sync": SyncConfig,
    "rate_limit": RateLimitConfig,
}


def _check_names(changes: Iterable[str], remedy: str) -> None:
    """Refuses what is no field of a `ChannelConfig`; `remedy` says how the field of a part is given."""
    known = [field.name for field in fields(ChannelConfig)]
    for name in changes:
        if name in known:
            continue
        for part, kind in _PARTS.items():
            if any(field.name == name for field in fields(kind)):
                given = remedy.format(kind=kind.__name__, part=part, name=name)
                raise ConfigError(f"ChannelConfig has no {name}, {kind.__name__} has: give {part}={given}")
        raise ConfigError(f"ChannelConfig has no {quoted(name)}: its fields are {', '.join(known)}")


def _may_be_sender_id(name: object) -> bool:
    if not isinstance(name, str):
        return False
    try:
        return 1 <= len(name.encode()) <= ID_BYTES_MAX
    except UnicodeEncodeError:
        return False


_DEFAULT_SDS = SdsConfig()
# The fields that options of other names stand for.
_OPTION_OF_FIELD = {"acknowledgement_timeout_ms": "retry_interval_ms", "max_retransmissions": "max_retry_attempts"}


@dataclass(frozen=True, slots=True)
class ReliableChannelOptions:
    """The options of Waku 004 under their own names and defaults, for `create_reliable_channel(config=...)`.

    `enable_repair`, of which Waku 004 says nothing, stands beside them: participants repair each other by SDS-R. Where
    `timeout_for_lost_messages_ms` is shorter than repair takes, repair is made as much faster.

    Attributes:
        sync_min_interval_ms: Least interval between periodic sync messages of the channel; 0 turns them off.
        retry_interval_ms: How long an unacknowledged message waits before it is sent again.
        max_retry_attempts: How often it is sent again before delivery is given up.
        retrieve_frequency_ms: How often missing messages are asked of the store.
        sweep_in_buf_interval_ms: How often the incoming buffer is swept; 0 sweeps at once.
        query_on_connect: Whether the store is asked for what was missed when the node connects.
        auto_start: Whether `create_reliable_channel` starts the channel.
        process_task_min_elapse_ms: Least time between two runs of the incoming task; 0 runs at once.
        causal_history_size: Entries of the local log that a message names.
        timeout_for_lost_messages_ms: A dependency missing for this long is declared lost; None never.
        possible_acks_threshold: Bloom filters that must hold a message before it counts as acknowledged.
        enable_repair: Whether SDS-R repair is asked for and answered.

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
    enable_repair: bool = True

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
        repair_t_min_ms, repair_t_max_ms = _DEFAULT_SDS.repair_t_min_ms, _DEFAULT_SDS.repair_t_max_ms
        if type(lost_ms) is int and 0 < lost_ms < 2 * repair_t_max_ms:
            # What is asked for must be answered before its dependents go on without it.
            repair_t_max_ms = max(1, lost_ms // 2)
            repair_t_min_ms = min(repair_t_min_ms, repair_t_max_ms // 4)
        return kind(
            segmentation=SegmentationConfig(erasure_code="vandermonde", wire_format="draft"),
            sds=SdsConfig(
                acknowledgement_timeout_ms=self.retry_interval_ms,
                max_retransmissions=self.max_retry_attempts,
                causal_history_size=self.causal_history_size,
                bloom_interval_ms=0,
                possible_acks_threshold=self.possible_acks_threshold,
                timeout_for_lost_messages_ms=0 if lost_ms is None else lost_ms,
                enable_repair=self.enable_repair,
                repair_t_min_ms=repair_t_min_ms,
                repair_t_max_ms=repair_t_max_ms,
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
            # Peers of 004 see nothing that they do not know.
            repair="arq",
        )
