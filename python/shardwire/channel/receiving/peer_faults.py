"""Log messages for what the machine finds wrong with messages of peers."""

from __future__ import annotations

from shardwire._native import MessageFault
from shardwire.peer_log import PeerLog
from shardwire.quoting import one_line, quoted

# So many messages that nobody here can read are worth a warning.
UNREADABLE_TOLD = 3

# By kind of fault: its name, the sender and the detail, which what is not held has not.
_TOLD = {
    "segment-invalid": "discarded segment %s of sender %s as invalid: %s; do all participants have the same preset, or "
    "wire_format of segmentation?",
    "segment-discarded": "discarded segment %s of sender %s, %s",
    "hash-mismatch": "payload %s is invalid, it does not have its hash, last segment by sender %s: %s",
    "false-segments": "message %s of sender %s: %s false segments were set aside",
    "message-dropped": "partial message %s of sender %s was dropped: %s",
    "message-not-held": "send %s of sender %s was released but is not held%s",
}
_OF_HASHES = ("hash-mismatch", "false-segments", "message-dropped")


def count_dropped(reason: str, peer_log: PeerLog) -> None:
    """Counts a message that the machine dropped, and tells what the first ones most likely mean."""
    name = f"dropped_{reason.replace('-', '_')}"
    peer_log.count(name)
    if reason == "undecodable" and peer_log.counts[name] == UNREADABLE_TOLD:
        peer_log.tell(
            "%d messages here are no SDS messages of this channel's wire: do all participants have the same key, "
            "cipher and preset, or wire_format?",
            UNREADABLE_TOLD,
        )


def tell_fault(fault: MessageFault, peer_log: PeerLog) -> None:
    """Tells one fault; names and texts of peers are quoted, hashes are not theirs to choose."""
    name = fault.name if fault.kind in _OF_HASHES else quoted(fault.name)
    if fault.kind == "message-not-held":
        peer_log.count("released_without_payload")
    peer_log.tell(_TOLD[fault.kind], name, quoted(fault.sender_id), one_line(fault.detail))
