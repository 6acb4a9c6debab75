"""Scalable Data Sync, and the pace of synchronisation and retrieval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

# By name, so that whoever asks for the types of the fields finds this one too; it is loaded only then.
import shardwire
from shardwire.config.checks import check_bools, check_choices, check_integers, check_methods, check_share, refuse
from shardwire.config.segmentation import MEBIBYTE

SdsWireFormat = Literal["spec", "nim"]
MessageIdRule = Literal["send", "content-sha256"]


@dataclass(frozen=True, slots=True)
class SdsConfig:
    """Scalable Data Sync (Logos 003 SdsConfig; Waku 004 ReliableChannelOptions).

    Attributes:
        persistence: Where state is kept; None keeps it for as long as the channel lives.
        acknowledgement_timeout_ms: How long an unacknowledged message waits before it is sent again.
        max_retransmissions: How often it is sent again before delivery is given up.
        back_off_percent: How much longer each wait is than the one before, up to eight times the first; 0: equal.
        causal_history_size: Entries of the local log that a message names.
        bloom_filter_capacity: Messages the bloom filter is sized for. Alike at all participants: a filter of another
            size is ignored.
        bloom_filter_error_rate: Its false positive rate at that number, alike at all participants too.
        bloom_interval_ms: Least time between two messages that carry the filter; 0 puts it on every message.
        possible_acks_threshold: Filters, of one participant or several, that must hold a content before it counts as
            acknowledged by whoever sent them; where what else is in the log explains the hits it does not.
        timeout_for_lost_messages_ms: A dependency missing for this long is declared lost; 0 never.
        enable_repair: Whether SDS-R repair is asked for and answered.
        outgoing_buffer_messages_max: Dispatched, unacknowledged messages; `send` awaits room; larger ones leave alone.
        incoming_buffer_messages_max: Received messages, partial ones too, that wait for causes or the application.
        incoming_buffer_bytes_max: Bytes of whole messages that wait for the application, before nothing is taken in.
        missing_messages_max: Missing dependencies tracked.
        log_messages_max: Messages kept in the local log.
        log_bytes_max: Bytes of messages kept to answer others with: without a store nobody gets from us what is older.
        max_lamport_skew_ms: How far ahead of our clock a received Lamport timestamp may move ours.
        replay_window_ms: A message whose Lamport timestamp is older by our clock is dropped as replayed, unless it is
            asked for or comes from a store; 0 takes any age. For channels whose members all keep time.
        message_id: "send" names the send and the place in it; "content-sha256" is the rule of @waku/sds, under which
            equal payloads are one message: what is sent again is not sent, and what another one sent is refused.
        wire_format: "spec" (also @waku/sds) or "nim" (nim-sds).
        repair_t_min_ms: SDS-R T_min: the others are asked for what is missing so late at the earliest. With the
            default, as with that of `repair_t_max_ms`, a store is asked first: what it does not have or does not bring
            is asked for as on a network without one (`ChannelConfig.without_store`), and answered so.
        repair_t_max_ms: SDS-R T_max, before which they are asked, and answer.
        repair_groups: SDS-R response groups.
    """

    # `Persistence` is a protocol: pydantic, where an application has it, looks at the methods alone.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"arbitrary_types_allowed": True}

    persistence: shardwire.Persistence | None = None
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
    log_bytes_max: int = 32 * MEBIBYTE
    max_lamport_skew_ms: int = 300_000
    replay_window_ms: int = 0
    message_id: MessageIdRule = "send"
    wire_format: SdsWireFormat = "spec"
    repair_t_min_ms: int = 30_000
    repair_t_max_ms: int = 120_000
    repair_groups: int = 1

    def __post_init__(self) -> None:
        check_integers(self, 1, ("acknowledgement_timeout_ms", "possible_acks_threshold"))
        check_integers(self, 1, ("outgoing_buffer_messages_max", "incoming_buffer_messages_max"))
        check_integers(self, 1, ("incoming_buffer_bytes_max",))
        check_integers(self, 1, ("missing_messages_max", "log_messages_max", "log_bytes_max", "repair_groups"))
        check_integers(self, 0, ("causal_history_size", "bloom_interval_ms"))
        check_integers(self, 0, ("max_retransmissions",), (1 << 32) - 1)
        check_integers(self, 0, ("timeout_for_lost_messages_ms", "max_lamport_skew_ms", "repair_t_min_ms"))
        check_integers(self, 0, ("repair_t_max_ms", "replay_window_ms"))
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
        # A T_max of 1 ms cannot be shorter.
        if self.enable_repair and 0 < lost < 2 * self.repair_t_max_ms and self.repair_t_max_ms > 1:
            raise refuse(
                self,
                "timeout_for_lost_messages_ms",
                lost,
                f"0 or at least 2 x repair_t_max_ms ({2 * self.repair_t_max_ms}) while repair is on",
            )


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """Synchronisation, retrieval and their pace (Waku 004, Implementation Suggestions).

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
            periodic schedule; False leaves the schedule of Waku 004, what its syncs have no room for, and bursts of 128
            messages, unless that schedule is off.
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
