"""One send of another participant, until it is delivered."""

from __future__ import annotations

from collections.abc import Sequence

from shardwire._native import HistoryEntry
from shardwire.sds.local_log import LogEntry


class IncomingSend:
    """A send that is not delivered: named only, incomplete, or waiting for the sends it follows.

    Attributes:
        key: The send id that its message ids carry; the message id where they carry none.
        send_id: As the channel calls it.
        sender_id: Who sent it; "" while it is only named.
        history: The causal history its contents carry.
        contents: What is held of it.
        content_count: How many contents it announces; None while unknown.
        reconstructed: Whether the channel has its message.
        waits_for: Sends that must be released first.
        dependents: Sends that wait for this one.
        missing: Its message ids that are tracked as missing.
        from_before: Whether it may be older than this participant's first receipt.
        lost: Whether it was declared lost: nothing waits for it any more.
        news_ms: When it was named first or a content of it came last.
    """

    __slots__ = (
        "content_count",
        "contents",
        "contents_needed",
        "deadline_ms",
        "dependents",
        "from_before",
        "history",
        "key",
        "lost",
        "missing",
        "news_ms",
        "reconstructed",
        "send_id",
        "sender_id",
        "siblings_reported",
        "waits_for",
    )

    def __init__(self, key: str, sender_id: str, news_ms: int) -> None:
        self.key = key
        self.send_id = key
        self.sender_id = sender_id
        self.history: Sequence[HistoryEntry] = ()
        self.contents: list[LogEntry] = []
        self.content_count: int | None = None
        self.contents_needed: int | None = None
        self.reconstructed = False
        self.waits_for: dict[str, IncomingSend] | None = None
        self.dependents: list[IncomingSend] | None = None
        self.missing: dict[str, None] | None = None
        self.lost = False
        self.from_before = False
        self.siblings_reported = False
        self.news_ms = news_ms
        self.deadline_ms: int | None = None
