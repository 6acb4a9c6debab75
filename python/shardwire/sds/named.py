"""Sends of which nothing is here, only ids in histories, each until it counts as lost."""

from __future__ import annotations

from collections import OrderedDict

from shardwire._native import IncomingSend
from shardwire.config import SdsConfig
from shardwire.sds.resend_period import resend_period_ms


class NamedSends:
    """They wait for three periods, so they stand in three queues, each in the order of its deadlines.

    What is named before anything else was heard of its sender may be older than this participant. In the first that
    this participant hears at all it most likely is: it is waited for while a sender that lost it lately would send it
    again, and a store that does not have it is believed. Later, or in a later life, a partition or a crash may as well
    have kept it away, and a store may have had the same one: it is waited for as long as a repair takes.

    Attributes:
        always: Those that are not older, for which the configured time holds.
        lost_ms: That time; 0 where they wait for ever.
        returned: Whether this participant heard others in an earlier life.
    """

    __slots__ = ("_at_first", "_at_first_ms", "_before", "_before_ms", "_first_ms", "always", "lost_ms", "returned")

    def __init__(self, config: SdsConfig) -> None:
        self.lost_ms = config.timeout_for_lost_messages_ms or 0
        retries_ms = sum(
            resend_period_ms(config, attempts) for attempts in range(min(config.max_retransmissions, 100) + 1)
        )
        self._before_ms = min(self.lost_ms or (1 << 62), 2 * config.repair_t_max_ms)
        self._at_first_ms = min(self._before_ms, retries_ms)
        # How long after its first receipt a participant is at its first; for ever where none but a store can help.
        self._first_ms = config.acknowledgement_timeout_ms if config.enable_repair else 1 << 62
        self.returned = False
        self.always: OrderedDict[str, IncomingSend] = OrderedDict()
        self._before: OrderedDict[str, IncomingSend] = OrderedDict()
        self._at_first: OrderedDict[str, IncomingSend] = OrderedDict()

    def add(self, send: IncomingSend, monotonic_ms: int, since_first_ms: int = 1 << 62) -> None:
        """`send` is waited for from now on; this participant's first receipt was `since_first_ms` ago."""
        if not send.from_before:
            queue, period_ms = self.always, self.lost_ms
        elif self.returned or since_first_ms > self._first_ms:
            queue, period_ms = self._before, self._before_ms
        else:
            queue, period_ms = self._at_first, self._at_first_ms
        if period_ms:
            send.deadline_ms = monotonic_ms + period_ms
            queue[send.key] = send

    def discard(self, key: str) -> None:
        """Something of it came, or nothing waits for it."""
        for queue in (self.always, self._before, self._at_first):
            if queue.pop(key, None) is not None:
                return

    def is_store_believed(self, send: IncomingSend) -> bool:
        """Whether it is lost as soon as a store does not have it."""
        return send.key in self._at_first

    def next_ms(self) -> int | None:
        """When the next one is lost."""
        due_ms = None
        for queue in (self.always, self._before, self._at_first):
            if queue:
                at_ms = next(iter(queue.values())).deadline_ms or 0
                if due_ms is None or at_ms < due_ms:
                    due_ms = at_ms
        return due_ms

    def take_lost(self, monotonic_ms: int) -> list[IncomingSend]:
        """Those whose time is over."""
        lost: list[IncomingSend] = []
        for queue in (self.always, self._before, self._at_first):
            while queue and (next(iter(queue.values())).deadline_ms or 0) <= monotonic_ms:
                lost.append(queue.popitem(last=False)[1])
        return lost
