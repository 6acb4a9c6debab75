"""The typed boundary to the Rust core. Nothing above it touches a byte in a loop.

Every argument called `data`, `payload` or `segment` takes any contiguous or non-contiguous buffer; `bytes` is read
in place, everything else is copied first. The GIL is released above 4 KiB.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, Self, final

from typing_extensions import Buffer, disjoint_base

from shardwire.sds.outputs import TransmitKind

__all__ = [
    "AcknowledgementDue",
    "ArrowLocalReconstructor",
    "ArrowReconstructor",
    "BloomFilter",
    "ContentAcknowledged",
    "ContentReceived",
    "EventQueue",
    "FilterTime",
    "FinishedSends",
    "HeldCount",
    "HistoryEntry",
    "IncomingSend",
    "Keccak256",
    "LamportTime",
    "LocalLog",
    "LogEntries",
    "LogEntry",
    "MissingDetected",
    "MissingMessage",
    "Now",
    "Originals",
    "OutgoingContent",
    "OutgoingSend",
    "PayloadReconstructed",
    "QueueCounts",
    "ReassemblerCore",
    "ResendTimers",
    "SdsCodec",
    "SdsEvent",
    "SdsIntake",
    "SdsMessage",
    "SdsOutlet",
    "SegmentDiscarded",
    "SegmentHeader",
    "SegmentStored",
    "SegmentationParameters",
    "SendAcknowledged",
    "SendReleased",
    "SetDropped",
    "SyncDue",
    "Transmit",
    "TransmitCounts",
    "WakuJsonReader",
    "WakuMessage",
    "__version__",
    "arrow_decode_sds",
    "arrow_decode_segment",
    "arrow_decode_waku_message",
    "arrow_keccak256",
    "arrow_message_hash",
    "arrow_segment",
    "arrow_segment_rows",
    "arrow_shard_of",
    "arrow_unwrap_sds",
    "arrow_unwrap_segment",
    "arrow_unwrap_waku",
    "compose_history",
    "decode_store_json",
    "deliver_head",
    "encode_waku_json",
    "erasure_encode",
    "erasure_reconstruct",
    "farmhash64",
    "inspect_segment",
    "keccak256",
    "keccak256_many",
    "message_hash",
    "note_said",
    "reassemble_many",
    "segment",
    "segment_many",
    "shard_of",
    "still_repeated",
    "store_outgoing",
]

_ErasureCode = Literal["leopard", "vandermonde"]
_SegmentWireFormat = Literal["raw", "draft", "lip243"]
_SdsWireFormat = Literal["spec", "nim"]

__version__: str

# --- Keccak-256 ---------------------------------------------------------------------------------

def keccak256(data: Buffer, /) -> bytes: ...
def keccak256_many(buffers: Any, /) -> Any:
    """A list of 32-byte digests for an iterable of buffers; for an Arrow binary array, chunked or not, a fixed-size
    binary one like it."""

@final
class Keccak256:
    def __new__(cls, data: Buffer | None = None) -> Self: ...
    def update(self, data: Buffer, /) -> None: ...
    def digest(self) -> bytes: ...
    def copy(self) -> Keccak256: ...
    def __copy__(self) -> Keccak256: ...
    def __deepcopy__(self, memo: Any, /) -> Keccak256: ...

# --- Reed-Solomon -------------------------------------------------------------------------------

def erasure_encode(data_shards: Iterable[Buffer], parity_count: int, erasure_code: _ErasureCode) -> list[bytes]: ...
def erasure_reconstruct(
    shards: Iterable[Buffer | None], data_count: int, parity_count: int, erasure_code: _ErasureCode
) -> list[bytes]:
    """All data shards, in order. Raises NotEnoughShardsError, ConfigError."""

# --- Segmentation -------------------------------------------------------------------------------

@final
class SegmentationParameters:
    """The validated form of SegmentationConfig: raises ConfigError naming field, value and limit."""

    def __new__(
        cls,
        *,
        segment_size_bytes: int,
        enable_reed_solomon: bool,
        parity_rate: float,
        parity_for_single_segment: bool,
        erasure_code: _ErasureCode,
        wire_format: _SegmentWireFormat,
        max_total_segments: int,
        max_tail_candidates: int,
    ) -> Self: ...
    @property
    def chunk_size_bytes(self) -> int:
        """Payload bytes in one data segment: segment_size_bytes, or what lip243's serialized bound leaves."""
    @property
    def max_payload_bytes(self) -> int: ...
    def segment_counts(self, payload_length: int) -> tuple[int, int]:
        """(data_segment_count, parity_segment_count); (0, 0) where draft sends the payload unmodified."""

@final
class SegmentHeader:
    """What one segment says of itself; `None` where its wire does not say it."""

    @property
    def wire_format(self) -> _SegmentWireFormat: ...
    @property
    def entire_message_hash(self) -> bytes: ...
    @property
    def is_parity(self) -> bool: ...
    @property
    def data_segment_index(self) -> int | None: ...
    @property
    def data_segment_count(self) -> int | None: ...
    @property
    def parity_segment_index(self) -> int | None: ...
    @property
    def parity_segment_count(self) -> int | None: ...
    @property
    def payload_length(self) -> int | None:
        """Length of the entire payload (lip243 only)."""
    @property
    def segment_payload_length(self) -> int: ...
    @property
    def segment_payload(self) -> bytes: ...

def segment(payload: Buffer, parameters: SegmentationParameters) -> list[bytes]: ...
def segment_many(payloads: Any, parameters: SegmentationParameters) -> Any:
    """A list of lists of messages for an iterable of buffers; for an Arrow binary array, chunked or not, a list array
    like it."""

