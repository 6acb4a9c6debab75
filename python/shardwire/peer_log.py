"""What peers send, in the log: every one at DEBUG, and now and then a warning, however many there are."""

from __future__ import annotations

import logging
from collections.abc import Callable

# Between two warnings of one channel.
WARNING_INTERVAL_MS = 60_000


class PeerLog:
    """Tells what is wrong with what peers send, without letting them fill the log.

    The first is told at WARNING. For a minute from then on each further one is told at DEBUG, and the next warning says
    how many those were. Texts of peers among the arguments go through `shardwire.quoting` first.

    Args:
        logger: Where the lines go.
        now_ms: The time of a clock that goes on evenly.
        channel: Begins each line, say "channel 'photos': ".

    Attributes:
        counts: How often each thing was counted.
    """

    def __init__(self, logger: logging.Logger, now_ms: Callable[[], int], channel: str = "") -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._channel = channel
        self._warned_ms: int | None = None
        self._untold = 0
        self.counts: dict[str, int] = {}

    def count(self, name: str) -> None:
        """Counts one more, for `ReliableChannel.stats()`."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def tell(self, text: str, *arguments: object, error: BaseException | None = None) -> None:
        """Tells one thing.

        Args:
            text: A format of `logging`.
            arguments: Its arguments.
            error: Its traceback goes with the line.
        """
        now_ms, warned_ms = self._now_ms(), self._warned_ms
        if warned_ms is not None and 0 <= now_ms - warned_ms < WARNING_INTERVAL_MS:
            self._untold += 1
            if self._logger.isEnabledFor(logging.DEBUG):
                self._logger.debug(f"%s{text}", self._channel, *arguments, exc_info=error)
            return
        more = f" ({self._untold} more since the last warning)" if self._untold else ""
        self._logger.warning(f"%s{text}%s", self._channel, *arguments, more, exc_info=error)
        self._warned_ms, self._untold = now_ms, 0
