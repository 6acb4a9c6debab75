"""The typed boundary to the Rust core. Nothing above it touches a byte in a loop.

Every argument called `data`, `payload` or `segment` takes any contiguous or non-contiguous buffer; `bytes` is read
in place, everything else is copied first. The GIL is released above 4 KiB.
"""

import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self, final, overload

import pyarrow as pa
from typing_extensions import Buffer, disjoint_base

from shardwire.config import DeliveredWhen, RateCounts, ReassemblyLimits, Redelivery, SdsConfig, SyncConfig
from shardwire.events import ChannelEvent, EphemeralDropReason
from shardwire.sds.outputs import SdsInspection, TransmitKind
from shardwire.segmentation.segmenter import ArrowArray, ArrowChunkedArray

__all__ = [
    "DISPATCHES_MAX",
    "ERROR_LENGTH_MAX",
    "NO_HASH",
    "PROPAGATION_TIMEOUT_MS",
    "SENDERS_MAX",
    "Allowance",
    "ArrowLocalReconstructor",
    "ArrowReconstructor",
    "BloomFilter",
    "ChangedRecords",
    "ChannelMachine",
    "ContentAcknowledged",
    "ContentPossiblyAcknowledged",
    "ContentReceived",
    "ContentsWanted",
    "Delivery",
    "DependencyLost",
    "EphemeralReceived",
    "FileChunk",
    "FileManifest",
    "FileStatus",
    "HistoryEntry",
    "JournalFile",
    "Keccak256",
    "MessageChannel",
    "MessageDropped",
    "MessageFault",
    "MessageGivenUp",
    "MissingDetected",
    "NodeFailing",
    "NodeHolds",
    "NodeRecovered",
    "Now",
    "OwnSends",
    "Participant",
    "PayloadReconstructed",
    "ReassemblerCore",
    "RecordTable",
    "SdsEvent",
    "SdsMessage",
    "SegmentDiscarded",
    "SegmentHeader",
    "SegmentSeen",
    "SegmentStored",
    "SegmentationParameters",
    "SendAcknowledged",
    "SendGivenUp",
    "SendProgress",
    "SendReleased",
    "SenderIdConflict",
    "SetDropped",
    "SharedQuota",
    "StoreQuestion",
    "StoreQuestions",
    "SyncReceived",
    "Transmit",
    "TransmitFailed",
    "Wake",
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
    "crc32",
    "decode_file_message",
    "decode_store_json",
    "divide_message",
    "encode_file_chunk",
    "encode_file_manifest",
    "encode_file_status",
    "encode_waku_json",
    "erasure_encode",
    "erasure_reconstruct",
    "farmhash64",
    "in_response_group",
    "inspect_segment",
    "is_file_message",
    "is_rival",
    "keccak256",
    "keccak256_many",
    "last_seen_ns",
    "message_hash",
    "read_journal",
    "reassemble_many",
    "repair_times_without_store",
    "request_offset_ms",
    "response_offset_ms",
    "rival_name",
    "sds_limits",
    "segment",
    "segment_many",
    "segment_message",
    "shard_of",
    "sizes_in_rows",
    "split_row",
]

_ErasureCode = Literal["leopard", "vandermonde"]
_SegmentWireFormat = Literal["raw", "draft", "lip243"]
_SdsWireFormat = Literal["spec", "nim"]
_RecordName = tuple[str, bytes]
# A value that lies apart: its first byte, its bytes as they are stored, their checksum.
_Place = tuple[int, int, int]
_FileState = Literal["requested", "held", "received", "refused", "unknown", "withdrawn"]
_FileReason = Literal["", "declined", "too_large", "name", "exists", "busy", "no_space", "failed", "changed"]

__version__: str
# Messages of which an answer of the node is awaited, at most, and for how long.
DISPATCHES_MAX: Final[int]
PROPAGATION_TIMEOUT_MS: Final[int]
# Of a row of reconstruction: senders that it names, bytes of its reason, and the reason of a key that is no hash.
SENDERS_MAX: Final[int]
ERROR_LENGTH_MAX: Final[int]
NO_HASH: Final[str]

# --- Keccak-256 ---------------------------------------------------------------------------------

def keccak256(data: Buffer, /) -> bytes:
    """The Keccak-256 of one buffer: 32 bytes."""

@overload
def keccak256_many(buffers: ArrowArray, /) -> pa.FixedSizeBinaryArray: ...
@overload
def keccak256_many(buffers: ArrowChunkedArray, /) -> pa.ChunkedArray[Any]: ...
@overload
def keccak256_many(buffers: Iterable[Buffer], /) -> list[bytes]:
    """A list of 32-byte digests for an iterable of buffers; for an Arrow binary array, chunked or not, a fixed-size
    binary one like it."""

@final
class Keccak256:
    """Keccak-256 of bytes that arrive in pieces. Threads that share one take turns."""

    def __new__(cls, data: Buffer | None = None) -> Self: ...
    def update(self, data: Buffer, /) -> None:
        """Absorbs `data` after what was absorbed before."""
    def digest(self) -> bytes:
        """The digest of what was absorbed; more may follow."""
    def copy(self) -> Keccak256:
        """An independent hash of what was absorbed."""
    def __copy__(self) -> Keccak256: ...
    def __deepcopy__(self, memo: Any, /) -> Keccak256: ...

# --- Checksums ----------------------------------------------------------------------------------

def crc32(data: Buffer, before: int = 0, /) -> int:
    """The CRC-32 of zlib; `before` is that of what precedes `data`."""

# --- Stored records -----------------------------------------------------------------------------

@final
class ChangedRecords(Mapping[_RecordName, bytes | None]):
    """What one commit changes of what a channel stores: values by name, and None for what is deleted.

    Values stay where the core has them until one is asked for. Threads may share one.
    """

    def __new__(cls, records: dict[_RecordName, bytes | None] | None = None) -> Self: ...
    def __bool__(self) -> bool: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: _RecordName, /) -> bytes | None: ...
    def __iter__(self) -> Iterator[_RecordName]: ...
    def get(self, name: _RecordName, default: Any = None, /) -> Any:
        """The value of a name; `default` where the name is not among what is changed."""
    @property
    def value_bytes(self) -> int:
        """Of all values together."""

    def merged(self, later: ChangedRecords) -> ChangedRecords:
        """These and later changes; of a record that both name the later one stands."""

    def to_dict(self) -> dict[_RecordName, bytes | None]:
        """All of it, in a dictionary of its own."""
    def row(self, places: Mapping[_RecordName, _Place] | None = None, seal_bytes: int = 0) -> tuple[bytes, bytes]:
        """The head of the row of a journal, and the values in it.

        Args:
            places: Where values lie that are in no row.
            seal_bytes: How many more bytes these have as they are stored.

        Raises:
            PersistenceError: A record is longer than a row can be.
        """

@final
class RecordTable:
    """Records of a channel by name: all there are, or what changed of others where deleted ones are kept too.

    Threads may share one.
    """

    def __new__(cls, *, keeps_deleted: bool = False) -> Self: ...
    def __len__(self) -> int: ...
    def apply(self, changes: ChangedRecords, places: Mapping[_RecordName, _Place] | None = None) -> None:
        """Applies changes, some values of which lie apart."""

    def take(self, changes: ChangedRecords) -> None:
        """As `apply`, and leaves nothing in `changes`: nothing is copied."""

    def apply_row(self, head: Buffer, values: Buffer) -> bool:
        """Applies the row of a journal; False, and nothing is done, where it is none."""

    def delete_prefix(self, kind: str, prefix: Buffer) -> None:
        """Deletes the records of a kind whose keys begin with `prefix`."""
    def values(self) -> dict[_RecordName, bytes | None]:
        """Those that are here, and None for what is deleted."""

    def places(self) -> dict[_RecordName, _Place]:
        """Where the others lie."""

def split_row(row: Buffer) -> tuple[bytes, bytes] | None:
    """The head of a row of a journal and its values, sealed or not; None for what is no row."""

def sizes_in_rows(rows: Sequence[Buffer]) -> dict[_RecordName, int | None]:
    """Sizes of the values that rows put, one after the other, and None for what they delete."""

# --- Journal ------------------------------------------------------------------------------------

@final
class Wake:
    """Wakes an event loop, from threads that have no part in the interpreter.

    It belongs to whoever watches it, and no file closes it.

    Raises:
        OSError: There are no descriptors left.
    """

    def __new__(cls) -> Self: ...
    def fileno(self) -> int:
        """What can be read when something is done, until `clear`."""

    def clear(self) -> None:
        """Takes back what woke the loop."""