def reassemble_many(
    batches: Any, parameters: SegmentationParameters, candidates_per_slot_max: int, work_budget: int
) -> Any:
    """A list of payloads, None where a batch gives none, for an iterable of iterables of buffers; for an Arrow list
    array of binary, chunked or not, a binary array like it."""

def inspect_segment(
    segment: Buffer, wire_format: _SegmentWireFormat, max_total_segments: int = 256
) -> SegmentHeader | None:
    """The validated header; None where `draft` reads the bytes as a whole message. Raises InvalidSegmentError only."""

@final
class SegmentStored:
    __match_args__ = ("entire_message_hash", "segments_held", "segments_needed")
    @property
    def entire_message_hash(self) -> bytes: ...
    @property
    def segments_held(self) -> int: ...
    @property
    def segments_needed(self) -> int | None:
        """Distinct segments still missing, at least 1 after a failed attempt; None while a draft set has only parity
        and k is unknown."""
    @property
    def hash_mismatch(self) -> bool:
        """Whether what is held was tried and did not have the hash."""

@final
class PayloadReconstructed:
    __match_args__ = ("entire_message_hash", "payload")
    @property
    def entire_message_hash(self) -> bytes: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def data_segment_count(self) -> int: ...
    @property
    def parity_segment_count(self) -> int: ...
    @property
    def data_segments_recovered(self) -> tuple[int, ...]:
        """Indices of the data segments that came back through parity."""
    @property
    def erasure_code(self) -> _ErasureCode | None:
        """The code that decoded; None where no parity was needed."""
    @property
    def bad_segments(self) -> tuple[tuple[int, str | None], ...]:
        """(ordinal, sender) of segments found wrong; ordinal = data index, or data_segment_count + parity index."""

@final
class SegmentDiscarded:
    __match_args__ = ("reason", "detail")
    @property
    def reason(
        self,
    ) -> Literal[
        "Undecodable", "Invalid", "Oversized", "Duplicate", "CountMismatch", "QuotaExceeded", "AlreadyCompleted"
    ]: ...
    @property
    def detail(self) -> str: ...

@final
class SetDropped:
    __match_args__ = ("entire_message_hash", "reason")
    @property
    def entire_message_hash(self) -> bytes: ...
    @property
    def message_key(self) -> bytes | None: ...
    @property
    def sender(self) -> str | None: ...
    @property
    def reason(self) -> Literal["Expired", "Evicted", "HashMismatch"]: ...

_ReceiveOutcome = SegmentStored | PayloadReconstructed | SegmentDiscarded | SetDropped

