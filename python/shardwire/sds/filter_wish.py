"""When our filter should be heard soon, so that others can name what we lack."""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict

from shardwire.config import SdsConfig
from shardwire.sds.anti_entropy import NAMED_AGAIN_MS, SETTLE_MS_MAX
from shardwire.sds.bloom_schedule import BloomSchedule
from shardwire.sds.feedback import feedback_delay_ms
from shardwire.sds.participants import Participants
from shardwire.sds.repair import Repair

# Members whose last filter is remembered.
FILTERS_REMEMBERED_MAX = 1_000
# A filter of ours that nothing was added to is said on request so often: the first ones may not have been heard.
UNCHANGED_MAX = 3


class FilterWish:
    """Makes a sync with our filter due when something shows that we may lack more than we know of.

    Two things do: a history that names what is missing, and another participant's filter with bits that ours has
    not. What is on its way or repaired at once needs no filter, so both must still hold after two acknowledgement
    timeouts. Another participant's filter without a bit more than ours asks for all that ours would, and what
    differs for good is not talked about for ever: the same filter, heard again with nothing new here, is no sign.
    """

    __slots__ = (
        "_bloom",
        "_interval_ms",
        "_participants",
        "_prompt",
        "_repair",
        "_rng",
        "_seen",
        "_settle_ms",
        "_window_ms",
        "_witness",
        "due_ms",
    )

    def __init__(
        self,
        config: SdsConfig,
        prompt: bool,
        bloom: BloomSchedule,
        repair: Repair,
        participants: Participants,
        rng: random.Random,
    ) -> None:
        # Whether a sync may be sent for this, or the periodic ones must do.
        self._prompt = prompt
        self._bloom = bloom
        self._repair = repair
        self._participants = participants
        self._rng = rng
        self._settle_ms = min(2 * config.acknowledgement_timeout_ms, SETTLE_MS_MAX)
        self._window_ms = config.acknowledgement_timeout_ms // 4
        self._interval_ms = max(config.bloom_interval_ms, NAMED_AGAIN_MS)
        # By member, what its last filter was, and how many ids ours held then.
        self._seen: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        # The newest filter that holds what ours does not.
        self._witness: bytes | None = None
        self.due_ms: int | None = None

    def on_missing(self, monotonic_ms: int) -> None:
        """A history names something that is not here."""
        if self.due_ms is None and self._prompt:
            members = len(self._participants.heard_ms)
            self.due_ms = monotonic_ms + self._settle_ms + feedback_delay_ms(self._rng, self._window_ms, members)

    def on_filter(self, bloom_filter: bytes, sender_id: str, monotonic_ms: int) -> None:
        """`sender_id` said its filter just now."""
        if len(bloom_filter) != self._bloom.filter.size_bytes:
            return
        seen = hashlib.sha256(bloom_filter).digest(), self._bloom.count
        if self._seen.get(sender_id) == seen:
            return
        self._seen[sender_id] = seen
        self._seen.move_to_end(sender_id)
        if len(self._seen) > FILTERS_REMEMBERED_MAX:
            self._seen.popitem(last=False)
        if self._holds_more(bloom_filter):
            self._witness = bloom_filter
            self.on_missing(monotonic_ms)
        else:
            self._cancel()

    def take(self, monotonic_ms: int) -> bool:
        """Whether our filter should leave now; called when it is due."""
        lacking = self._repair.requests_held or (self._witness is not None and self._holds_more(self._witness))
        if not lacking or self._bloom.unchanged >= UNCHANGED_MAX:
            self._cancel()
            return False
        said_ms = self._bloom.last_ms
        if said_ms is not None and monotonic_ms - said_ms < self._interval_ms:
            self.due_ms = said_ms + self._interval_ms
            return False
        self._cancel()
        return True

    def _cancel(self) -> None:
        self.due_ms = None
        self._witness = None

    def _holds_more(self, bloom_filter: bytes) -> bool:
        ours = int.from_bytes(self._bloom.filter.to_bytes(), "big")
        return bool(int.from_bytes(bloom_filter, "big") & ~ours)