@final
class JournalFile:
    """A file of whole commits, one behind the other, written over from its beginning again and again.

    A token, another one each time it is begun anew, tells its rows from what lay there before.
    """

    def __new__(cls, path: str, database: str) -> Self: ...
    @property
    def exists(self) -> bool:
        """Whether there is a file, opened or not."""
    @property
    def is_in_place(self) -> bool:
        """Whether what is open is what stands under its name; True where nothing is open."""

    def read(self, token: Buffer, after: int) -> list[tuple[int, bytes]]:
        """The rows behind the `after`-th commit, by their numbers, where the file was begun with `token`: further ones
        go behind them. What is damaged ends them.

        Raises:
            OSError: It cannot be read.
        """

    def restart(self, token: Buffer) -> None:
        """Nothing of it counts any more: the next row is its first."""

    def append(self, number: int, body: Buffer) -> None:
        """Writes the row of a commit; durable when this returns. The file is made where there is none.

        Raises:
            OSError: Nobody knows whether it is there.
        """

    def begin(self, number: int, body: Buffer, wake: Wake) -> bool:
        """As `append` in a thread, which wakes when it is done; to be ended by `end`.

        False, and nothing is done, where it takes more than a write: room, or a look at a file that is not in its
        place.
        """

    def end(self) -> None:
        """Waits for what was begun, if anything was.

        Raises:
            OSError: As for `append`.
        """

    def remove(self) -> None:
        """Deletes it, and closes it.

        Raises:
            OSError: It cannot be deleted.
        """

    def close(self) -> None:
        """Waits for what is being written, and closes the file; it can be used again."""

def read_journal(path: str, token: Buffer, after: int) -> list[tuple[int, bytes]]:
    """As `JournalFile.read`, of a file that another process may be writing; none where there is no such file.

    Raises:
        OSError: It cannot be read.
    """

# --- Reed-Solomon -------------------------------------------------------------------------------

def erasure_encode(data_shards: Iterable[Buffer], parity_count: int, erasure_code: _ErasureCode) -> list[bytes]:
    """The parity shards of data shards of equal length."""

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
    def max_payload_bytes(self) -> int:
        """The largest payload of one message."""
    def segment_counts(self, payload_length: int) -> tuple[int, int]:
        """(data_segment_count, parity_segment_count); (0, 0) where draft sends the payload unmodified."""

@final
class SegmentHeader:
    """What one segment says of itself; `None` where its wire does not say it."""

    def __reduce__(self) -> tuple[Any, tuple[bytes, str, int]]: ...
    @property
    def wire_format(self) -> _SegmentWireFormat:
        """The wire it was read by."""

    @property
    def entire_message_hash(self) -> bytes:
        """Keccak-256 of the whole payload, 32 bytes."""

    @property
    def is_parity(self) -> bool:
        """Whether it is a parity segment."""

    @property
    def data_segment_index(self) -> int | None:
        """Its place among the data segments."""

    @property
    def data_segment_count(self) -> int | None:
        """How many data segments the payload has."""

    @property
    def parity_segment_index(self) -> int | None:
        """Its place among the parity segments."""

    @property
    def parity_segment_count(self) -> int | None:
        """How many parity segments the payload has."""

    @property
    def payload_length(self) -> int | None:
        """Length of the entire payload (lip243 only)."""
    @property
    def segment_payload_length(self) -> int:
        """How many bytes it carries."""

    @property
    def segment_payload(self) -> bytes:
        """The bytes it carries."""

def segment(payload: Buffer, parameters: SegmentationParameters) -> list[bytes]:
    """The transport messages of one payload."""

def segment_message(
    payload: Buffer, parameters: SegmentationParameters, parity_millionths: int | None
) -> tuple[list[bytes], int, str, int]:
    """As `segment`, and what is known of the message: the transport messages, how many of them hold data, hex
    Keccak-256 of the payload, and how much more parity can be made on demand.

    With `parity_millionths` there is as much parity to make as there may be, and the messages are the data segments and
    the first so many of it for a million of them, or what the parameters ask for where that is more."""

def segment_many(payloads: Any, parameters: SegmentationParameters) -> Any:
    """A list of lists of messages for an iterable of buffers; for an Arrow binary array, chunked or not, a list array
    like it, in which a null stays null.
    """

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
    """A segment that was kept; the payload is not complete."""

    __match_args__ = ("entire_message_hash", "segments_held", "segments_needed")
    def __new__(
        cls,
        entire_message_hash: bytes,
        segments_held: int,
        segments_needed: int | None = None,
        hash_mismatch: bool = False,
    ) -> Self: ...
    def __getnewargs__(self) -> tuple[Any, ...]: ...
    @property
    def entire_message_hash(self) -> bytes:
        """Keccak-256 of the whole payload, 32 bytes."""

    @property
    def segments_held(self) -> int:
        """Distinct segments of the payload held so far."""

    @property
    def segments_needed(self) -> int | None:
        """Distinct segments still missing, at least 1 after a failed attempt; None while a draft set has only parity
        and k is unknown."""
    @property
    def hash_mismatch(self) -> bool:
        """Whether what is held was tried and did not have the hash."""

@final
class PayloadReconstructed:
    """A payload that is complete and has the hash."""

    __match_args__ = ("entire_message_hash", "payload")
    def __new__(
        cls,
        entire_message_hash: bytes,
        payload: bytes,
        data_segment_count: int,
        parity_segment_count: int,
        data_segments_recovered: tuple[int, ...],
        erasure_code: str | None,
        bad_segments: tuple[tuple[int, str | None], ...],
    ) -> Self: ...
    def __getnewargs__(self) -> tuple[Any, ...]: ...
    @property
    def entire_message_hash(self) -> bytes:
        """Keccak-256 of the whole payload, 32 bytes."""

    @property
    def payload(self) -> bytes:
        """The payload."""
    @property
    def data_segment_count(self) -> int:
        """How many data segments the payload has."""

    @property
    def parity_segment_count(self) -> int:
        """How many parity segments the payload has."""

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
    """A segment that was not kept."""

    __match_args__ = ("reason", "detail")
    def __new__(cls, reason: str, detail: str) -> Self: ...
    def __getnewargs__(self) -> tuple[Any, ...]: ...
    @property
    def reason(
        self,
    ) -> Literal[
        "Undecodable", "Invalid", "Oversized", "Duplicate", "CountMismatch", "QuotaExceeded", "AlreadyCompleted"
    ]:
        """Why it was not kept."""

    @property
    def detail(self) -> str:
        """What is wrong with it, for people."""

@final
class SetDropped:
    """A set that was given up."""

    __match_args__ = ("entire_message_hash", "reason")
    def __new__(
        cls, entire_message_hash: bytes, message_key: bytes | None, sender: str | None, reason: str
    ) -> Self: ...
    def __getnewargs__(self) -> tuple[Any, ...]: ...
    @property
    def entire_message_hash(self) -> bytes:
        """Keccak-256 of the whole payload, 32 bytes."""

    @property
    def message_key(self) -> bytes | None:
        """The key that `receive` was given for it."""

    @property
    def sender(self) -> str | None:
        """Who is charged for it."""

    @property
    def reason(self) -> Literal["Expired", "Evicted", "HashMismatch"]:
        """Why the payload is given up."""

_ReceiveOutcome = SegmentStored | PayloadReconstructed | SegmentDiscarded | SetDropped

