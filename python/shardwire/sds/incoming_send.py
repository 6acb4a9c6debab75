"""One send of another participant, until it is delivered."""

from __future__ import annotations

from collections.abc import Sequence

from shardwire.sds.local_log import LogEntry


class IncomingSend:
    """A send that is not delivered: named only, incomplete, or waiting for the sends it follows.

    One is made for every message received, and most live for one call: what is rarely set is a class attribute.

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

    content_count: int | None = None
    contents_needed: int | None = None
    reconstructed = False
    waits_for: dict[str, IncomingSend] | None = None
    dependents: list[IncomingSend] | None = None
    missing: dict[str, None] | None = None
    lost = False
    from_before = False
    siblings_reported = False
    deadline_ms: int | None = None
    history: Sequence[str] = ()

    def __init__(self, key: str, send_id: str, sender_id: str, news_ms: int) -> None:
        self.key = key
        self.send_id = send_id
        self.sender_id = sender_id
        self.news_ms = news_ms
        self.contents: list[LogEntry] = []
