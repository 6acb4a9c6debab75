"""SDS-R: asking the channel for missing messages, and answering for others (SDS, SDS-Repair)."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice

from shardwire._native import HistoryEntry, LogEntries, Originals, OutgoingContent, farmhash64
from shardwire.config import SdsConfig, SdsWireFormat
from shardwire.sds.identity import entry_bytes

# SDS-R: a message carries at most three requests; a repair buffer holds at most 1,000 entries.
REQUESTS_PER_MESSAGE_MAX = 3
REPAIR_BUFFER_MAX = 1_000
# Original messages kept to answer with, over all of them.
ORIGINAL_BYTES_MAX = 32 << 20
# A message is asked for so often in the channel by syncs that leave for it alone; then by what leaves anyway.
URGENT_ROUNDS = 2
# It is asked for every T_max so often; then at distances that double with every second request that found no answer.
STEADY_ROUNDS = 4
# Beyond this distance it is not asked for again.
SILENCE_MS_MAX = 24 * 3_600_000
# Syncs sent for requests alone keep this distance, a shorter one where T_min is shorter: a peer that invents ids must
# not make the others talk.
REPAIR_SYNC_INTERVAL_MS = 1_000
REPAIR_SYNC_INTERVAL_MS_MIN = 100


def repair_hash(text: str) -> int:
    """The first eight bytes of SHA-256, big-endian, as @waku/sds computes it."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


RepairHash = Callable[[str], int]
# nim-sds takes Nim's `hash(string)` and works with absolute values. Derived from its source; never met as a live peer.
REPAIR_HASHES: Mapping[SdsWireFormat, RepairHash] = {"spec": repair_hash, "nim": farmhash64}


def request_offset_ms(
    participant: str, message_id: str, t_min_ms: int, t_max_ms: int, hashed: RepairHash = repair_hash
) -> int:
    """T_req - now."""
    return abs(hashed(participant + message_id)) % (t_max_ms - t_min_ms) + t_min_ms


def response_offset_ms(
    participant: str, sender_id: str, message_id: str, t_max_ms: int, hashed: RepairHash = repair_hash
) -> int:
    """T_resp - now: 0 for the original sender."""
    if participant == sender_id:
        return 0
    return abs(hashed(participant) ^ hashed(sender_id)) * abs(hashed(message_id)) % t_max_ms


def in_response_group(
    participant: str, sender_id: str, message_id: str, groups: int, hashed: RepairHash = repair_hash
) -> bool:
    """Whether `participant` answers for a message of `sender_id`; nobody does where the sender is unknown."""
    if not sender_id:
        return False
    if groups <= 1 or participant == sender_id:
        return True
    return abs(hashed(participant + message_id)) % groups == abs(hashed(sender_id + message_id)) % groups


class RepairBuffer:
    """Entries by id, each with a moment; when full, the one with the latest moment goes."""

    __slots__ = ("_order", "_urgent", "by_id", "changed")

    def __init__(self) -> None:
        self.by_id: dict[str, tuple[int, HistoryEntry]] = {}
        self._order: list[tuple[int, str]] = []
        # Those for which a message may leave of its own.
        self._urgent: list[tuple[int, str]] = []
        # For poll_persist.
        self.changed: dict[str, None] = {}

    def put(self, entry: HistoryEntry, at_ms: int, *, urgent: bool = True) -> None:
        """Adds `entry`, or moves it to another moment; one that is not urgent waits for what leaves anyway."""
        message_id = entry.message_id
        self.remove(message_id)
        self.by_id[message_id] = (at_ms, entry)
        insort(self._order, (at_ms, message_id))
        if urgent:
            insort(self._urgent, (at_ms, message_id))
        self.changed[message_id] = None
        if len(self._order) > REPAIR_BUFFER_MAX:
            self.remove(self._order[-1][1])

    def remove(self, message_id: str) -> None:
        known = self.by_id.pop(message_id, None)
        if known is not None:
            name = (known[0], message_id)
            del self._order[bisect_left(self._order, name)]
            place = bisect_left(self._urgent, name)
            if place < len(self._urgent) and self._urgent[place] == name:
                del self._urgent[place]
            self.changed[message_id] = None

    def next_ms(self) -> int | None:
        """The moment of the first urgent entry."""
        return self._urgent[0][0] if self._urgent else None

    def due(self, monotonic_ms: int, count: int) -> list[HistoryEntry]:
        """Up to `count` entries whose moment has come, urgent ones before the others, the earliest first."""
        due = [name for name in self._urgent[:count] if name[0] <= monotonic_ms]
        if len(due) < count:
            others = (name for name in self._order[: 2 * count] if name not in due and name[0] <= monotonic_ms)
            due += islice(others, count - len(due))
        return [self.by_id[message_id][1] for _, message_id in due]