@final
class ReassemblerCore:
    """The state machine behind shardwire.segmentation.Reassembler. One owner; no I/O; time is an argument."""

    def __new__(
        cls,
        parameters: SegmentationParameters,
        *,
        sets_max: int,
        sets_per_sender_max: int,
        buffered_bytes_max: int,
        buffered_bytes_per_sender_max: int,
        unauthenticated_share: float,
        candidates_per_slot_max: int,
        completed_remembered_max: int,
        timeout_ms: int,
        work_budget: int,
    ) -> Self: ...
    def receive(
        self,
        segment: Buffer,
        *,
        now_ms: int,
        sender: str | None = None,
        authenticated: bool = False,
        message_key: Buffer | None = None,
    ) -> _ReceiveOutcome: ...
    def expire(self, now_ms: int) -> list[SetDropped]: ...
    def poll_dropped(self) -> list[SetDropped]:
        """Sets that `receive` evicted to make room, since the last call: the latest `sets_max`."""
    def next_expiry_ms(self) -> int | None: ...
    def stats(self) -> dict[str, int]: ...
    def poll_persist(self) -> list[tuple[str, bytes, bytes]]:
        """Changes since the last call as (op, key, value): op is "put_segment", "delete_set", "put_completed",
        "delete_completed". A set's key is the first 20 bytes of its segments' keys. Values are opaque; applying one
        twice is harmless."""
    def poll_completions(self) -> list[tuple[str, bytes, bytes]]:
        """The changes of `poll_persist` with "put_completed" and "delete_completed" alone; the others are forgotten."""
    def restore(self, records: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Takes back what `poll_persist` gave, minus what was deleted. Unreadable records are ignored and counted."""

# --- Scalable Data Sync -------------------------------------------------------------------------

@final
class HistoryEntry:
    """One entry of a causal history or a repair request. Hashable, equal by value."""

    __match_args__ = ("message_id", "retrieval_hint", "sender_id")
    def __new__(cls, message_id: str, retrieval_hint: bytes | None = None, sender_id: str | None = None) -> Self: ...
    @property
    def message_id(self) -> str: ...
    @property
    def retrieval_hint(self) -> bytes | None: ...
    @property
    def sender_id(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str, bytes | None, str | None]: ...

@final
class SdsMessage:
    """One SDS message. Kind: content, sync or ephemeral, by presence of lamport_timestamp and content."""

    def __new__(
        cls,
        *,
        sender_id: str,
        message_id: str,
        channel_id: str,
        lamport_timestamp: int | None = None,
        causal_history: Sequence[HistoryEntry] = ...,
        bloom_filter: Buffer | None = None,
        repair_request: Sequence[HistoryEntry] = ...,
        content: Buffer | None = None,
    ) -> Self: ...
    @property
    def kind(self) -> Literal["content", "sync", "ephemeral"] | None:
        """None: neither a lamport timestamp nor content; receivers drop it."""
    @property
    def sender_id(self) -> str: ...
    @property
    def message_id(self) -> str: ...
    @property
    def channel_id(self) -> str: ...
    @property
    def lamport_timestamp(self) -> int | None: ...
    @property
    def causal_history(self) -> tuple[HistoryEntry, ...]: ...
    @property
    def bloom_filter(self) -> bytes | None: ...
    @property
    def repair_request(self) -> tuple[HistoryEntry, ...]: ...
    @property
    def content(self) -> bytes | None: ...
    def encode(self, wire_format: _SdsWireFormat = "spec") -> bytes: ...
    @staticmethod
    def decode(data: Buffer, wire_format: _SdsWireFormat = "spec") -> SdsMessage | None:
        """None where the bytes are no SDS message. Invalid UTF-8 becomes U+FFFD."""
    def __eq__(self, other: object, /) -> bool: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class SdsCodec:
    """Encodes and decodes for one participant of one channel, each message in one call."""

    def __new__(cls, channel_id: str, sender_id: str, wire_format: _SdsWireFormat = "spec") -> Self: ...
    def decode(
        self, data: Buffer, /
    ) -> (
        tuple[str, str, int | None, tuple[str, ...], tuple[int, int] | None, tuple[HistoryEntry, ...], bytes | None]
        | tuple[()]
        | None
    ):
        """(message id, sender id, lamport timestamp, ids of the causal history, where the bloom filter begins and
        ends in `data`, repair requests, content); () for a message of another channel; None for what is none.
        """
    def encode(
        self,
        message_id: str,
        lamport_timestamp: int | None,
        history_fields: bytes,
        bloom_filter: bytes | None,
        repair_request: Sequence[HistoryEntry],
        content: bytes | None,
        /,
    ) -> bytes:
        """A message of this participant, as `SdsMessage.encode` would write it."""

@final
class LogEntry:
    """One content that this participant holds, or can reconstruct.

    Attributes:
        message_id: Its SDS message id.
        sender_id: Who sent it first.
        lamport: Its capped timestamp; 0 where it was recovered and never received.
        retrieval_hint: Newest transport hash known for it.
        sequence: Place in the order in which the entries came, and entered the bloom filter.
        ordinal: Place in its send.
        send: The incoming send it waits in; None once that is delivered, and for our own.
        ordered: Whether it stands for its delivered send in the log's order.
        spoken_ms: When this participant last named it, 0 for never; not kept over a restart.
        unsaid: Place in the order in which contents came that no message of ours has named since; 0 where one has.
        repeats: How many more syncs name it; not kept over a restart.
    """

    retrieval_hint: bytes | None
    ordinal: int
    send: IncomingSend | None
    ordered: bool
    spoken_ms: int
    unsaid: int
    repeats: int

    def __new__(
        cls,
        message_id: str,
        sender_id: str,
        lamport: int,
        retrieval_hint: bytes | None,
        sequence: int,
        ordinal: int,
    ) -> Self: ...
    @property
    def message_id(self) -> str: ...
    @property
    def sender_id(self) -> str: ...
    @property
    def lamport(self) -> int: ...
    @property
    def sequence(self) -> int: ...

class SdsEvent:
    """Base of what `poll_event` gives. Two events are equal where their class and all fields are."""

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@final
class ContentReceived(SdsEvent):
    """A new content of another participant, on receipt: its dependencies may still be missing.

    The caller owes `handle_content_placed` (to which send it belongs) and, once the send's message can be
    reconstructed, `handle_send_reconstructed`. `send_id` and `ordinal` are what the id itself says under the "send"
    rule; None where it says nothing.
    """

    __match_args__: Final = ("message_id", "sender_id", "content", "send_id", "ordinal")

    def __new__(
        cls, message_id: str, sender_id: str, content: bytes, send_id: str | None = None, ordinal: int | None = None
    ) -> Self: ...
    @property
    def message_id(self) -> str: ...
    @property
    def sender_id(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def send_id(self) -> str | None: ...
    @property
    def ordinal(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class SendReleased(SdsEvent):
    """A reconstructed send whose every dependency outside itself was delivered or declared lost: deliver it now."""

    __match_args__: Final = ("sender_id", "send_id")

    def __new__(cls, sender_id: str, send_id: str) -> Self: ...
    @property
    def sender_id(self) -> str: ...
    @property
    def send_id(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class ContentAcknowledged(SdsEvent):
    """`by` holds one content of a send of ours; once for each content and participant."""

    __match_args__: Final = ("send_id", "ordinal", "message_id", "by")

    def __new__(cls, send_id: str, ordinal: int, message_id: str, by: str) -> Self: ...
    @property
    def send_id(self) -> str: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def message_id(self) -> str: ...
    @property
    def by(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class SendAcknowledged(SdsEvent):
    """`by` can reconstruct the send: it acknowledged `contents_needed` of its contents. Once a participant."""

    __match_args__: Final = ("send_id", "by")

    def __new__(cls, send_id: str, by: str) -> Self: ...
    @property
    def send_id(self) -> str: ...
    @property
    def by(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class MissingDetected(SdsEvent):
    """Dependencies that are not here: fetch them, by `retrieval_hint` where there is one."""

    __match_args__: Final = ("entries",)

    def __new__(cls, entries: tuple[HistoryEntry, ...]) -> Self: ...
    @property
    def entries(self) -> tuple[HistoryEntry, ...]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class Transmit:
    """An encoded message that must leave, once everything polled by `poll_persist` after it is durable.

    The caller answers with `handle_transmitted` or `handle_transmit_failed`, naming `transmit_id`.

    Attributes:
        transmit_id: Unique for each transmission of one machine.
        kind: Why it leaves.
        message_id: SDS message id.
        payload: The encoded SDS message.
        send_id: The send it belongs to; None for syncs and for repair answers to others' messages.
        ordinal: Its place in that send.
        attempt: 0 the first time, then the number of the retransmission.
    """

    __match_args__: Final = ("transmit_id", "kind", "message_id", "payload", "send_id", "ordinal", "attempt")

    def __new__(
        cls,
        transmit_id: int,
        kind: TransmitKind,
        message_id: str,
        payload: bytes,
        send_id: str | None = None,
        ordinal: int | None = None,
        attempt: int = 0,
    ) -> Self: ...
    @property
    def transmit_id(self) -> int: ...
    @property
    def kind(self) -> TransmitKind: ...
    @property
    def message_id(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def send_id(self) -> str | None: ...
    @property
    def ordinal(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class Now:
    """One moment on both clocks.

    Attributes:
        monotonic_ms: For timers; never goes back.
        epoch_ms: Unix time, for Lamport timestamps; may step.
    """

    def __new__(cls, monotonic_ms: int, epoch_ms: int) -> Self: ...
    @property
    def monotonic_ms(self) -> int: ...
    @property
    def epoch_ms(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class EventQueue:
    """Events in the order in which they happened."""

    def __new__(cls) -> Self: ...
    def append(self, event: SdsEvent, /) -> None: ...
    def take(self) -> SdsEvent | None:
        """Takes out the oldest event; None where there is none."""

@disjoint_base
class QueueCounts:
    """What waits for its first dispatch: base of `DispatchQueue`."""

    contents: int
    bytes: int

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@disjoint_base
class SyncDue:
    """When a periodic sync is due, None for never, and whether content passed since the last: base of `SyncTimer`."""

    due_ms: int | None
    content_since_sync: bool

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@disjoint_base
class AcknowledgementDue:
    """When an acknowledgement is due, None for never; the last number given to what is unsaid, and up to which number
    all was said: base of `Acknowledgements`."""

    due_ms: int | None
    order: int
    said_order: int

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@disjoint_base
class LamportTime:
    """A Lamport timestamp: base of `LamportClock`."""

    timestamp: int

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@disjoint_base
class TransmitCounts:
    """Transmissions and sends so far: base of `Transmission`."""

    transmit_count: int
    send_count: int

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@disjoint_base
class HeldCount:
    """Contents that wait in the incoming buffer: base of `IncomingBuffer`."""

    contents_held: int

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@disjoint_base
class FilterTime:
    """When the bloom filter left last, None for never: base of `BloomSchedule`."""

    last_ms: int | None

    def __new__(cls, *_arguments: object, **_named: object) -> Self: ...

@final
class LogEntries:
    """The entries of a log by message id, in the order in which they came."""

    def get(self, message_id: str, /) -> LogEntry | None: ...
    def __contains__(self, message_id: str, /) -> bool: ...
    def __getitem__(self, message_id: str, /) -> LogEntry: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def values(self) -> list[LogEntry]: ...

@final
class LocalLog:
    """Entries by id (for duplicates and dependencies) and the delivered sends in log order (for causal history).

    One entry stands in the order for each delivered send: the newest of its contents. Beyond `entries_max` the entry
    that came first is forgotten first, unless its send still waits, and `on_forgotten` called with its id.

    Attributes:
        entries: By id.
        sequence: That of the last entry.
    """

    def __new__(cls, entries_max: int, on_forgotten: Callable[[str], object], /) -> Self: ...
    @property
    def entries(self) -> LogEntries: ...
    @property
    def sequence(self) -> int: ...
    def watch(self, originals: Originals, naming: Sequence[dict[str, LogEntry]], /) -> None:
        """What is forgotten leaves `originals` too; `on_forgotten` is called where one of `naming` has it."""
    def add(
        self, message_id: str, sender_id: str, lamport: int, retrieval_hint: bytes | None, ordinal: int, /
    ) -> LogEntry:
        """Holds a new entry; the caller knows that `message_id` is not held yet."""
    def refuse(self, entry: LogEntry, /) -> None:
        """Takes out the entry that was added last.

        Raises:
            KeyError: It is not held.
        """
    def withdraw(self, message_id: str, /) -> LogEntry | None:
        """Takes out and gives the entry of a message of ours that never left."""
    def take_back(self, entries: Sequence[LogEntry], /) -> None:
        """Restores stored entries, given in the order of their sequence."""
    def deliver(self, entry: LogEntry, /) -> None:
        """Puts a delivered send, by its newest content, into the order (SDS: lamport, then message id)."""
    def newest(self, count: int, /) -> list[LogEntry]:
        """The last `count` delivered sends' entries, oldest first."""
    def ordered_ids(self) -> list[str]:
        """Ids of the delivered sends in log order."""
    def newest_arrivals(self, count: int, /) -> list[LogEntry]:
        """Up to `count` entries, the last one to come first."""
    def touch(self, entry: LogEntry, /) -> None:
        """Marks an entry whose stored form changed."""
    def follow(
        self, message_ids: tuple[str, ...], named_by: str, /
    ) -> tuple[list[int], list[IncomingSend], list[LogEntry]]:
        """What a history of `named_by` comes to: where unknown ids stand, the sends that entries wait in, and entries
        of others that are still to be said."""
    def store(self, version: int, out: dict[tuple[str, bytes], bytes | None], /) -> None:
        """Adds to `out` the `sds.log` records of what changed since the last call, None for what was forgotten, and
        with an entry's record that of its message, where that is new or goes with it.

        A record is `version`, flags (1: ordered, 2: with a hint), lamport, sequence, unsaid (8 bytes each,
        little-endian like all numbers), ordinal (2), the lengths (2 each) of sender id, hint and the key of the send
        it waits in, these three, and a CRC-32.
        """

@final
class IncomingSend:
    """A send that is not delivered: named only, incomplete, or waiting for the sends it follows.

    Attributes:
        key: The send id that its message ids carry; the message id where they carry none.
        send_id: As the channel calls it.
        sender_id: Who sent it; "" while it is only named.
        contents: What is held of it.
        history: Ids that its contents' causal history names.
        news_ms: When it was named first or a content of it came last.
        content_count: How many contents it announces; None while unknown.
        reconstructed: Whether the channel has its message.
        waits_for: Sends that must be released first, by key.
        dependents: Sends that wait for this one.
        missing: Its message ids that are tracked as missing.
        lost: Whether it was declared lost: nothing waits for it any more.
        from_before: Whether it may be older than this participant's first receipt.
        siblings_reported: Whether its gaps were told after it fell quiet.
        deadline_ms: When it is looked at again; None for never.
    """

    send_id: str
    sender_id: str
    news_ms: int
    contents: list[LogEntry]
    history: Sequence[str]
    content_count: int | None
    contents_needed: int | None
    reconstructed: bool
    waits_for: dict[str, IncomingSend] | None
    dependents: list[IncomingSend] | None
    missing: dict[str, None] | None
    lost: bool
    from_before: bool
    siblings_reported: bool
    deadline_ms: int | None

    def __new__(cls, key: str, send_id: str, sender_id: str, news_ms: int, /) -> Self: ...
    @property
    def key(self) -> str: ...

@final
class Originals:
    """Messages as they came or left, to answer repair requests with; beyond `bytes_max` the oldest go.

    That of one of the log's `entries` lies in the entry.

    Attributes:
        size_bytes: Of all messages.
        changed: Ids whose stored form changed, but for those whose records go with their entries'.
    """

    def __new__(cls, bytes_max: int, entries: LogEntries, /) -> Self: ...
    @property
    def size_bytes(self) -> int: ...
    def get(self, message_id: str, /) -> bytes | None: ...
    def __contains__(self, message_id: str, /) -> bool: ...
    @property
    def changed(self) -> dict[str, None]: ...
    def keep(self, message_id: str, data: bytes, stored: bool = False) -> None:
        """Holds the message of a log entry; `stored` tells that its record is written already."""
    def forget(self, message_id: str, /) -> None: ...
    def store(self, out: dict[tuple[str, bytes], bytes | None], /) -> None:
        """Adds to `out` the `sds.message` records of what changed since the last call, None for what is gone."""

@final
class OutgoingSend:
    """A send of ours: a group of contents that make one message.

    Attributes:
        queue: Contents that were not dispatched, as they are queued when it is first looked at.
        waits: Whether there are such.
        history_ids: The causal history that all its contents carry, fixed at its first dispatch; None before.
        history_fields: The same as it stands in each message.
        bloom_filter: The filter that its last content carries, fixed then too; None for none.
        acknowledged: For each participant the set of acknowledged ordinals, as bits.
        complete: Participants that can reconstruct the message.
        dispatched: Contents that left.
        first_ms: When the first one left.
        finished: Delivered to the quorum, given up or cancelled: no longer resent.
        header_left: Header bytes that repair requests may still take.
    """

    history_ids: tuple[str, ...] | None
    history_fields: bytes
    bloom_filter: bytes | None
    dispatched: int
    first_ms: int
    finished: bool
    given_up: bool
    header_left: int

    def __new__(cls, send_id: str, number: int, contents_needed: int, /) -> Self: ...
    @property
    def send_id(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def contents_needed(self) -> int: ...
    @property
    def contents(self) -> list[OutgoingContent]: ...
    @property
    def queue(self) -> deque[OutgoingContent]: ...
    @property
    def waits(self) -> bool: ...
    @property
    def acknowledged(self) -> dict[str, int]: ...
    @property
    def complete(self) -> dict[str, None]: ...

@final
class OutgoingContent:
    """One content of a send of ours.

    Attributes:
        content: Its bytes until they are encoded.
        wire: The encoded message once it left first; every retransmission is these bytes. Given away when its send is
            finished.
        queued: Whether it waits for its first dispatch.
        attempts: Retransmissions so far.
        resend_ms: When it is sent again; None while queued, in a retransmission, or no longer tracked.
        timer_ms: When its timer in the heap goes off, at `resend_ms` or before; None where it has none.
        possible: Participants whose bloom filter held it.
        in_flight: The transmission that has no answer yet; 0 for none.
    """

    content: bytes | None
    size_bytes: int
    wire: bytes | None
    queued: bool
    lamport: int
    attempts: int
    resend_ms: int | None
    possible: set[str] | None
    in_flight: int

    def __new__(cls, send: OutgoingSend, ordinal: int, message_id: str, content: bytes, /) -> Self: ...
    @property
    def send(self) -> OutgoingSend: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def message_id(self) -> str: ...
    @property
    def timer_ms(self) -> int | None: ...

@final
class ResendTimers:
    """Contents by the moment at which each is due.

    One that is put off keeps its timer, which moves itself when it goes off too early.
    """

    def __new__(cls) -> Self: ...
    def set(self, content: OutgoingContent, at_ms: int, held: int, /) -> None:
        """`content` is due at `at_ms`; `held` contents are unacknowledged, which bounds the timers kept."""
    def next_ms(self) -> int | None: ...
    def take(self, monotonic_ms: int, /) -> OutgoingContent | None:
        """Takes out a content that is due, the earliest first."""

@final
class FinishedSends:
    """Finished sends that still collect acknowledgements, the oldest first: of `contents_max` contents in all."""

    def __new__(cls, contents_max: int, /) -> Self: ...
    def take_back(self, send: OutgoingSend, /) -> None: ...
    def push(self, send: OutgoingSend, /) -> list[OutgoingSend]:
        """Holds `send`; gives those that have to go for it. One with queued contents holds up those behind it."""

def store_outgoing(
    version: int,
    sends: dict[str, OutgoingSend],
    by_id: dict[str, OutgoingContent],
    originals: Originals,
    changed_sends: dict[str, None],
    changed_contents: dict[str, bool | None],
    new_contents: dict[str, bytes],
    new_wires: dict[str, bytes],
    stored: set[str],
    out: dict[tuple[str, bytes], bytes | None],
    /,
) -> None:
    """Adds to `out` the records of what changed in the outgoing buffer, and empties the lists of it.

    A content that `by_id` lacks is gone; the value of `changed_contents` then tells that it never left. `stored` has
    the ids of contents with a record of their own.

    `sds.send`: `version`, flags (1: finished, 2: given up, 4: history fixed, 8: with a filter, 16: with a content),
    number (8), count, needed, header bytes left, lengths of filter and history, ids in the history (4 each), these
    three, of the content whether it is queued, lamport (8), attempts (4), how many participants possibly acknowledged
    it (4) and who, and for each participant its name and the bits of what it acknowledged. `sds.outgoing`, for a
    content that is not its whole send or not named by it: `version`, queued, ordinal (4), lamport (8), attempts (4),
    the send id and the participants that possibly acknowledged it. Numbers are little-endian, a text follows its length
    (2); a CRC-32 ends each.
    """

@final
class MissingMessage:
    """One message id that a history named and that is not here.

    Attributes:
        entry: As it was named, with the best hint and sender known.
        send: The send it belongs to.
        named_by: The participant whose message named it first; its share of the table pays for it.
    """

    entry: HistoryEntry

    def __new__(cls, entry: HistoryEntry, send: IncomingSend, named_by: str, /) -> Self: ...
    @property
    def send(self) -> IncomingSend: ...
    @property
    def named_by(self) -> str: ...

@final
class SdsIntake:
    """Takes in and delivers the common message in one call each, on the containers of the machine's parts.

    `limits`: `id_length_max` (characters), `history_max` (ids kept of one), `heard_ms_max` (a sender heard longer ago
    is to be noted again), `lamport_unit_ms`, `lamport_skew_max` (how many of these a peer may be ahead), `lamport_max`,
    `at_once` (nothing waits for a sweep), `by_send` (ids name their send, or nothing is taken). `waiting`, `releasing`
    and `receiving` are containers, numbers and moments of other parts, their limits, and what is called.
    """

    def __new__(
        cls,
        channel_id: str,
        sender_id: str,
        wire_format: _SdsWireFormat,
        limits: dict[str, int],
        *,
        log: LocalLog,
        originals: Originals | None,
        answers: dict[str, Any],
        heard_ms: dict[str, int],
        sent: dict[str, Any],
        unacknowledged: dict[str, Any],
        sends: dict[str, IncomingSend],
        by_send_id: dict[str, IncomingSend],
        changed: dict[str, None],
        bloom: list[str],
        waiting: dict[str, Any],
        releasing: dict[str, Any],
        receiving: dict[str, Any],
        events: EventQueue,
    ) -> Self: ...
    def take(
        self, data: bytes, now: Now, retrieval_hint: bytes | None, /
    ) -> (
        tuple[()]
        | tuple[
            LogEntry,
            str,
            IncomingSend | None,
            tuple[int, int] | None,
            bool,
            tuple[tuple[str, ...], list[Any], list[LogEntry], list[IncomingSend], list[HistoryEntry]] | None,
        ]
        | None
    ):
        """Holds a new content of another participant, the first of its send, everywhere that it belongs.

        Emits `ContentReceived`, and `MissingDetected` where it tracks what is unknown.

        Returns:
            Mostly (): nothing is left to do. Else what the caller does timers and acknowledgements for: the entry; its
            send's key; the send, None where something of it was here before; where the bloom filter begins and ends in
            `data`; whether something is missing anew; and None or ids of the history where no send is given, values of
            `sent` that it names, entries that its sender acknowledges too, sends to wait for, unknown entries. None,
            and nothing changed, for any other message.
        """
    def release(self, sender_id: str, send_id: str, now: Now, /) -> bool:
        """Delivers a reconstructed send of one content and what waited for it alone, or lets it wait for its causes.

        False, and nothing changed, where the send has more contents or is not here.
        """

@final
class SdsOutlet:
    """Registers, dispatches and acknowledges a send of one content in one call each, on the machine's containers.

    `limits`: `causal_history_size`, `heads_max`, `header_budget` (bytes for history, filter and requests),
    `first_period_ms`, `unacknowledged_max` (contents), `by_send` (ids name their send, or nothing is taken),
    `participants_max` (of whom one send keeps acknowledgements), `quorum` (how many must hold a send, None where they
    are named), `repairs`. `buffer` has its containers as attributes; `queue`, `beside`, `acknowledging` and `leaving`
    are containers, numbers and moments of other parts, and what is called. It frees the sends when it goes.
    """

    def __new__(
        cls,
        codec: SdsCodec,
        log: LocalLog,
        limits: dict[str, int | None],
        buffer: Any,
        queue: dict[str, Any],
        beside: dict[str, Any],
        originals: Originals,
        acknowledging: dict[str, Any],
        leaving: dict[str, Any],
        /,
    ) -> Self: ...
    def limit_headers(self, header_budget: int, /) -> None:
        """History, filter and requests of later messages may take so many bytes."""
    def register(self, send_id: str, content: bytes, /) -> str | None:
        """Queues a send; gives its message id. None, and nothing changed, where an argument is wrong or known."""
    def dispatch(self, now: Now, /) -> Transmit | None:
        """Encodes and takes out the next content without filter and requests.

        None, and nothing changed, unless it is the next send's only one, nothing is asked for, no filter is due, no
        send is under way and there is room for what is unacknowledged.
        """
    def transmitted(self, transmit_id: int, retrieval_hint: bytes | None, now: Now, /) -> bool:
        """What `dispatch` gave is in the network; False, and nothing changed, for any other transmission, and where
        the content was sent again or its send is finished."""
    def acknowledge(self, message_ids: Iterable[str], by: str, /) -> None:
        """`by` names these: what of them is ours it has."""

def compose_history(
    codec: SdsCodec,
    log: LocalLog,
    causal_size: int,
    sources: Sequence[dict[str, LogEntry] | list[LogEntry]],
    owed: Sequence[LogEntry],
    budget: int,
    /,
) -> tuple[tuple[str, ...], bytes, list[LogEntry], int]:
    """A causal history of at most `budget` bytes: its ids, its fields for `SdsCodec.encode`, the entries that count as
    said, the bytes left.

    The newest `causal_size` delivered sends come first in claim and last in place. `sources` follow as ids alone until
    one has no room, then those of `owed` that have, with hints.
    """

def note_said(
    entries: Sequence[LogEntry],
    monotonic_ms: int,
    by_sync: bool,
    repeats_max: int,
    delivered: dict[str, LogEntry],
    incomplete: dict[str, LogEntry],
    said_before: dict[str, LogEntry],
    heard: set[str],
    /,
) -> tuple[list[LogEntry], list[int]]:
    """Notes in each of `entries` that a message of ours names it; gives those that were unsaid, and their numbers.

    Of what a sync said, `said_before` keeps for `repeats_max` further syncs what no other participant was heard to say.
    """

def still_repeated(said_before: dict[str, LogEntry], oldest_ms: int, count_max: int, /) -> list[LogEntry]:
    """What of `said_before` a sync names once more: what has repeats left and was said at `oldest_ms` or later, the
    newest `count_max` of it. The rest is taken out."""

def deliver_head(
    heads: dict[str, LogEntry], entry: LogEntry, history: Iterable[str], by_send: bool, heads_max: int, /
) -> None:
    """Makes `entry`, which stands for a send delivered now, a head; nothing that `history` names is one any more."""

def farmhash64(text: str, /) -> int:
    """Nim's `hash(string)`, which nim-sds uses: FarmHash64 of the UTF-8 bytes, signed."""

@final
class BloomFilter:
    """The SDS bloom filter, byte-exact with @waku/sds ("spec") or nim-sds ("nim")."""

    def __new__(
        cls, capacity: int = 10_000, error_rate: float = 0.001, wire_format: _SdsWireFormat = "spec"
    ) -> Self: ...
    @property
    def hash_count(self) -> int: ...
    @property
    def bit_count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Length of `to_bytes()`."""
    def insert(self, message_id: str, /) -> None: ...
    def insert_many(self, message_ids: Iterable[str], /) -> None: ...
    def refill(
        self, log: LocalLog, count: int, after: int, withholds: Callable[[LogEntry], bool], /
    ) -> tuple[int, int | None]:
        """Holds from now on the newest `count` entries of `log` whose sequence number is above `after`.

        Entries whose send is not delivered are left out where `withholds` says so. Gives how many are in, and the
        sequence number of the oldest that was looked at.
        """
    def __contains__(self, message_id: str, /) -> bool: ...
    def clear(self) -> None: ...
    def to_bytes(self) -> bytes: ...
    def load(self, data: Buffer, /) -> bool:
        """Replaces the content; False (and unchanged) where the size is not this filter's."""
    def review(self, data: Buffer, message_ids: Sequence[str], /) -> list[int] | None:
        """Positions in `message_ids` of those a peer's serialized filter holds; None where its size is unexpected."""
    def conclusive(self, message_ids: Sequence[str], log: LocalLog, /) -> list[int]:
        """Positions in `message_ids` of those that a filter of everything else in `log` and in `message_ids` does not
        hold: that a peer's filter holds one of these is no accident."""
    def lacking(self, data: Buffer, log: LocalLog, count: int, settled: int, sender_id: str, /) -> list[LogEntry]:
        """Which of the newest `count` entries of `log` a peer's serialized filter lacks.

        Of those that are delivered, have at most the sequence number `settled` and are not of `sender_id`. None where
        the filter's size is unexpected, or where it holds none of several.
        """

# --- Waku ---------------------------------------------------------------------------------------

@final
class WakuMessage:
    """14/WAKU2-MESSAGE. `timestamp_ns` is signed nanoseconds since the Unix epoch."""

    def __new__(
        cls,
        *,
        payload: Buffer,
        content_topic: str,
        version: int | None = None,
        timestamp_ns: int | None = None,
        meta: Buffer | None = None,
        rate_limit_proof: Buffer | None = None,
        ephemeral: bool | None = None,
    ) -> Self: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def content_topic(self) -> str: ...
    @property
    def version(self) -> int | None: ...
    @property
    def timestamp_ns(self) -> int | None: ...
    @property
    def meta(self) -> bytes | None: ...
    @property
    def rate_limit_proof(self) -> bytes | None: ...
    @property
    def ephemeral(self) -> bool | None: ...
    def encode(self) -> bytes: ...
    @staticmethod
    def decode(data: Buffer, /) -> WakuMessage | None: ...

def message_hash(
    *,
    pubsub_topic: str,
    payload: Buffer,
    content_topic: str,
    meta: Buffer | None = None,
    timestamp_ns: int | None = 0,
) -> bytes:
    """The deterministic message hash of 14/WAKU2-MESSAGE, 32 bytes. What is None adds nothing to it."""

def shard_of(content_topic: str, num_shards_in_cluster: int) -> int:
    """Autosharding. Raises ConfigError where the topic is not /[generation/]application/version/name/encoding."""

# --- Arrow --------------------------------------------------------------------------------------
# A batch is one call. Arguments are anything with an Arrow C interface, results are pyarrow objects; both are `Any`
# because pyarrow is optional. A null row gives null, and bytes that cannot be read give null fields and an `error`.

def arrow_keccak256(data: Any) -> Any:
    """Keccak-256 of every row, as binary."""

def arrow_decode_segment(
    data: Any, wire_format: _SegmentWireFormat, max_total_segments: int, include_payload: bool
) -> Any:
    """A struct a row: entire_message_hash, is_parity, indices and counts, lengths, segment_payload, error."""

def arrow_decode_sds(data: Any, wire_format: _SdsWireFormat) -> Any:
    """A struct a row: the message's fields, kind, send_id, segment_ordinal, error."""

def arrow_decode_waku_message(data: Any) -> Any:
    """A struct a row: the message's fields, error."""

def arrow_message_hash(pubsub_topic: Any, payload: Any, content_topic: Any, meta: Any, timestamp_ns: Any) -> Any: ...
def arrow_shard_of(content_topic: Any, num_shards_in_cluster: int) -> Any: ...
def arrow_segment(payload: Any, parameters: SegmentationParameters) -> tuple[Any, str | None]:
    """A list of segments a row, and what refuses the first payload that is refused."""

def arrow_segment_rows(payload: Any, parameters: SegmentationParameters) -> Any:
    """A record batch with a row a segment; `row` is the position of its payload."""

def arrow_unwrap_waku(state: Any) -> Any:
    """A record batch of payload, timestamp, sender, send_id and error, with the Waku messages taken off."""

def arrow_unwrap_sds(state: Any, wire_format: _SdsWireFormat) -> Any:
    """The same, with the SDS messages taken off; a message without content has neither payload nor error."""

def arrow_unwrap_segment(state: Any, wire_format: _SegmentWireFormat, max_total_segments: int) -> Any:
    """The same with entire_message_hash, and without the payloads that are no segments."""

@final
class ArrowReconstructor:
    """Messages from batches of segments sorted by message; see shardwire.spark.reconstruct."""

    def __new__(
        cls,
        parameters: SegmentationParameters,
        *,
        by_count: int,
        include_payload: bool,
        candidates_per_slot_max: int,
        held_bytes_max: int,
        work_budget: int,
    ) -> Self: ...
    def push(self, batch: Any) -> list[Any]:
        """Takes in the `by` columns, hash, send_id, payload, timestamp, sender, error; returns finished messages.

        A leftover with `error` "whole" says that a partition holds a message whole: it has no row here.
        """
    def finish(self) -> list[Any]: ...
    def poll_corrections(self) -> Any:
        """Since the last call: rows of partitions that are wrong, as `push` takes them in; None if none.

        `timestamp` holds the partition, `error` the number of data segments that came in no partition, or null where
        another partition's row stands for the message.
        """

@final
class ArrowLocalReconstructor:
    """Whole messages from batches of segments in any order; see shardwire.spark.archive."""

    def __new__(
        cls,
        parameters: SegmentationParameters,
        *,
        by_count: int,
        include_payload: bool,
        candidates_per_slot_max: int,
        held_bytes_max: int,
        work_budget: int,
        window_bytes: int,
        partition: int,
    ) -> Self: ...
    def push(self, batch: Any) -> list[Any]:
        """Takes in what `ArrowReconstructor.push` does; returns whole messages and what cannot be read."""
    def finish(self) -> list[Any]: ...
    def poll_leftovers(self) -> Any:
        """Segments of messages that are not whole, and a row for each that is, since the last call; None if none."""

# --- Waku over REST -----------------------------------------------------------------------------

_JsonMessage = tuple[bytes, str, int, bytes, bool]

@final
class WakuJsonReader:
    """Reads the messages of one answer, a JSON array, while it comes in; `null` is an empty one.

    Nothing is held but the element that is not whole yet, which has a largest size. An element that is no message is
    counted in `malformed` and passed over, one whose (timestamp, content topic) is in `ours` in `echoes`, undecoded.
    """

    def __new__(cls, *, element_bytes_max: int) -> Self: ...
    @property
    def echoes(self) -> int: ...
    @property
    def malformed(self) -> int: ...
    def feed(self, chunk: Buffer, ours: Container[tuple[int, str]], /) -> list[_JsonMessage]:
        """Payload, content topic, timestamp, meta and whether it is ephemeral of each message that is whole now.

        Raises ValueError where the answer is no array of objects, or an element is too long: nothing can follow.
        """

    def finish(self) -> None:
        """Raises ValueError where the answer ended too early."""

def encode_waku_json(*, payload: Buffer, content_topic: str, timestamp_ns: int, meta: Buffer, ephemeral: bool) -> bytes:
    """A message as the REST interfaces take it."""

def decode_store_json(
    answer: Buffer, /
) -> tuple[int | None, str | None, list[tuple[bytes, str | None, _JsonMessage | None]], bytes | None]:
    """Status, its description, (hash, pubsub topic, message) of each entry, and the cursor, of either dialect.

    Raises ValueError where it is no answer of a store.
    """
