"""What the machine of a channel finds wrong with what peers send, in words for the log."""

from __future__ import annotations

from shardwire._native import MessageFault
from shardwire.peer_log import PeerLog
from shardwire.quoting import one_line, quoted


def tell_fault(fault: MessageFault, peer_log: PeerLog) -> None:
    """Tells one fault; names and texts of peers are quoted."""
    name, sender, detail = quoted(fault.name), quoted(fault.sender_id), one_line(fault.detail)
    match fault.kind:
        case "segment-invalid":
            peer_log.tell("discarded a segment of sender %s as invalid: %s", sender, detail)
        case "segment-discarded":
            peer_log.tell("discarded segment %s of sender %s, %s", name, sender, detail)
        case "hash-mismatch":
            peer_log.tell(
                "payload %s is invalid, it does not have its hash, last segment by sender %s: %s",
                fault.name,
                sender,
                detail,
            )
        case "false-segments":
            peer_log.tell("message %s of sender %s: %s false segments were set aside", fault.name, sender, detail)
        case "message-dropped":
            peer_log.tell("partial message %s of sender %s was dropped: %s", fault.name, sender, detail)
        case "message-not-held":
            peer_log.count("released_without_payload")
            peer_log.tell("send %s of sender %s was released but is not held", name, sender)
