"""Sends of this participant that have not left, or not wholly."""

from __future__ import annotations

from collections import deque

from shardwire._native import OutgoingContent, OutgoingSend, QueueCounts


class DispatchQueue(QueueCounts):
    """Which content leaves next.

    A send goes out whole while it is young, so that what follows it can name it; one that has been under way for
    longer than the acknowledgement timeout shares its turns with sends that have not begun: fresh small messages are
    not stuck behind a large one.
    """

    __slots__ = ("_fresh_turn", "_young_ms", "fresh", "started")

    def __init__(self, acknowledgement_timeout_ms: int) -> None:
        self._young_ms = acknowledgement_timeout_ms
        self.fresh: deque[OutgoingSend] = deque()
        self.started: deque[OutgoingSend] = deque()
        self._fresh_turn = False

    def add(self, send: OutgoingSend) -> None:
        """Queues all contents of a new send."""
        contents = send.contents
        self.contents += len(contents)
        for content in contents:
            self.bytes += content.size_bytes
        self.fresh.append(send)

    def take_back(self, send: OutgoingSend, monotonic_ms: int) -> None:
        """Restores the queued contents of a stored send."""
        for content in send.contents:
            if content.queued:
                self._enter(content)
        if send.waits:
            send.first_ms = monotonic_ms
            (self.started if send.dispatched else self.fresh).append(send)

    def next(self, first: bool, further: bool, monotonic_ms: int) -> OutgoingContent | None:
        """Takes the next content that may leave: a send's first one, a further one, or either."""
        started = self._head(self.started) if further else None
        fresh = self._head(self.fresh) if first else None
        if started is not None and fresh is not None:
            young = monotonic_ms - started.first_ms < self._young_ms
            if young or not self._fresh_turn:
                fresh = None
            else:
                started = None
            self._fresh_turn = not young and started is not None
        if fresh is not None:
            self.fresh.popleft()
            fresh.first_ms = monotonic_ms
            content = fresh.queue.popleft()
            if fresh.queue:
                self.started.append(fresh)
        elif started is not None:
            content = started.queue.popleft()
            if not started.queue:
                self.started.popleft()
            elif monotonic_ms - started.first_ms >= self._young_ms:
                self.started.rotate(-1)
        else:
            return None
        self._leave(content)
        return content

    def next_fresh(self) -> OutgoingSend | None:
        """The send that begins next."""
        return self._head(self.fresh)

    def put_back(self, content: OutgoingContent) -> None:
        """A first transmission failed: the content waits at the head of its send."""
        send = content.send
        waiting = send.waits
        send.queue.appendleft(content)
        self._enter(content)
        if not waiting:
            self.started.appendleft(send)

    def clear(self, send: OutgoingSend) -> None:
        """Drops what is queued of `send`."""
        for content in send.queue:
            self._leave(content)
        send.queue.clear()

    def _enter(self, content: OutgoingContent) -> None:
        content.queued = True
        self.contents += 1
        self.bytes += content.size_bytes

    def _leave(self, content: OutgoingContent) -> None:
        content.queued = False
        self.contents -= 1
        self.bytes -= content.size_bytes

    def _head(self, queue: deque[OutgoingSend]) -> OutgoingSend | None:
        while queue:
            if queue[0].waits:
                return queue[0]
            queue.popleft()
        return None