class Repair:
    """The outgoing repair buffer (what we ask for) and the incoming one (what we answer).

    A request that another participant makes first is put off, not forgotten, and one that found no answer is made
    again after T_max: both implementations in the field ask once at most. What nobody answers is asked for less and
    less often, and once more each time that somebody names it again.
    """

    __slots__ = (
        "_asked",
        "_config",
        "_entries",
        "_hashed",
        "_heard_again_ms",
        "_me",
        "_requested_ms",
        "_sync_not_before_ms",
        "_syncs",
        "answers",
        "on_news",
        "on_silence",
        "originals",
        "own",
        "requests",
        "upcoming",
    )

    def __init__(self, config: SdsConfig, sender_id: str, entries: LogEntries, *, syncs: bool) -> None:
        self._syncs = syncs
        self._config = config
        self._entries = entries
        self._hashed = REPAIR_HASHES[config.wire_format]
        self._me = sender_id
        self.originals = Originals(ORIGINAL_BYTES_MAX, entries)
        # Contents of ours that are not finished yet keep their bytes themselves.
        self.own: Mapping[str, OutgoingContent] = {}
        # Missing for less than T_min: most of them come before anything need be computed. In order of time.
        self.upcoming: OrderedDict[str, tuple[int, HistoryEntry]] = OrderedDict()
        self._sync_not_before_ms = 0
        # When others asked for what is held here and was not heard again since.
        self._requested_ms: dict[str, int] = {}
        # When what is held here was last heard again.
        self._heard_again_ms: dict[str, int] = {}
        # Called where something new is missing.
        self.on_news: Callable[[int], None] = lambda _: None
        # Called with a message that is asked for no more.
        self.on_silence: Callable[[str], None] = lambda _: None
        # How often each message was asked for, by us and by anyone: a stranger's requests silence ours no sooner.
        self._asked: dict[str, tuple[int, int]] = {}
        self.requests = RepairBuffer()
        self.answers = RepairBuffer()

    def on_missing(self, entry: HistoryEntry, monotonic_ms: int) -> None:
        """Asks for `entry` at T_req unless it comes before."""
        if self._config.enable_repair and entry.message_id not in self.requests.by_id:
            self.on_news(monotonic_ms)
            self.upcoming.setdefault(entry.message_id, (monotonic_ms, entry))

    @property
    def requests_held(self) -> int:
        """Missing messages that are or will be asked for."""
        return len(self.requests.by_id) + len(self.upcoming)

    def on_found(self, message_id: str) -> None:
        """It came, or is no longer waited for."""
        self._asked.pop(message_id, None)
        if self.upcoming.pop(message_id, None) is None:
            self.requests.remove(message_id)

    def without_haste(self, message_id: str) -> None:
        """What is missing is asked for by what leaves anyway."""
        ours, all_asked = self._asked_for(message_id)
        self._asked[message_id] = (ours, max(all_asked, URGENT_ROUNDS))

    def on_named_again(self, message_id: str, monotonic_ms: int) -> None:
        """Somebody names what is asked for: whoever does may hold it, so it is asked for as soon as at first."""
        if self._asked_for(message_id)[0] > STEADY_ROUNDS and message_id in self.requests.by_id:
            at_ms, entry = self.requests.by_id[message_id]
            soon_ms = monotonic_ms + self._offset_ms(message_id)
            if soon_ms < at_ms:
                self._ask_at(entry, soon_ms)

    def on_message(self, message_id: str) -> None:
        """The message was heard, from whomever: it need not be answered any more."""
        self.answers.remove(message_id)

    def settle(self, monotonic_ms: int) -> None:
        """Gives those that have been missing for T_min their T_req."""
        while self.upcoming:
            since_ms, entry = next(iter(self.upcoming.values()))
            if since_ms + self._config.repair_t_min_ms > monotonic_ms:
                return
            del self.upcoming[entry.message_id]
            self._ask_at(entry, since_ms + self._offset_ms(entry.message_id))

    def next_request_ms(self) -> int | None:
        """When a request may be due: at the earliest T_req, or when one must be given."""
        at_ms = self.requests.next_ms()
        if self.upcoming:
            upcoming_ms = next(iter(self.upcoming.values()))[0] + self._config.repair_t_min_ms
            at_ms = upcoming_ms if at_ms is None else min(at_ms, upcoming_ms)
        return None if at_ms is None else max(at_ms, self._sync_not_before_ms)

    def on_sync_for_requests(self, monotonic_ms: int) -> None:
        """A sync left for requests alone: the next such one waits."""
        interval_ms = max(REPAIR_SYNC_INTERVAL_MS_MIN, min(REPAIR_SYNC_INTERVAL_MS, self._config.repair_t_min_ms))
        self._sync_not_before_ms = monotonic_ms + interval_ms

    def on_request(self, entry: HistoryEntry, monotonic_ms: int) -> None:
        """Another participant asks for `entry`."""
        if not self._config.enable_repair:
            return
        message_id = entry.message_id
        if message_id in self.upcoming:
            return
        if message_id in self.requests.by_id:
            at_ms, wanted = self.requests.by_id[message_id]
            ours, all_asked = self._asked_for(message_id)
            self._asked[message_id] = (ours, all_asked + 1)
            self._ask_at(wanted, max(at_ms, monotonic_ms + self._period_ms(message_id)))
            return
        held = self._entries.get(message_id)
        if held is None or self._was_answered(message_id, monotonic_ms):
            return
        _note(self._requested_ms, message_id, monotonic_ms)
        if message_id in self.answers.by_id or self._original(message_id) is None:
            return
        # The request may not name the sender, or a false one; who holds the message knows it.
        sender_id = held.sender_id
        hashed = self._hashed
        if in_response_group(self._me, sender_id, message_id, self._config.repair_groups, hashed):
            offset_ms = response_offset_ms(self._me, sender_id, message_id, self._config.repair_t_max_ms, hashed)
            self.answers.put(entry, monotonic_ms + offset_ms)

    def _was_answered(self, message_id: str, monotonic_ms: int) -> bool:
        """Whether the answer overtook the request."""
        heard_ms = self._heard_again_ms.get(message_id)
        return heard_ms is not None and monotonic_ms - heard_ms < self._config.acknowledgement_timeout_ms // 4

    def heard_again(self, message_id: str, monotonic_ms: int) -> bool:
        """A message that is held came again; whether it answers a request that was heard, true once a request."""
        _note(self._heard_again_ms, message_id, monotonic_ms)
        self.answers.remove(message_id)
        requested_ms = self._requested_ms.pop(message_id, None)
        return requested_ms is not None and monotonic_ms - requested_ms <= self._config.repair_t_max_ms

    def take_requests(self, monotonic_ms: int, budget_bytes: int) -> list[HistoryEntry]:
        """Requests that ride on the message that leaves now; each is made again later if nothing comes."""
        taken: list[HistoryEntry] = []
        if not self.upcoming and not self.requests.by_id:
            return taken
        self.settle(monotonic_ms)
        for entry in self.requests.due(monotonic_ms, REQUESTS_PER_MESSAGE_MAX):
            budget_bytes -= entry_bytes(entry)
            if budget_bytes < 0:
                break
            taken.append(entry)
            self._ask_again_later(entry, monotonic_ms)
        return taken

    def take_answer(self, monotonic_ms: int) -> tuple[str, bytes] | None:
        """The next answer that is due, as the original bytes."""
        while due := self.answers.due(monotonic_ms, 1):
            message_id = due[0].message_id
            self.answers.remove(message_id)
            data = self._original(message_id)
            if data is not None:
                return message_id, data
        return None

    def _original(self, message_id: str) -> bytes | None:
        content = self.own.get(message_id)
        if content is not None and content.wire is not None:
            return content.wire
        return self.originals.get(message_id)

    def on_send_finished(self, content: OutgoingContent) -> None:
        """A content of a send that is no longer resent: its bytes are kept for repair only."""
        if content.wire is not None and not content.in_flight:
            message_id = content.message_id
            if self._config.enable_repair:
                self.originals.keep(message_id, content.wire, stored=self.own.get(message_id) is content)
            else:
                self.originals.changed[message_id] = None
            content.wire = None

    def _ask_again_later(self, entry: HistoryEntry, monotonic_ms: int) -> None:
        message_id = entry.message_id
        ours, all_asked = self._asked_for(message_id)
        self._asked[message_id] = (ours + 1, all_asked + 1)
        wait_ms = self._period_ms(message_id) << max(0, ours + 1 - STEADY_ROUNDS) // 2
        if wait_ms <= SILENCE_MS_MAX:
            self._ask_at(entry, monotonic_ms + wait_ms)
        else:
            self.on_silence(message_id)

    def _ask_at(self, entry: HistoryEntry, at_ms: int) -> None:
        # Where nothing leaves by itself, there is nothing to ride on.
        urgent = not self._syncs or self._asked_for(entry.message_id)[1] < URGENT_ROUNDS
        self.requests.put(entry, at_ms, urgent=urgent)

    def _asked_for(self, message_id: str) -> tuple[int, int]:
        return self._asked.get(message_id, (0, 0))

    def _period_ms(self, message_id: str) -> int:
        return self._config.repair_t_max_ms + self._offset_ms(message_id)

    def _offset_ms(self, message_id: str) -> int:
        t_min_ms, t_max_ms = self._config.repair_t_min_ms, self._config.repair_t_max_ms
        return request_offset_ms(self._me, message_id, t_min_ms, t_max_ms, self._hashed)


def _note(moments: dict[str, int], message_id: str, monotonic_ms: int) -> None:
    """Notes a moment; beyond `REPAIR_BUFFER_MAX` of them the oldest goes."""
    moments.pop(message_id, None)
    moments[message_id] = monotonic_ms
    if len(moments) > REPAIR_BUFFER_MAX:
        del moments[next(iter(moments))]
