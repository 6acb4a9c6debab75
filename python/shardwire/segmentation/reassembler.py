"""Segments to payload: the native state machine, with the log that the specification asks for."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from shardwire._native import ReassemblerCore, SegmentDiscarded, SegmentStored, SetDropped
from shardwire.config import SegmentationConfig
from shardwire.config.checks import INTEGER_MAX, INTEGER_MIN
from shardwire.errors import ConfigError
from shardwire.peer_log import PeerLog
from shardwire.quoting import one_line, quoted
from shardwire.segmentation.outcomes import ReceiveOutcome
from shardwire.segmentation.parameters import native_parameters

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

# Bytes of a hash that a log shows.
_PREFIX_BYTES = 4


class Reassembler:
    """Gathers segments until a payload is complete, within `ReassemblyLimits`.

    It has one owner, reads no clock and does no I/O. After each `receive`, the sets that were evicted for it wait in
    `poll_dropped`, what has to be saved in `poll_persist`.
    """

    def __init__(self, config: SegmentationConfig | None = None) -> None:
        """Makes an empty reassembler.

        Args:
            config: The wire, the code tried first and the limits; the default configuration where it is None.

        Raises:
            ConfigError: What was given is no `SegmentationConfig`, or its settings do not go together.
        """
        config = SegmentationConfig() if config is None else config
        parameters = native_parameters(config)
        self._now_ms = 0
        # What is invalid is a warning once a minute of the time that `receive` is given.
        self._log = PeerLog(logger, lambda: self._now_ms)
        limits = config.limits
        self._core = ReassemblerCore(
            parameters,
            sets_max=limits.sets_max,
            sets_per_sender_max=limits.sets_per_sender_max,
            buffered_bytes_max=limits.buffered_bytes_max,
            buffered_bytes_per_sender_max=limits.buffered_bytes_per_sender_max,
            unauthenticated_share=limits.unauthenticated_share,
            candidates_per_slot_max=limits.candidates_per_slot_max,
            completed_remembered_max=limits.completed_remembered_max,
            timeout_ms=limits.timeout_ms,
            work_budget=limits.work_budget,
        )

    def __reduce__(self) -> NoReturn:
        # A copy would put the same segments together, and each would miss what the other took.
        raise TypeError("a Reassembler has one owner, and cannot be copied or pickled: make another one")

    def receive(
        self,
        segment: Buffer,
        *,
        now_ms: int,
        sender: str | None = None,
        authenticated: bool = False,
        message_key: Buffer | None = None,
    ) -> ReceiveOutcome:
        """Takes one transport message (segmentation 002, Receiving).

        Args:
            segment: The bytes as they came; whatever they contain, nothing is raised for it. A `bytes` object is kept
                for as long as its payload is needed, any other buffer is copied.
            now_ms: The caller's clock in milliseconds, a signed number of 64 bits.
            sender: Who sent it, as far as known: quotas are kept by sender.
            authenticated: Whether that identity is proven; such a sender evicts its own segments only.
            message_key: Tells two sends of the same payload apart; sets without one may mix senders.

        Returns:
            `SegmentStored`, `PayloadReconstructed`, `SegmentDiscarded` or `SetDropped`.

        Raises:
            TypeError: An argument is of another type: names it.
            ConfigError: `now_ms` is out of range, or `sender` cannot be encoded: names the value.
        """
        try:
            outcome = self._core.receive(
                segment, now_ms=now_ms, sender=sender, authenticated=authenticated, message_key=message_key
            )
        except (TypeError, OverflowError, UnicodeEncodeError):
            _refuse_moment(now_ms)
            _refuse_origin(sender, authenticated, message_key)
            raise
        if isinstance(outcome, SegmentDiscarded):
            if outcome.reason in ("Invalid", "Undecodable"):
                self._now_ms = now_ms
                self._log.tell(
                    "discarded a segment of sender %s as invalid: %s", quoted(sender), one_line(outcome.detail)
                )
        elif isinstance(outcome, SetDropped):
            self._now_ms = now_ms
            self._log_mismatch(outcome.entire_message_hash, sender, "the set is dropped")
        elif isinstance(outcome, SegmentStored) and outcome.hash_mismatch:
            self._now_ms = now_ms
            self._log_mismatch(outcome.entire_message_hash, sender, "more segments are awaited")
        return outcome

    def _log_mismatch(self, entire_message_hash: bytes, sender: str | None, consequence: str) -> None:
        self._log.tell(
            "payload %s is invalid, it does not have its hash, last segment by sender %s: %s",
            entire_message_hash[:_PREFIX_BYTES].hex(),
            quoted(sender),
            consequence,
        )

    def expire(self, now_ms: int) -> list[SetDropped]:
        """Drops the sets that got no new segment for `timeout_ms` and gives their bytes back to the quotas.

        Raises:
            TypeError: `now_ms` is no integer.
            ConfigError: It is out of the range of a signed number of 64 bits.
        """
        try:
            return self._core.expire(now_ms)
        except (TypeError, OverflowError):
            _refuse_moment(now_ms)
            raise

    def next_expiry_ms(self) -> int | None:
        """When `expire` will next drop a set; None while none is held."""
        return self._core.next_expiry_ms()

    def poll_dropped(self) -> list[SetDropped]:
        """The sets that `receive` evicted to make room, since the last call: the latest `sets_max` of them.

        `stats` counts all of them as "Evicted".
        """
        return self._core.poll_dropped()

    def stats(self) -> dict[str, int]:
        """Counts of segments and sets since the start, by outcome and reason, and what is held now.

        `shardwire.METRICS` says what each is.
        """
        return self._core.stats()

    def poll_persist(self) -> list[tuple[str, bytes, bytes]]:
        """Changes since the last call as (operation, key, value), for the caller to save.

        The operations are "put_segment", "delete_set", "put_completed" and "delete_completed". The key of a set is the
        first 20 bytes of the keys of its segments. Applying a change twice is harmless.
        """
        return self._core.poll_persist()

    def restore(self, records: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Takes back what `poll_persist` gave, less what was deleted since, before anything is received.

        Records that cannot be read, or that exceed the limits, are ignored and counted as `restore_ignored`.

        Raises:
            TypeError: A record is no tuple of a str and two bytes: names its place. Nothing is taken back then.
        """
        self._core.restore(records)


def _refuse_moment(now_ms: object) -> None:
    if isinstance(now_ms, int):
        if not INTEGER_MIN <= now_ms <= INTEGER_MAX:
            raise ConfigError(f"now_ms is {now_ms}: it must be an integer from {INTEGER_MIN} to {INTEGER_MAX}")
    elif not hasattr(now_ms, "__index__"):
        raise TypeError(f"now_ms must be an integer of milliseconds, not {type(now_ms).__name__}")


def _refuse_origin(sender: object, authenticated: object, message_key: object) -> None:
    if isinstance(sender, str):
        try:
            sender.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"sender is {sender!r}: it must be text that UTF-8 can encode") from error
    elif sender is not None:
        raise TypeError(f"sender must be a str or None, not {type(sender).__name__}")
    if not isinstance(authenticated, bool):
        raise TypeError(f"authenticated is {authenticated!r}: it must be True or False")
    if message_key is not None:
        try:
            memoryview(message_key)  # type: ignore[arg-type]
        except TypeError:
            remedy = 'encode the text, as in "text".encode()' if isinstance(message_key, str) else "give bytes"
            raise TypeError(
                f"message_key must be a bytes-like object or None, not {type(message_key).__name__}: {remedy}"
            ) from None