@final
class ReassemblerCore:
    """The state machine behind shardwire.segmentation.Reassembler. No I/O; time is an argument; threads that share one
    take turns.
    """

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
    ) -> _ReceiveOutcome:
        """Takes one segment; every outcome is a value."""
    def expire(self, now_ms: int) -> list[SetDropped]:
        """Drops the sets that got no new segment for `timeout_ms`."""
    def poll_dropped(self) -> list[SetDropped]:
        """Sets that `receive` evicted to make room, since the last call: the latest `sets_max`."""
    def next_expiry_ms(self) -> int | None:
        """When the next set expires."""
    def stats(self) -> dict[str, int]:
        """Counts since the start, and what is held."""
    def poll_persist(self) -> list[tuple[str, bytes, bytes]]:
        """Changes since the last call as (op, key, value): op is "put_segment", "delete_set", "put_completed",
        "delete_completed". A set's key is the first 20 bytes of its segments' keys. Values are opaque; applying one
        twice is harmless."""
    def restore(self, records: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Takes back what `poll_persist` gave, minus what was deleted. Unreadable records are ignored and counted."""

# --- Scalable Data Sync -------------------------------------------------------------------------

@final
class HistoryEntry:
    """One entry of a causal history or a repair request. Hashable, equal by value."""

    __match_args__ = ("message_id", "retrieval_hint", "sender_id")
    def __new__(cls, message_id: str, retrieval_hint: bytes | None = None, sender_id: str | None = None) -> Self: ...
    @property
    def message_id(self) -> str:
        """The id of the message named."""

    @property
    def retrieval_hint(self) -> bytes | None:
        """A hash by which a store knows the message."""

    @property
    def sender_id(self) -> str | None:
        """Who sent the message."""

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
        causal_history: Sequence[HistoryEntry] | None = None,
        bloom_filter: Buffer | None = None,
        repair_request: Sequence[HistoryEntry] | None = None,
        content: Buffer | None = None,
    ) -> Self: ...
    @property
    def kind(self) -> Literal["content", "sync", "ephemeral"] | None:
        """None: neither a lamport timestamp nor content; receivers drop it."""
    @property
    def sender_id(self) -> str:
        """The participant that sent it."""
    @property
    def message_id(self) -> str:
        """Its id, unique in the channel."""
    @property
    def channel_id(self) -> str:
        """The channel that it belongs to."""
    @property
    def lamport_timestamp(self) -> int | None:
        """Its Lamport timestamp; None for an ephemeral message."""
    @property
    def causal_history(self) -> tuple[HistoryEntry, ...]:
        """Messages that it follows, the newest last."""
    @property
    def bloom_filter(self) -> bytes | None:
        """What its sender has received, as a serialized bloom filter."""
    @property
    def repair_request(self) -> tuple[HistoryEntry, ...]:
        """Messages that its sender lacks and asks others for (SDS-R)."""
    @property
    def content(self) -> bytes | None:
        """Its content; None for a sync message."""
    def encode(self, wire_format: _SdsWireFormat = "spec") -> bytes:
        """The message on a wire."""
    @staticmethod
    def decode(data: Buffer, wire_format: _SdsWireFormat = "spec") -> SdsMessage | None:
        """The message that the bytes are; None where they are none. Invalid UTF-8 becomes U+FFFD."""
    def __eq__(self, other: object, /) -> bool: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

class SdsEvent:
    """Base of what `poll_event` and `poll_events` give. Two events are equal where their class and all fields are."""

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
    def message_id(self) -> str:
        """The id of the SDS message."""

    @property
    def sender_id(self) -> str:
        """The participant that sent it."""

    @property
    def content(self) -> bytes:
        """The content."""
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

    __match_args__: Final = ("sender_id", "send_id", "late")

    def __new__(cls, sender_id: str, send_id: str, late: bool = False) -> Self: ...
    @property
    def sender_id(self) -> str:
        """The participant that sent it."""

    @property
    def send_id(self) -> str:
        """The id of the send."""

    @property
    def late(self) -> bool:
        """Whether it had counted as lost, so that what follows it may have been delivered before."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class ContentAcknowledged(SdsEvent):
    """`by` holds one content of a send of ours; once for each content and participant."""

    __match_args__: Final = ("send_id", "ordinal", "message_id", "by")

    def __new__(cls, send_id: str, ordinal: int, message_id: str, by: str) -> Self: ...
    @property
    def send_id(self) -> str:
        """The id of the send."""

    @property
    def ordinal(self) -> int:
        """The place of the content in its send."""

    @property
    def message_id(self) -> str:
        """The id of the SDS message."""

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
    def send_id(self) -> str:
        """The id of the send."""

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
    def entries(self) -> tuple[HistoryEntry, ...]:
        """What histories name them."""

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
    """One moment on both clocks. Hashable, equal by value.

    Attributes:
        monotonic_ms: For timers; never goes back.
        epoch_ms: Unix time, for Lamport timestamps; may step.

    Raises:
        ConfigError: One of them is no integer, or has more than 64 bits.
    """

    __match_args__ = ("monotonic_ms", "epoch_ms")
    def __new__(cls, monotonic_ms: int, epoch_ms: int) -> Self: ...
    @property
    def monotonic_ms(self) -> int: ...
    @property
    def epoch_ms(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[int, int]: ...

@final
class EphemeralReceived(SdsEvent):
    """An ephemeral message: no order, no acknowledgement."""

    __match_args__: Final = ("message_id", "sender_id", "content")

    def __new__(cls, message_id: str, sender_id: str, content: bytes) -> Self: ...
    @property
    def message_id(self) -> str:
        """The id of the SDS message."""

    @property
    def sender_id(self) -> str:
        """The participant that sent it."""

    @property
    def content(self) -> bytes:
        """The bytes it carries."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class ContentPossiblyAcknowledged(SdsEvent):
    """`by`'s bloom filter holds one content of a send of ours; `count` filters do so far."""

    __match_args__: Final = ("send_id", "ordinal", "message_id", "by", "count")

    def __new__(cls, send_id: str, ordinal: int, message_id: str, by: str, count: int) -> Self: ...
    @property
    def send_id(self) -> str:
        """The id of the send."""

    @property
    def ordinal(self) -> int:
        """The place of the content in its send."""

    @property
    def message_id(self) -> str:
        """The id of the SDS message."""

    @property
    def by(self) -> str: ...
    @property
    def count(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class ContentsWanted(SdsEvent):
    """Receivers of a send of ours need so many contents more: answer with `MessageChannel.make_parity`."""

    __match_args__: Final = ("send_id", "count")

    def __new__(cls, send_id: str, count: int) -> Self: ...
    @property
    def send_id(self) -> str:
        """The id of the send."""

    @property
    def count(self) -> int:
        """How many."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: object, /) -> bool: ...
    def __le__(self, other: object, /) -> bool: ...
    def __gt__(self, other: object, /) -> bool: ...
    def __ge__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class SendGivenUp(SdsEvent):
    """`max_retransmissions` passed for some content and nobody is waited for any longer."""

    __match_args__: Final = ("send_id", "unacknowledged")

    def __new__(cls, send_id: str, unacknowledged: tuple[int, ...]) -> Self: ...
    @property
    def send_id(self) -> str:
        """The id of the send."""

    @property
    def unacknowledged(self) -> tuple[int, ...]:
        """Places of the contents that nobody acknowledged, ascending."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class DependencyLost(SdsEvent):
    """A dependency stayed missing for `timeout_for_lost_messages_ms`; its dependents go on without it, and it is asked
    for all the same."""

    __match_args__: Final = ("entry",)

    def __new__(cls, entry: HistoryEntry) -> Self: ...
    @property
    def entry(self) -> HistoryEntry:
        """What histories name the dependency."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class SyncReceived(SdsEvent):
    """A sync message of another participant."""

    __match_args__: Final = ("sender_id",)

    def __new__(cls, sender_id: str) -> Self: ...
    @property
    def sender_id(self) -> str:
        """The participant that sent it."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class SenderIdConflict(SdsEvent):
    """A message under our sender id that we never sent."""

    __match_args__: Final = ("message_id",)

    def __new__(cls, message_id: str) -> Self: ...
    @property
    def message_id(self) -> str:
        """The id of the SDS message."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class MessageDropped(SdsEvent):
    """A received message that is not processed: "undecodable", "other-channel", "own", "duplicate", "over-limit",
    "replayed"."""

    __match_args__: Final = ("reason",)

    def __new__(cls, reason: str) -> Self: ...
    @property
    def reason(self) -> str:
        """Why, as one of the words above."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@disjoint_base
class Participant:
    """What both machines of a channel have: sends of ours, what became of them, and views.

    Threads that share one take turns; a call in the middle of another one on the same thread, as from a signal
    handler, raises `RuntimeError`. It is made as a `MessageChannel` or as a `ChannelMachine`.
    """

    def send(
        self, send_id: str, contents: Sequence[Buffer], *, contents_needed: int, reserve: int = 0
    ) -> tuple[str, ...]:
        """Registers and queues a send; nothing is encoded before it is dispatched.

        Args:
            send_id: 32 hex characters under the rule "send", any unused id otherwise.
            contents: What the send is made of, data first.
            contents_needed: How many contents reconstruct the message.
            reserve: How many more can be made where receivers lack some (`ContentsWanted`); of a rule other than "send"
                none are.

        Returns:
            The message ids, one a content.

        Raises:
            ConfigError: An argument is out of its limits, or the send (or, under "content-sha256", one of its
                contents) is known already.
        """
    def make_parity(self, send_id: str, count: int, wire_format: str, erasure_code: str, now: Now) -> int:
        """Makes parity that `ContentsWanted` asks for, of the segments that the send keeps; how much there is now.

        Args:
            send_id: The send, whose contents are segments.
            count: How much.
            wire_format: The wire of its segments.
            erasure_code: The code of its parity.
            now: The moment.

        Raises:
            ConfigError: No such wire or code.
        """
    def send_ephemeral(self, send_id: str, content: Buffer) -> str:
        """Queues a message without order or acknowledgement (SDS, Ephemeral Messages); returns its message id.

        Raises:
            ConfigError: The content is empty, or the wire has no such messages.
        """
    def cancel(self, send_id: str) -> bool:
        """Drops what was not dispatched; False when all of the send had left or it is unknown."""
    def withdraw(self, send_id: str) -> bool:
        """Takes a send back: what is queued of it does not leave, and what left is neither sent again nor given to who
        asks for it; False where it is finished or unknown."""
    def resume(self, send_id: str, ordinals: Sequence[int], now: Now) -> list[int]:
        """Lets contents of a restored send that are not known to have left go once more; gives back those that cannot,
        since parity on demand is not stored once it is encoded."""
    def stop(self, send_id: str) -> None:
        """Gives up a send all of which has left, as after the last retransmission."""
    def leave_out(self, message_id: str) -> None:
        """Sends a content that its send can do without no more."""
    def limit_headers(self, header_bytes_max: int) -> None:
        """From now on a message is at most this much longer than its content. Raises as the constructor does."""
    def handle_transmitted(self, transmit_id: int, retrieval_hint: Buffer | None, now: Now) -> None:
        """The node propagated a transmission; `retrieval_hint` is the transport hash of what it propagated."""
    def handle_transmit_failed(self, transmit_id: int, now: Now) -> None:
        """The node could not send: a first transmission goes back to the queue, a later one is due; none counts."""
    def handle_irretrievable(self, message_ids: Sequence[str]) -> None:
        """The store does not have these. Only what is older than this participant's first receipt is lost by it."""
    def handle_caught_up(self) -> None:
        """A store was asked for the past and everything it had was taken in: what is unknown now is not older."""
    def handle_stored(self, send_id: str, ordinal: int, now: Now) -> None:
        """A store has this content of ours: it is not sent again before somebody who lacks it is heard."""
    def handle_timeout(self, now: Now) -> None:
        """Does what is due; early and late calls are harmless."""
    def poll_transmit(self, now: Now, kinds: Container[TransmitKind] | None = None) -> Transmit | None:
        """The next message of an allowed kind (None for any), encoded now; None when nothing is due.

        Order: sync, repair, ephemeral, then contents that are due again and new ones in turn. A content is sent
        again only after `handle_transmitted` or `handle_transmit_failed`.
        """
    def poll_timeout(self) -> int | None:
        """Monotonic ms of the next moment at which `handle_timeout` or `poll_transmit` has work; None for never."""
    @property
    def channel_id(self) -> str:
        """The channel."""
    @property
    def sender_id(self) -> str:
        """This participant."""
    @property
    def lamport_timestamp(self) -> int:
        """The Lamport timestamp of the newest message sent or received."""
    @property
    def queued_bytes(self) -> int:
        """Content bytes that wait for their first dispatch."""
    @property
    def acknowledgement_due_ms(self) -> int | None:
        """When an acknowledgement sync is due, on the monotonic clock."""
    def waiting(self) -> dict[TransmitKind, int]:
        """How many messages of each kind could leave, leaving aside syncs."""
    def first_parity_millionths(self) -> int:
        """How much parity a message leaves with before anybody asks: contents for a million data contents, as earlier
        ones needed, and at most 500,000."""
    def has_room(self) -> bool:
        """Whether the outgoing buffer is below `outgoing_buffer_messages_max`, so that sends may be registered."""
    def oversized(self, content_bytes_max: int) -> list[tuple[str, int, int]]:
        """Contents of ours that were not encoded yet and are larger than this: send id, ordinal, bytes."""
    def knows_send(self, send_id: str) -> bool:
        """Whether a send of ours is remembered."""
    def needs_message(self, message_id: str) -> bool:
        """Whether the stored message of an id is needed still: to send it again, or to repair others with."""
    def holds(self, message_id: str) -> bool:
        """Whether a content is held, or can be reconstructed."""
    def missing(self) -> tuple[HistoryEntry, ...]:
        """What histories name and is not here, the longest known first."""
    def is_missing(self, message_id: str) -> bool:
        """Whether the message is a dependency that is not here."""
    def participants_heard(self, now: Now) -> tuple[str, ...]:
        """Members: senders heard within `participant_ttl_ms`, in the order of their names."""
    def sends_in_store(self) -> int:
        """Sends that wait in a store, where nobody who lacks them is heard or answers."""
    def pending_sends(self) -> tuple[str, ...]:
        """Sends of ours that are neither delivered nor given up."""
    def sends(self) -> tuple[str, ...]:
        """Sends of ours that are remembered, the oldest first."""
    def ordered_ids(self) -> tuple[str, ...]:
        """Ids that stand for the delivered sends, in the order of the log."""
    def stats(self) -> dict[str, int]:
        """Sizes of what is held."""
    def inspect(self) -> SdsInspection:
        """What is held, piece by piece: for tests, and for who looks for the cause of something."""

def divide_message(
    message_bytes: int,
    around_bytes: int,
    channel_id: str,
    sender_id: str,
    config: SdsConfig,
    sync: SyncConfig,
    segmentation: SegmentationParameters,
    *,
    has_parity: bool,
) -> tuple[int, int]:
    """How a message of `message_bytes`, of which `around_bytes` go to envelope and cipher, is divided: the segment size
    that is left, and the largest content that SDS is handed; its header has the rest. `has_parity` tells whether
    parity is made, at once or on demand.

    Raises:
        ConfigError: It is too small to carry anything: names the least size.
    """

@final
class MessageChannel(Participant):
    """The Scalable Data Sync state machine of one channel: inputs and time in, messages and events out.

    It owns no clock, socket, file or thread. Its one owner serialises the calls: one input, then everything that the
    `poll_` methods give, then the next input. What `poll_persist` gives is made durable before what `poll_transmit`
    gave is handed to the network, so that whatever a message acknowledges survives a crash.

    Args:
        channel_id: The channel; messages of others are ignored.
        sender_id: This participant, unique in the channel.
        config: Scalable Data Sync.
        sync: Synchronisation schedule.
        now: The moment of creation.
        rng: The only source of randomness.
        header_bytes_max: A message is at most this much longer than its content.
        delivered_when: Who must hold a send before its resending stops; None for any one participant.

    Raises:
        ConfigError: An id is empty or too long, or the header limit leaves no room for one history entry.
    """

    def __new__(
        cls,
        channel_id: str,
        sender_id: str,
        config: SdsConfig,
        sync: SyncConfig,
        *,
        now: Now,
        rng: random.Random,
        header_bytes_max: int = 24_000,
        delivered_when: DeliveredWhen | None = None,
    ) -> Self: ...
    @staticmethod
    def restore(
        records: Mapping[tuple[str, bytes], bytes],
        channel_id: str,
        sender_id: str,
        config: SdsConfig,
        sync: SyncConfig,
        *,
        now: Now,
        rng: random.Random,
        header_bytes_max: int = 24_000,
        delivered_when: DeliveredWhen | None = None,
    ) -> MessageChannel:
        """The machine that `records` (all that `poll_persist` ever gave, later over earlier) describe.

        Lamport goes on above everything sent; timers restart from `now`. A record that cannot be read is passed over.

        Raises:
            ConfigError: As the constructor does.
            PersistenceError: Another release wrote the records.
        """
    def handle_message(
        self, data: Buffer, now: Now, retrieval_hint: Buffer | None = None, *, from_store: bool = False
    ) -> None:
        """Takes any bytes from the network. Never raises for what a peer sent: it becomes `MessageDropped`.

        A known message `from_store` is no sign that its sender waits for an acknowledgement.
        """
    def handle_content_placed(
        self,
        message_id: str,
        send_id: str,
        ordinal: int | None,
        content_count: int | None,
        contents_needed: int | None,
        now: Now,
    ) -> None:
        """Says to which send a content belongs and how large that is; None where the wire does not say."""
    def handle_send_reconstructed(
        self,
        sender_id: str,
        send_id: str,
        content_count: int,
        now: Now,
        *,
        inferred_message_ids: Sequence[str] | None = None,
    ) -> None:
        """The owner has the message: every content counts as received, and the send is released in causal order.

        Under the rule "send" all `content_count` ids are known; `inferred_message_ids` names those of contents
        recovered under another rule.
        """
    def handle_content_refused(self, message_id: str, data: Buffer, *, invalid: bool = False) -> None:
        """No room for what `data` brought just now, or no use: it was never received. Nothing waits for what is
        `invalid`."""
    def handle_content_surplus(self, message_id: str) -> None:
        """The content is part of a message that is here: it counts as delivered, so that histories naming it close."""
    def handle_content_doubted(self, message_id: str, sender_id: str, send_id: str) -> None:
        """There is enough of its send, and the message is not whole: it is not acknowledged before that is."""
    def handle_send_abandoned(self, sender_id: str, send_id: str, now: Now, *, keep_messages: bool = False) -> bool:
        """The owner gave up reassembling a send: what follows it no longer waits. Whether it was news.

        Its contents count as never received, and are asked for when more comes, or with `keep_messages` taken from
        what is kept for repair (`poll_reopened`).
        """
    def handle_whole_content(self, message_id: str, sender_id: str, content: Buffer, data: Buffer) -> None:
        """A message in one content came whole, by `data`: where the message kept under its id is another, it is a
        rival."""
    def handle_content_apart(self, message_id: str, sender_id: str, content: Buffer, data: Buffer) -> str:
        """A message in one content came, by `data`, under the id of a content of a larger message: it is a rival of
        that content, which is missing still. Gives what the rival is called."""
    def handle_rival_refused(self, name: str, sender_id: str) -> None:
        """There was no room for a rival, or it was of no use: it may come again."""
    def was_rival(self, message_id: str, sender_id: str, content: Buffer) -> bool:
        """Whether a content that comes first under its id now was a rival of another one that was given up since."""
    def poll_event(self) -> SdsEvent | None:
        """The oldest event that was not polled yet, None where there is none."""
    def poll_persist(self) -> ChangedRecords:
        """Records that changed since the last call; None deletes."""
    def poll_reopened(self) -> list[tuple[bytes, bytes | None]]:
        """Messages to be taken in again, with their hints, since the last call: a send goes on that was given up."""

def repair_times_without_store(members: int) -> tuple[int, int]:
    """T_min and T_max of SDS-R, in milliseconds, for a group of so many members on a network without a store."""

def request_offset_ms(
    participant: str, message_id: str, t_min_ms: int, t_max_ms: int, wire_format: _SdsWireFormat = "spec"
) -> int:
    """T_req - now, in milliseconds (SDS-R)."""

def response_offset_ms(
    participant: str, sender_id: str, message_id: str, t_max_ms: int, wire_format: _SdsWireFormat = "spec"
) -> int:
    """T_resp - now, in milliseconds (SDS-R): 0 for the original sender."""

def in_response_group(
    participant: str, sender_id: str, message_id: str, groups: int, wire_format: _SdsWireFormat = "spec"
) -> bool:
    """Whether `participant` answers for a message of `sender_id` (SDS-R); nobody does where the sender is unknown."""

def rival_name(message_id: str, sender_id: str, content: Buffer) -> str:
    """What a content is called whose message id another content has: no two of one id are called alike."""

def is_rival(name: str) -> bool:
    """Whether `name` is that of a content whose message id another content has, and no message id."""

def sds_limits() -> dict[str, int]:
    """The limits of what a machine holds, by name (docs/guide/sds.md)."""

def farmhash64(text: str, /) -> int:
    """Nim's `hash(string)`: FarmHash64 of the UTF-8 bytes, as the signed integer that Nim has."""

# --- Channel ------------------------------------------------------------------------------------

@final
class Delivery:
    """A message for the application, whole and after everything that it follows, or an ephemeral one."""

    __match_args__: Final = ("sender_id", "message_id", "payload", "send_id", "redelivered", "released_ms")

    def __new__(
        cls,
        sender_id: str,
        message_id: str,
        payload: bytes,
        send_id: str | None = None,
        redelivered: bool = False,
        released_ms: int | None = None,
    ) -> Self: ...
    @property
    def sender_id(self) -> str:
        """The participant that sent it."""
    @property
    def message_id(self) -> str:
        """Hex Keccak-256 of the payload."""

    @property
    def payload(self) -> bytes:
        """The message."""
    @property
    def send_id(self) -> str | None:
        """The send that it is stored under; None for an ephemeral message, which is never stored."""

    @property
    def redelivered(self) -> bool:
        """Whether a crash interrupted an earlier hand-over."""

    @property
    def released_ms(self) -> int | None:
        """Monotonic ms at which it was released; None for an ephemeral message, and for one of an earlier life."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class MessageGivenUp(SdsEvent):
    """A partial message was given up; it is named by its hash (004, irretrievable-message)."""

    __match_args__: Final = ("entry",)

    def __new__(cls, entry: HistoryEntry) -> Self: ...
    @property
    def entry(self) -> HistoryEntry:
        """The hash that names it, as its message id, and a hint for it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class SegmentSeen(SdsEvent):
    """A segment arrived, or parity brought it back; told where `handle_message` was asked to."""

    __match_args__: Final = (
        "stage",
        "send_id",
        "ordinal",
        "sender_id",
        "data_count",
        "content_count",
        "message_id",
    )

    def __new__(
        cls,
        stage: str,
        send_id: str,
        ordinal: int,
        sender_id: str,
        data_count: int | None = None,
        content_count: int | None = None,
        message_id: str | None = None,
    ) -> Self: ...
    @property
    def stage(self) -> Literal["received", "recovered"]:
        """How it came."""
    @property
    def send_id(self) -> str:
        """The send that it belongs to."""
    @property
    def ordinal(self) -> int:
        """Index of a data segment, or the number of data segments plus the index of a parity segment."""

    @property
    def sender_id(self) -> str:
        """The participant that sent it."""
    @property
    def data_count(self) -> int | None:
        """Data segments of its message; None where the wire does not say."""

    @property
    def content_count(self) -> int | None:
        """All segments of it; None where the wire does not say."""

    @property
    def message_id(self) -> str | None:
        """Of the SDS message that brought it."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class MessageFault(SdsEvent):
    """Something is wrong with what a peer sent. Names and texts may be a peer's: quote them."""

    __match_args__: Final = ("kind", "sender_id", "name", "detail")

    def __new__(cls, kind: str, sender_id: str, name: str, detail: str) -> Self: ...
    @property
    def kind(
        self,
    ) -> Literal[
        "segment-invalid",
        "segment-discarded",
        "hash-mismatch",
        "false-segments",
        "message-dropped",
        "message-not-held",
    ]:
        """What is wrong."""
    @property
    def sender_id(self) -> str:
        """The participant that it names as its sender."""
    @property
    def name(self) -> str:
        """Which segment or send, or the first digits of a message's hash."""

    @property
    def detail(self) -> str:
        """Why, or how many."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class TransmitFailed(SdsEvent):
    """A message did not leave."""

    __match_args__: Final = ("message_id", "kind", "error", "of_node")

    def __new__(cls, message_id: str, kind: TransmitKind, error: str, of_node: bool) -> Self: ...
    @property
    def message_id(self) -> str:
        """Its SDS message id."""
    @property
    def kind(self) -> TransmitKind:
        """Why it was to leave."""
    @property
    def error(self) -> str:
        """Why it did not."""
    @property
    def of_node(self) -> bool:
        """Whether that is no news: the node fails."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class NodeFailing(SdsEvent):
    """The node failed so many times in a row that the application is told."""

    __match_args__: Final = ("failures", "error")

    def __new__(cls, failures: int, error: str) -> Self: ...
    @property
    def failures(self) -> int:
        """How many times in a row."""
    @property
    def error(self) -> str:
        """What the last one said."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class NodeRecovered(SdsEvent):
    """The node takes messages again."""

    __match_args__: Final = ("failures", "told")

    def __new__(cls, failures: int, told: bool) -> Self: ...
    @property
    def failures(self) -> int:
        """How many times in a row it had failed."""

    @property
    def told(self) -> bool:
        """Whether the application was told of those."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class NodeHolds(SdsEvent):
    """The node refuses everything until a time that it named."""

    __match_args__: Final = ("hold_ms", "error")

    def __new__(cls, hold_ms: int, error: str) -> Self: ...
    @property
    def hold_ms(self) -> int:
        """How long that is heeded."""

    @property
    def error(self) -> str:
        """What the node said."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@final
class Allowance:
    """What one rate limit lets leave at one moment, by how many messages are prepared that have no place yet."""

    def __new__(
        cls,
        *,
        free: Container[TransmitKind],
        left: int,
        open_left: int,
        sync_left: int,
        ephemeral_left: int,
        repairs: bool,
    ) -> Self:
        """Of places that are left.

        Args:
            free: Kinds that take none.
            left: All of them, those kept for acknowledgements included.
            open_left: Those that any kind but acknowledgements may take.
            sync_left: Those that acknowledgements may take.
            ephemeral_left: Those until ephemeral messages are dropped.
            repairs: Whether what others ask for may leave.
        """

    def allows(self, kind: TransmitKind, taken: int = 0) -> bool:
        """Whether one more of a kind may be prepared, where `taken` messages are that have no place yet."""
    def ephemeral_drop_reason(self, taken: int = 0) -> EphemeralDropReason | None:
        """Why an ephemeral message may not leave; None where it may (004, Ephemeral messages)."""

@final
class SharedQuota:
    """One rate limit: what is counted of it, and who of its members gets the next place (003 and 004, Rate limit
    management).

    Whoever owns it makes `record` durable before what is counted is handed to a node. `epoch_ms` is Unix time, and
    `in_flight` how many counted messages nodes hold of which nobody knows when they leave: they count in an epoch that
    begins meanwhile, too. It is looked at only where `enters` says so.
    """

    def __new__(
        cls, *, epoch_size_ms: int, quota: int, counts: RateCounts, ack_reserve: int, ephemeral_max: int
    ) -> Self:
        """A limit of which nothing is counted.

        Args:
            epoch_size_ms: Length of an epoch.
            quota: Places of an epoch.
            counts: What takes one.
            ack_reserve: How many are kept for acknowledgements; one at least is left for messages.
            ephemeral_max: After how many ephemeral messages are dropped.

        Raises:
            ValueError: An epoch that has no place or takes no time, or another rule of counting.
        """

    def add(self, epoch: int, epoch_size_ms: int, used: int) -> None:
        """Takes over a count that was stored, on top of what was counted here in the same epoch."""
    def close(self, epoch_ms: int, in_flight: int) -> None:
        """An earlier life counted elsewhere: unless its count was taken over, nothing more of this epoch is spent."""
    def join(self, epoch_ms: int, in_flight: int) -> int:
        """A new member, by its number."""
    def leave(self, member: int) -> None:
        """Nothing that it waits for is granted."""
    @property
    def free_kinds(self) -> frozenset[TransmitKind]:
        """Kinds that take no place."""
    def enters(self, epoch_ms: int) -> bool:
        """Whether an epoch is entered at this time in which what nodes hold counts."""
    def allowance(self, member: int, epoch_ms: int, in_flight: int) -> Allowance:
        """What a member may prepare now."""
    def pass_over(self, member: int, epoch_ms: int, in_flight: int) -> None:
        """Contents of a member wait, and it asks for no place, since none is open: it is as if it had asked in vain."""
    def reopens_at_ms(self, member: int, kind: TransmitKind, epoch_ms: int) -> int:
        """Unix time at which more of a kind may leave, where none may now."""
    @property
    def resets_at_ms(self) -> int:
        """Unix time at which the epoch that follows the newest begins."""
    def behind_ms(self, epoch_ms: int, in_flight: int) -> int:
        """How far the clock stands before an epoch that was counted already; 0 where it does not."""
    def standing(self, epoch_ms: int, in_flight: int) -> tuple[int, int, int]:
        """Places that are taken, the quota, and the Unix time at which the next epoch begins."""
    def is_open(self, epoch: int, epoch_ms: int, in_flight: int) -> bool:
        """Whether an epoch in which a place was counted is that of this time."""
    def give_back(self, places: int, epoch: int) -> None:
        """Places whose messages never left; what is stored stays until the next count."""
    def request(self, member: int, kinds: Sequence[TransmitKind]) -> int:
        """A member waits for a place for each of these; the number that `poll_answers` calls that.

        Raises:
            TypeError: Something else than a kind.
        """

    def asking(self) -> list[int]:
        """Members that wait for places."""
    def count_round(self, epoch_ms: int, in_flight: int) -> bool:
        """Counts places for the first request of each member; True where the count must be stored before they are
        answered: `handle_stored` or `handle_store_failed` follows."""
    def handle_stored(self) -> None:
        """The places of the round are given."""
    def handle_store_failed(self, epoch_ms: int) -> bool:
        """They are nobody's, and nothing is counted for a while; True for the first failure in a row."""
    def refuse_all(self) -> None:
        """Nobody counts any more: whatever waits is refused."""
    def poll_answers(self) -> list[tuple[int, list[bool], int]]:
        """What became of requests: each with which of its kinds got a place, and the epoch of those."""
    def record(self) -> tuple[int, int, int]:
        """The count as it stands, as `add` takes it."""
    def poll_record(self) -> tuple[int, int, int] | None:
        """The same where it changed since the last call."""

@final
class ChannelMachine(Participant):
    """The machine of a reliable channel: SDS joined with reassembly; SDS messages in, whole messages out.

    As with `MessageChannel` its one owner serialises the calls, and what `poll_persist` gives is made durable before
    anything that was polled is handed to the network or to the application.
    """

    @staticmethod
    def restore(
        records: Mapping[tuple[str, bytes], bytes],
        channel_id: str,
        sender_id: str,
        config: SdsConfig,
        sync: SyncConfig,
        segmentation: SegmentationParameters,
        limits: ReassemblyLimits,
        *,
        now: Now,
        rng: random.Random,
        redelivery: Redelivery = "at-least-once",
        header_bytes_max: int = 24_000,
        delivered_when: DeliveredWhen | None = None,
        members_make_parity: bool = False,
        queue_bytes_max: int = 268_435_456,
        is_limited: bool = False,
    ) -> ChannelMachine:
        """The machine that `records` (all that `poll_persist` ever gave, later over earlier) describe.

        Args:
            records: Those of other kinds are passed over; with none it begins now.
            channel_id: The channel; messages of others are ignored.
            sender_id: This participant, unique in the channel.
            config: Scalable Data Sync.
            sync: Synchronisation schedule.
            segmentation: How segments are read, and the code tried first.
            limits: What may be held of partial messages.
            now: The moment of creation.
            rng: The only source of randomness.
            redelivery: What a crash during a hand-over means.
            header_bytes_max: A message is at most this much longer than its content.
            delivered_when: Who must hold a send before its resending stops; None for any one participant.
            members_make_parity: Whether participants make parity of each other's messages, and ask for such.
            queue_bytes_max: Bytes of contents that may wait to leave.
            is_limited: Whether a rate limit holds, under which room may take epochs to come: then what has none is
                refused.

        Raises:
            ConfigError: An id is empty or too long, or the header limit leaves no room for one history entry.
            PersistenceError: A newer release wrote the records, or a message is stored without its bytes.
        """

    def handle_message(
        self,
        data: Buffer,
        now: Now,
        retrieval_hint: Buffer | None = None,
        *,
        timestamp_ns: int = 0,
        authenticated_sender: str | None = None,
        from_store: bool = False,
        observed: bool = False,
    ) -> bool:
        """Takes any bytes from the network. Never raises for what a peer sent: it becomes an event.

        Args:
            data: A decrypted SDS message.
            now: The moment.
            retrieval_hint: How a store finds it.
            timestamp_ns: Its transport time since the Unix epoch; 0 where that is not known.
            authenticated_sender: Who encrypted it, where the cipher proves that.
            from_store: Whether a store answered with it: that says nothing about what its sender heard.
            observed: Whether `SegmentSeen` is wanted.

        Returns:
            False where there was no room for its segment: it is not acknowledged and may come again.
        """

    def handle_messages(self, arrivals: Iterable[Any], now: Now, *, observed: bool = False) -> list[bool]:
        """As `handle_message` for each of these, in order.

        Args:
            arrivals: Each has `data`, `message_hash`, `timestamp_ns`, `authenticated_sender` and `from_store`.
            now: The moment.
            observed: Whether `SegmentSeen` is wanted.

        Raises:
            Exception: A field of one is of another type, and none was taken in.
        """
    def submit(
        self,
        send_id: str,
        request_id: str,
        message_id: str,
        contents: Iterable[Buffer],
        *,
        data_count: int,
        reserve: int = 0,
    ) -> list[tuple[str, Exception | None]]:
        """A message of ours is to leave: it is refused, or registered when there is room behind those that wait.

        Where ids are made of contents its send may be one that is remembered: it shares that one's fate, unless
        nothing of that one has left and its failure was told.

        Args:
            send_id: Its send.
            request_id: What `send` returns.
            message_id: Hex Keccak-256 of the payload.
            contents: The segments.
            data_count: How many of them hold data.
            reserve: Parity that can be made on demand.

        Returns:
            The requests that wait no longer, each with None where its message is registered, durable once what
            `poll_persist` gives is; or why it is refused: `QueueFullError` for want of room, `ConfigError` as `send`.
        """

    def register_waiting(self) -> list[tuple[str, Exception | None]]:
        """Registers what waits, for as long as there is room; gives what `submit` does."""
    def refuse(self, request_id: str, message_id: str, data_count: int, error: str) -> None:
        """A message of ours can never be sent (004, Irrecoverable errors): a send of its own under any rule."""
    def cancel_request(self, request_id: str) -> tuple[bool, SendProgress] | None:
        """Lets nothing more of a request's send leave, first or again, and forgets the request; False where that
        cannot be taken back. With the send as it was; None where there is none."""
    def withdraw_request(self, request_id: str) -> None:
        """As `cancel_request`, of a request whose id its caller never learns: what becomes of a send that is its own
        and has left is still told."""
    def announce_withdrawal(self, request_id: str, send_id: str) -> None:
        """`withdraw_request` follows for a request of this send: nothing of it leaves meanwhile, and nothing new that
        may name it."""
    def begin_deliveries(self) -> list[Delivery]:
        """The next messages for the application: hand them over in this order, after those before them, once what
        `poll_persist` gives is durable.

        Empty where none waits, or enough have begun: a commit covers as many as the application is done with meanwhile.
        """
    def finish_delivery(self) -> None:
        """The application is done with the oldest message that has begun, if there is one."""
    def end_deliveries(self, given: int) -> None:
        """The channel ends: of the messages that have begun the application was given the first `given`; the others
        come in its next life as if they had not."""
    def resume_in_store(self, now: Now) -> None:
        """What a store had of our sends in an earlier life it has still."""
    def listen_for(self, events: Sequence[str]) -> None:
        """Says to which of `shardwire.events.SEND_EVENTS` somebody listens, by their names; at any time, in the middle
        of another call too. Chunk events that nobody listens to are not made.

        Raises:
            ConfigError: There is no such event.
        """
    def own_sends(self) -> OwnSends:
        """How far our sends have come."""
    def store_questions(self) -> StoreQuestions:
        """What a store is asked."""
    def expire(self, now: Now) -> None:
        """Drops partial messages that nothing new came for (segmentation 001, 002, timeouts)."""
    def poll_events(self, now: Now) -> list[SdsEvent]:
        """What happened since the last call, in its order: the events of this section, and those of SDS about what is
        missing. What becomes of sends of ours `OwnSends` tells; `ContentAcknowledged` comes where it is observed."""
    def poll_persist(self, beside: dict[_RecordName, bytes | None] | None = None) -> ChangedRecords:
        """Records that changed since the last call, and those of the caller."""
    def drop_changes(self) -> None:
        """In place of `poll_persist` where nothing is stored: forgets what changed."""
    def submit_ephemeral(
        self,
        send_id: str,
        request_id: str,
        message_id: str,
        content: Buffer,
        allowances: list[Allowance],
    ) -> None:
        """Lets an ephemeral message leave now, or says by an event why it never will (004, Ephemeral messages).

        Raises:
            ConfigError: As `send_ephemeral`.
        """

    def refuse_ephemeral(self, request_id: str, message_id: str, error: str) -> None:
        """An ephemeral message can never be sent (004, Irrecoverable errors)."""
    def handle_started(self, now: Now) -> None:
        """The channel starts, and its node is taken for connected until it says otherwise."""
    def handle_connection(self, online: bool, is_full: bool, now: Now) -> None:
        """Whether the node is connected, nothing leaves while it is not, and whether all that it offers is in reach."""
    def handle_missed(self, since_ns: int, now: Now) -> None:
        """From this transport time on messages may have passed by."""
    def may_try(self, monotonic_ms: int) -> bool:
        """Whether the node is worth a try: it is online, did not fail just now, and does not refuse everything."""
    def poll_transmits(self, allowances: list[Allowance], now: Now) -> tuple[list[Transmit], bool, bool]:
        """Everything that may be prepared to leave now, as far as all of `allowances` have places left, whether
        anything waits for places but ephemeral messages, which are dropped, and whether a content of ours does.

        Each is answered for by `handle_propagated`, `handle_late` or `handle_failed`, or taken back by
        `handle_commit_failed` or `handle_stopped`. One of which the node says nothing for `PROPAGATION_TIMEOUT_MS`
        counts as failed.
        """

    def is_handed_out(self, transmit_id: int) -> bool:
        """Whether a message that was handed out is waited for: nothing need be done for another one."""
    def leave(self, transmit_id: int, monotonic_ms: int) -> bool:
        """Whether a message is still to leave. If so it does: the time in which the node has to answer begins."""
    def handle_propagated(self, transmit_id: int, message_hash: Buffer, now: Now) -> bool:
        """A message reached the network under this hash; False where nobody waited for it any longer."""
    def handle_late(self, transmit_id: int, now: Now) -> None:
        """A message was not handed to the node, since the rate limit had no place left for it."""
    def announce_late(self, transmit_id: int) -> None:
        """`handle_late` follows: where this is the first message of its send, nothing of that leaves meanwhile."""
    def announce_failure(self) -> None:
        """Says at once that `handle_failed` will come: nothing is tried before it has."""
    def handle_failed(
        self,
        transmit_id: int,
        error: str,
        now: Now,
        *,
        permanent: bool = False,
        unanswered: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        """A message did not leave, as far as anybody knows, as `announce_failure` said.

        Args:
            transmit_id: Which.
            error: What happened.
            now: The moment.
            permanent: Whether trying again cannot help (004, Irrecoverable errors), as the node or the cipher says.
            unanswered: Whether the node took it and did not say what became of it, so that it may have left after all.
            retry_after_ms: How long the node refuses everything; None where it does not say so.
        """

    def limit_messages(self, header_bytes_max: int, content_bytes_max: int, now: Now) -> None:
        """The node's messages have another size: what is encoded from now on is divided so, and what was made for
        larger ones and is not encoded yet fails. Raises as `limit_headers`."""
    def handle_commit_failed(self, transmit_ids: list[int], error: str, now: Now) -> None:
        """What these speak of is not stored: they leave after a commit that succeeds, and nothing ephemeral does."""
    def handle_stopped(self, now: Now) -> None:
        """The channel stops: what the node did not answer for is tried again after the next start."""
    def handle_time(self, now: Now, is_active: bool) -> None:
        """Does what is due: gives up waiting for a node that does not answer, and, while the channel is started, what
        SDS and reassembly have to do."""
    def next_wake_ms(self, allowances: list[Allowance], reopens_ms: int, now: Now) -> int | None:
        """Monotonic ms at which something falls due, may leave or is given up without any input; None for never.

        `reopens_ms` is when more may leave by all limits, where nothing may now.
        """

    @property
    def dispatches_in_flight(self) -> int:
        """Messages that were handed out and not answered for, or that wait for the next epoch."""

    def queued(self) -> tuple[int, int]:
        """How many contents were never dispatched and messages wait for room, and their bytes."""
    def is_busy(self) -> bool:
        """Whether anything of ours is unfinished, or anything received is not acknowledged. What a store has for
        whoever is away is finished."""
    @property
    def unplaced(self) -> int:
        """How many of those have no place of a rate limit yet, and need one."""

    def counted_in_flight(self) -> int:
        """How many the node holds that took a place of a rate limit."""
    def node_state(self, now: Now) -> tuple[bool, int, int]:
        """Whether the node is connected, for how many ms it refuses everything, and how many times in a row it
        failed."""
    def dispatch_stats(self) -> dict[str, int]:
        """How many messages went which way."""
    def has_delivery_room(self, behind_messages: int = 0, behind_bytes: int = 0) -> bool:
        """Whether what is received is to be taken in, behind so many messages and bytes more: not while the application
        has to catch up first."""
    def receiving_stats(self) -> dict[str, int]:
        """Counts of what was received since the start, and sizes of what is held of it."""

@final
class StoreQuestions:
    """What one machine asks of a store, and when (004, Missing message retrieval and Query on connect)."""

    def next_ms(self, now: Now) -> int | None:
        """Monotonic time at which a store is to be asked something; None for not before something comes."""
    def poll(self, now: Now) -> StoreQuestion | None:
        """What a store is to be asked now; None where nothing is due, or one is being asked.

        `handle_answered`, `handle_no_answer` or `withdraw` ends it.
        """

    def handle_message(self, message_hash: Buffer, data: Buffer | None) -> None:
        """The store has a message: told before it is taken in, with the SDS message where there is one."""
    def handle_page(self, news: bool, all_kept: bool, until_ns: int | None, now: Now) -> bool:
        """A page of the content topic is taken in; gives whether the next one is wanted.

        Args:
            news: Whether it had anything unknown.
            all_kept: Whether everything so far was kept.
            until_ns: The transport time that it ends with, where it was asked for oldest first and is in order.
            now: The present.
        """
    def handle_answered(self, all_kept: bool, now: Now) -> None:
        """A store has answered; whether all that it had was taken in."""
    def handle_no_answer(self, now: Now) -> None:
        """No store answered: none is asked anything before its time."""
    def handle_no_store(self, now: Now) -> None:
        """There is no store to ask, or none answers in time: until one answers others are asked for what is missing at
        the times of a network without one."""
    def withdraw(self) -> None:
        """Nobody waits for the answer any longer."""

def last_seen_ns(record: Buffer) -> int:
    """The transport time of a stored record of kind "channel.last-seen" up to which nothing was missed.

    Raises:
        PersistenceError: It is damaged, or a newer release wrote it.
    """

@final
class StoreQuestion:
    """One query: of messages by their hashes, or of all of the content topic."""

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """Transport hashes; empty for all of the content topic."""
    @property
    def since_ms(self) -> int:
        """Unix time from which on; there is no end."""
    @property
    def newest_first(self) -> bool:
        """Whether the newest come first."""
    @property
    def goes_ahead(self) -> bool:
        """Whether pages are asked for before those that came are taken in."""

@final
class OwnSends:
    """The sends of one machine: how far each has come, and which events follow (003 MessageEvents, 004 Event
    lifecycle). What participants acknowledge the machine notes by itself."""

    def of_request(self, request_id: str) -> SendProgress | None:
        """The send of what `send` returned."""
    def __contains__(self, send_id: object, /) -> bool: ...
    def get(self, send_id: str) -> SendProgress | None:
        """How far a send has come; None for one that is not known."""
    def pending(self) -> list[SendProgress]:
        """What is neither delivered nor failed nor cancelled, oldest first."""
    def pending_count(self) -> int:
        """The number of `pending`."""
    def is_unannounced(self, send_id: str, outcome: str, request_id: str) -> bool:
        """Whether `on_announced` is to be called for an outcome: "sent", "delivered" or "error"."""
    def on_announced(self, send_id: str, outcome: str, request_id: str) -> None:
        """The application was told an outcome of a request, or nobody is there to be told it."""
    def poll_events(self) -> list[tuple[ChannelEvent, tuple[str, str, str] | None]]:
        """Events since the last call; with send, outcome and request where it stays unannounced until told."""

@final
class SendProgress:
    """How far one send has come, at one moment."""

    @property
    def request_ids(self) -> list[str]:
        """What `send` returned for it; several where the same content was sent again under an id rule that cannot tell
        them apart."""
    @property
    def message_id(self) -> str:
        """Hex Keccak-256 of the payload."""
    @property
    def data_count(self) -> int:
        """Data segments of the payload."""
    @property
    def content_count(self) -> int:
        """Data and parity segments that leave without being asked for."""
    @property
    def dispatched_count(self) -> int:
        """Segments handed to the node."""
    @property
    def propagated_count(self) -> int:
        """Segments that the network took."""
    @property
    def acknowledged_count(self) -> int:
        """Data segments that some participant holds."""
    @property
    def delivered_to(self) -> list[str]:
        """Participants that can reconstruct it, in the order in which they said so."""
    @property
    def sent(self) -> bool:
        """Whether it counts as sent."""
    @property
    def delivered(self) -> bool:
        """Whether it counts as delivered."""
    @property
    def is_stored(self) -> bool:
        """Whether a store has all of it that can be sent."""
    @property
    def error(self) -> str:
        """Why it failed; empty where it did not."""
    @property
    def error_stage(self) -> str:
        """ "dispatch" or "delivery" where it failed."""
    @staticmethod
    def decode(record: Buffer) -> SendProgress:
        """That of a stored record of kind "channel.send".

        Raises:
            PersistenceError: It is damaged, or a newer release wrote it.
        """

@final
class BloomFilter:
    """The SDS bloom filter, byte-exact with @waku/sds ("spec") or nim-sds ("nim")."""

    def __new__(
        cls, capacity: int = 10_000, error_rate: float = 0.001, wire_format: _SdsWireFormat = "spec"
    ) -> Self: ...
    @property
    def hash_count(self) -> int:
        """Hashes of each id."""
    @property
    def bit_count(self) -> int:
        """The number of its bits."""
    @property
    def size_bytes(self) -> int:
        """Length of `to_bytes()`."""
    def insert(self, message_id: str, /) -> None:
        """Adds an id."""
    def insert_many(self, message_ids: Iterable[str], /) -> None:
        """Adds each of the ids."""
    def __contains__(self, message_id: str, /) -> bool: ...
    def clear(self) -> None:
        """Takes everything out."""
    def to_bytes(self) -> bytes:
        """The filter as it stands in a message."""
    def load(self, data: Buffer, /) -> bool:
        """Replaces the content; False (and unchanged) where the size is not this filter's."""
    def review(self, data: Buffer, message_ids: Sequence[str], /) -> list[int] | None:
        """Positions in `message_ids` of those a peer's serialized filter holds; None where its size is unexpected."""

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
    def payload(self) -> bytes:
        """What it carries."""
    @property
    def content_topic(self) -> str:
        """Its content topic."""
    @property
    def version(self) -> int | None:
        """The version of what encrypts its payload; None where it does not say."""
    @property
    def timestamp_ns(self) -> int | None: ...
    @property
    def meta(self) -> bytes | None:
        """What its application says of it beside the payload, 64 bytes at most."""
    @property
    def rate_limit_proof(self) -> bytes | None:
        """The proof of 17/WAKU2-RLN-RELAY, as bytes."""
    @property
    def ephemeral(self) -> bool | None:
        """Whether no store keeps it; None where it does not say."""
    def encode(self) -> bytes:
        """The message on the wire."""
    @staticmethod
    def decode(data: Buffer, /) -> WakuMessage | None:
        """The message that the bytes are; None where they are none."""

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
    """The shard of a content topic by autosharding. Raises ConfigError where the topic is not
    /[generation/]application/version/name/encoding.
    """

# --- Files --------------------------------------------------------------------------------------
# Messages of file transfers: `proto/file_transfer.proto`.

@final
class FileManifest:
    """An offer of a file. `name` is a peer's: 1 to 255 bytes of anything."""

    @property
    def transfer_id(self) -> bytes:
        """Names the transfer, 32 bytes."""
    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int:
        """Bytes of the file, as its sender claims."""
    @property
    def chunk_size_bytes(self) -> int:
        """Bytes of each chunk but the last."""
    @property
    def chain_hash(self) -> bytes:
        """The hash of the first chunk, 32 bytes."""
    @property
    def session(self) -> int:
        """Drawn by the sender whenever it begins or goes on."""

@final
class FileChunk:
    """A part of a file, not empty."""

    @property
    def transfer_id(self) -> bytes:
        """The transfer that it belongs to, 32 bytes."""
    @property
    def index(self) -> int:
        """Its place, from 0 on."""
    @property
    def next_hash(self) -> bytes:
        """The hash of the next chunk, 32 bytes; zeros in the last one."""
    @property
    def data(self) -> bytes:
        """Its bytes."""
    @property
    def session(self) -> int:
        """As `FileManifest.session`."""

@final
class FileStatus:
    """What a participant says of a transfer."""

    @property
    def transfer_id(self) -> bytes:
        """The transfer that it is about, 32 bytes."""
    @property
    def state(self) -> _FileState:
        """What became of it."""
    @property
    def reason(self) -> _FileReason:
        """Why it is refused or withdrawn; empty elsewhere."""
    @property
    def next_index(self) -> int:
        """The chunk to go on with: those before it are there."""
    @property
    def session(self) -> int:
        """As `FileManifest.session`."""

def is_file_message(message: Buffer, /) -> bool:
    """Whether a message of a channel belongs to a file transfer, in any version."""

def decode_file_message(message: Buffer, /) -> FileManifest | FileChunk | FileStatus | None:
    """The manifest, chunk or status that a message of a channel is; None where it is no file message of this version,
    or a field of it is out of its limits.
    """

def encode_file_manifest(
    *, name: str, size_bytes: int, chunk_size_bytes: int, chain_hash: Buffer, nonce: int, session: int
) -> tuple[bytes, bytes]:
    """The message that offers a file, and the transfer's id. Raises ConfigError."""

def encode_file_chunk(
    *, transfer_id: Buffer, index: int, next_hash: Buffer, data: Buffer, nonce: int, session: int
) -> bytes:
    """The message that carries a chunk."""

def encode_file_status(
    *,
    transfer_id: Buffer,
    state: _FileState,
    nonce: int,
    session: int,
    reason: _FileReason = "",
    next_index: int = 0,
) -> bytes:
    """The message that says what became of a transfer."""

# --- Arrow --------------------------------------------------------------------------------------
# A batch is one call. Arguments are anything with an Arrow C interface, results are pyarrow objects; both are `Any`
# because pyarrow is optional. A null row gives null, and bytes that cannot be read give null fields and an `error`.

def arrow_keccak256(data: Any) -> Any:
    """Keccak-256 of every row, as binary."""

def arrow_decode_segment(
    data: Any, wire_format: _SegmentWireFormat, max_total_segments: int, include_payload: bool
) -> Any:
    """A struct a row: entire_message_hash, is_parity, indices and counts, lengths, segment_payload, and why it is none.

    Bytes that `draft` reads as a whole message have their payload and no header.
    """

def arrow_decode_sds(data: Any, wire_format: _SdsWireFormat) -> Any:
    """A struct a row: the message's fields, kind, send_id, segment_ordinal, error."""

def arrow_decode_waku_message(data: Any) -> Any:
    """A struct a row: the message's fields, error."""

def arrow_message_hash(pubsub_topic: Any, payload: Any, content_topic: Any, meta: Any, timestamp_ns: Any) -> Any:
    """The deterministic message hash of 14/WAKU2-MESSAGE. A null topic or payload gives null; a null `meta` adds
    nothing and a null timestamp counts as 0.
    """

def arrow_shard_of(content_topic: Any, num_shards_in_cluster: int) -> Any:
    """The shard of every content topic; null where the topic cannot be placed."""

def arrow_segment(payload: Any, parameters: SegmentationParameters) -> tuple[Any, str | None]:
    """A list of segments a row, and what refuses the first payload that is refused."""

def arrow_segment_rows(payload: Any, parameters: SegmentationParameters) -> Any:
    """A record batch with a row a segment; `row` is the position of its payload.

    A payload that is refused has one row with `error`; a null payload has none.
    """

def arrow_unwrap_waku(state: Any) -> Any:
    """A record batch of payload, timestamp, sender, send_id and error, with the Waku messages taken off.

    The timestamp is the message's where it has one; its content topic stands in a column `content_topic` beside them.
    """

def arrow_unwrap_sds(state: Any, wire_format: _SdsWireFormat) -> Any:
    """The same, with the SDS messages taken off; a message without content has neither payload nor error."""

def arrow_unwrap_segment(state: Any, wire_format: _SegmentWireFormat, max_total_segments: int) -> Any:
    """The same with entire_message_hash, and without the payloads that are no segments.

    A row that is none keeps no `send_id`: such rows are counted by their reason, and anyone can invent ids.
    """

@final
class ArrowReconstructor:
    """Messages from batches of segments sorted by message; see shardwire.spark.reconstruct.

    What `push` and `finish` return are record batches of finished messages, in the order in which the messages end.
    """

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

        A leftover with `error` "whole" says that a partition holds a message whole: it has no row here. "times N" says
        that the segment came N times.
        """
    def finish(self) -> list[Any]:
        """Ends the last message; returns what is left."""
    def poll_corrections(self) -> Any:
        """Since the last call: rows of partitions that are wrong, as `push` takes them in; None if none.

        `timestamp` holds the partition, `error` the number of data segments that came in no partition, or null where
        another partition's row stands for the message.
        """

@final
class ArrowLocalReconstructor:
    """Whole messages from batches of segments in any order; see shardwire.spark.archive.

    `push` and `finish` return the messages that are whole, each once, and rows (per `by` and reason) for what cannot be
    read.
    """

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
    def finish(self) -> list[Any]:
        """Settles every group that is left; returns their messages."""
    def poll_leftovers(self) -> Any:
        """Segments of messages that are not whole, with how often each came, and a row for each that is, with `error`
        "whole", since the last call; None if none.
        """

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
