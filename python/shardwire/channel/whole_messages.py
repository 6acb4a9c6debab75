"""Whole messages until SDS releases them."""

from __future__ import annotations

from shardwire._native import is_rival, keccak256, rival_name
from shardwire.channel.records import payload_key, split_payload_key
from shardwire.channel.shared_bytes import SharedBytes
from shardwire.peer_log import PeerLog
from shardwire.quoting import quoted


class WholeMessages:
    """Keeps each under a name that no other one has while it is stored.

    Two messages may come under one sender and send, of which one is forged. Nothing tells which: both are
    delivered.

    Args:
        shared: Keeps their bytes.
        peer_log: Told what is released and not held.

    Attributes:
        size_bytes: Of all that wait.
    """

    def __init__(self, shared: SharedBytes, peer_log: PeerLog) -> None:
        self._shared = shared
        self._peer_log = peer_log
        # (sender id, send id) -> payload, its hex hash, and the send id that it is stored under.
        self._waiting: dict[tuple[str, str], tuple[bytes, str, str]] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: tuple[str, str]) -> bool:
        return name in self._waiting

    def keep(
        self,
        sender_id: str,
        send_id: str,
        payload: bytes,
        payload_hash: bytes,
        data_count: int | None,
        last: tuple[str, int | None, bytes] | None,
    ) -> str | None:
        """Keeps a message until `release` and the end of its delivery; the arguments are those of `keep_payload`.

        Returns:
            The send id by which SDS is told of it; None where this very message waits for its delivery already.
        """
        told = stored = send_id
        key = payload_key(sender_id, send_id)
        if self._shared.keeps_payload(key):
            stored = rival_name(send_id, sender_id, payload)
            # The name of a rival is that of its content.
            if is_rival(send_id) or self._shared.keeps_payload(payload_key(sender_id, stored)):
                return None
            self._shared.drop_segments(key, payload_hash)
            if (sender_id, send_id) in self._waiting:
                # The send is released with the other one.
                told = stored
        self._waiting[sender_id, told] = (payload, payload_hash.hex(), stored)
        self.size_bytes += len(payload)
        self._shared.keep_payload(payload_key(sender_id, stored), payload, payload_hash, data_count, last)
        return told

    def release(self, sender_id: str, send_id: str) -> tuple[bytes, str, str] | None:
        """The payload, its hex hash and the send id that it is stored under; None where it is not held."""
        released = self._waiting.pop((sender_id, send_id), None)
        if released is None:
            self._peer_log.count("released_without_payload")
            name, sender = quoted(send_id), quoted(sender_id)
            self._peer_log.tell("send %s of sender %s was released but is not held", name, sender)
        else:
            self.size_bytes -= len(released[0])
        return released

    def restore(self, payloads: dict[bytes, bytes], queued: set[bytes]) -> None:
        """Takes back the `PAYLOAD` records of messages that no delivery in `queued` holds."""
        for key, payload in payloads.items():
            if key not in queued:
                sender_id, stored = split_payload_key(key)
                # What SDS was told by another name was released at once.
                told = stored.rpartition("\0")[0] if is_rival(stored) else stored
                self._waiting[sender_id, told] = (payload, keccak256(payload).hex(), stored)
                self.size_bytes += len(payload)
