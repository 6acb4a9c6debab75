"""The Scalable Data Sync state machine of one channel: inputs and time in, messages and events out.

It owns no clock, socket, file or thread. Its one owner serialises the calls: one input, then everything that the
`poll_` methods give, then the next input. What `poll_persist` gives is made durable before what `poll_transmit` gave
is handed to the network, so that whatever a message acknowledges survives a crash.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Mapping, Sequence

from shardwire._native import EventQueue, IncomingSend, LocalLog, Now, OutgoingSend, SdsCodec
from shardwire.config import DeliveredWhen, SdsConfig, SyncConfig
from shardwire.errors import ConfigError
from shardwire.sds.acknowledgement import Acknowledgements
from shardwire.sds.anti_entropy import AntiEntropy
from shardwire.sds.bloom_schedule import BloomSchedule
from shardwire.sds.filter_wish import FilterWish
from shardwire.sds.given_up import GivenUp
from shardwire.sds.heads import Heads
from shardwire.sds.identity import CONTENTS_PER_SEND_MAX, check_contents, check_name, message_ids_of
from shardwire.sds.incoming import IncomingBuffer
from shardwire.sds.intake import intake_of
from shardwire.sds.lamport import LamportClock
from shardwire.sds.outgoing import OutgoingBuffer
from shardwire.sds.outlet import outlet_of
from shardwire.sds.outputs import Transmit, TransmitKind
from shardwire.sds.participants import Participants
from shardwire.sds.reception import Reception
from shardwire.sds.records import Records
from shardwire.sds.repair import Repair
from shardwire.sds.rivals import Rivals
from shardwire.sds.stats import stats_of
from shardwire.sds.sync_timer import SyncTimer
from shardwire.sds.transmission import Transmission
from shardwire.sds.views import Views

ALL_KINDS: frozenset[TransmitKind] = frozenset(TransmitKind)


class MessageChannel(Views):
    """One participant's side of a channel.

    Args:
        channel_id: The channel; messages of others are ignored.
        sender_id: This participant, unique in the channel.
        config: Scalable Data Sync.
        sync: Synchronisation schedule.
        now: The moment of creation.
        rng: The only source of randomness.
        header_bytes_max: A message is at most this much longer than its content.
        delivered_when: Who must hold a send before its resending stops.

    Attributes:
        poll_event: The oldest event that was not polled yet, None where there is none.

    Raises:
        ConfigError: An id is empty or too long, or the header limit leaves no room for one history entry.
    """

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        config: SdsConfig,
        sync: SyncConfig,
        *,
        now: Now,
        rng: random.Random,
        header_bytes_max: int = 24_000,
        delivered_when: DeliveredWhen = "any",
    ) -> None:
        check_name("channel_id", channel_id)
        check_name("sender_id", sender_id)
        self.channel_id = channel_id
        self.sender_id = sender_id
        self._config = config
        self._sync = sync
        self.events = EventQueue()
        self.poll_event = self.events.take
        self.emit = emit = self.events.append
        self.codec = SdsCodec(channel_id, sender_id, config.wire_format)
        self.log = LocalLog(config.log_messages_max, self._on_forgotten)
        self.heads = Heads(config.message_id == "send")
        self.lamport = LamportClock(config.wire_format, config.max_lamport_skew_ms, now)
        self.bloom = BloomSchedule(config, self.log)
        self.participants = Participants()
        said, suppress = sync.acknowledgement_sync, delivered_when == "any"
        self.acknowledgements = Acknowledgements(config, said, suppress, self.log, self.participants, rng)
        prompt = said or config.enable_repair
        self.anti_entropy = AntiEntropy(config, prompt, self.log, self.bloom, self.participants, rng)
        self.sync_timer = SyncTimer(sync.sync_min_interval_ms, rng, now, self.participants.heard_ms)
        self.repair = Repair(config, sender_id, self.log.entries, syncs=sync.sync_min_interval_ms > 0)
        self.filter_wish = FilterWish(config, prompt, self.bloom, self.repair, self.participants, rng)
        self.repair.on_news = self.filter_wish.on_missing
        finished, live_ms = self.repair.on_send_finished, self.participants.live_ms
        self.outgoing = OutgoingBuffer(config, delivered_when, emit, finished, live_ms)
        self.repair.own = self.outgoing.by_id
        self.incoming = IncomingBuffer(config, sync, sender_id, self.log, emit, self._on_released, self.repair)
        self.rivals = Rivals(self, config)
        self.transmission = Transmission(self, config, rng, header_bytes_max)
        known = self.acknowledgements
        naming = [known.delivered, known.incomplete, known.said_before, self.anti_entropy.owed]
        self.log.watch(self.repair.originals, naming)
        self.given_up = GivenUp(self, config)
        self.bloom.withholds = self.given_up.withholds
        self.records = Records(self)
        self.outlet = outlet_of(self, config)
        self.intake = intake_of(self, config, sync.sweep_in_buf_interval_ms == 0)
        self._reception = Reception(self, config, now)

    # --- inputs: ours ---------------------------------------------------------------------------

    def send(self, send_id: str, contents: Sequence[bytes], now: Now, *, contents_needed: int) -> tuple[str, ...]:
        """Registers and queues a send; nothing is encoded before it is dispatched.

        Args:
            send_id: 32 hex characters under the rule "send", any unused id otherwise.
            contents: What the send is made of, data first.
            now: The moment.
            contents_needed: How many contents reconstruct the message.

        Returns:
            The message ids, one a content.

        Raises:
            ConfigError: An argument is out of its limits, or the send (or, under "content-sha256", one of its
                contents) is known already.
        """
        if len(contents) == 1 and contents_needed == 1:
            message_id = self.outlet.register(send_id, contents[0])
            if message_id is not None:
                return (message_id,)
        check_contents(contents, contents_needed)
        message_ids = message_ids_of(self._config.message_id, send_id, contents)
        outgoing = self.outgoing
        if send_id in outgoing.sends:
            raise ConfigError(f"send_id {send_id!r} is in use: give each send its own")
        for message_id in message_ids:
            if message_id in outgoing.by_id or message_id in self.log.entries:
                raise ConfigError(f"message id {message_id!r} is known: a repeat is a duplicate while remembered")
        send = OutgoingSend(send_id, self.transmission.next_send_number(), contents_needed)
        outgoing.add(send, message_ids, contents)
        return message_ids

    def send_ephemeral(self, send_id: str, content: bytes, now: Now) -> str:
        """Queues a message without order or acknowledgement (SDS, Ephemeral Messages); returns its message id.

        Raises:
            ConfigError: The content is empty.
        """
        if not content:
            raise ConfigError("an ephemeral content is empty: give at least one byte")
        (message_id,) = message_ids_of(self._config.message_id, send_id, (content,))
        self.transmission.ephemerals.append((send_id, message_id, bytes(content)))
        self._reception.remember_ephemeral(message_id)
        return message_id

    def cancel(self, send_id: str, now: Now) -> bool:
        """Drops what was not dispatched; False when all of the send had left or it is unknown."""
        send = self.outgoing.sends.get(send_id)
        if send is None:
            return self.transmission.cancel_ephemeral(send_id)
        encoded = [content.message_id for content in send.queue if content.wire is not None]
        if not self.outgoing.cancel(send):
            return False
        self.heads.withdraw(self.log, encoded, send.history_ids or ())
        return True

    def handle_transmitted(self, transmit_id: int, retrieval_hint: bytes | None, now: Now) -> None:
        """The node propagated a transmission; `retrieval_hint` is the transport hash of what it propagated."""
        if not self.outlet.transmitted(transmit_id, retrieval_hint, now):
            self.transmission.on_transmitted(transmit_id, retrieval_hint, now)

    def handle_stored(self, message_id: str, now: Now) -> None:
        """A store has this content of ours: it is not sent again before somebody who lacks it is heard."""
        self.outgoing.on_stored(message_id, now.monotonic_ms)

    def handle_transmit_failed(self, transmit_id: int, now: Now) -> None:
        """The node could not send: a first transmission goes back to the queue, a later one is due; none counts."""
        self.transmission.on_failed(transmit_id, now)

    def limit_headers(self, header_bytes_max: int) -> None:
        """From now on a message is at most this much longer than its content. Raises as the constructor does."""
        self.transmission.limit_headers(header_bytes_max)
        self.outlet.limit_headers(self.transmission.header_budget)

    # --- inputs: from the network ---------------------------------------------------------------

    def handle_message(
        self, data: bytes, now: Now, retrieval_hint: bytes | None = None, *, from_store: bool = False
    ) -> None:
        """Takes any bytes from the network. Never raises for what a peer sent: it becomes `MessageDropped`.

        A known message `from_store` is no sign that its sender waits for an acknowledgement.
        """
        left = self.intake.take(data, now, retrieval_hint)
        if left is None:
            self._reception.handle(data, now, retrieval_hint, from_store)
        elif left:
            self._reception.finish(left, data, now)

    # --- inputs: from the channel, about contents it was handed ----------------------------------

    def handle_content_placed(
        self,
        message_id: str,
        sender_id: str,
        send_id: str,
        ordinal: int | None,
        content_count: int | None,
        contents_needed: int | None,
        now: Now,
    ) -> None:
        """Says to which send a content belongs and how large that is; None where the wire does not say."""
        entry = self.log.entries.get(message_id)
        if entry is not None:
            self.incoming.place(entry, send_id, ordinal, content_count, contents_needed, now.monotonic_ms)
            if self.given_up.sends:
                self.given_up.on_placed(entry, now)

    def handle_send_reconstructed(
        self,
        sender_id: str,
        send_id: str,
        content_count: int,
        now: Now,
        *,
        inferred_message_ids: Sequence[str] = (),
    ) -> None:
        """The channel has the message: every content counts as received, and the send is released in causal order.

        Under the rule "send" all `content_count` ids are known; `inferred_message_ids` names those of contents
        recovered under another rule.
        """
        known = bool(self.given_up.sends) and self.given_up.knows(sender_id, send_id)
        if content_count == 1 and not (inferred_message_ids or known) and self.intake.release(sender_id, send_id, now):
            return
        send = self.incoming.find(sender_id, send_id)
        if send is None or not send.contents:
            self.rivals.release(sender_id, send_id, send)
        elif not send.reconstructed:
            if known:
                self.given_up.on_whole(send, now)
            if content_count > len(send.contents) or inferred_message_ids:
                self._reception.infer(send, min(content_count, CONTENTS_PER_SEND_MAX), inferred_message_ids, now)
            self.incoming.reconstructed(send, now.monotonic_ms)

    def handle_content_refused(self, message_id: str, data: bytes, *, invalid: bool = False) -> None:
        """No room for what `data` brought just now, or no use, so that nothing waits for it: it was never received."""
        self.rivals.refuse(message_id)
        self.given_up.refuse(message_id, data, invalid)

    def handle_content_surplus(self, message_id: str) -> None:
        """The content is part of a message that is here: it counts as delivered, so that histories naming it close."""
        self.given_up.deliver_alone(message_id)

    def handle_content_doubted(self, message_id: str, sender_id: str, send_id: str) -> None:
        """There is enough of its send, and the message is not whole: it is not acknowledged before that is."""
        self.given_up.doubt(message_id, sender_id, send_id)

    def handle_send_abandoned(self, sender_id: str, send_id: str, now: Now, *, keep_messages: bool = False) -> bool:
        """The channel gave up reassembling a send: what follows it no longer waits. Whether it was news.

        Its contents count as never received, and are asked for when more comes, or with `keep_messages` taken from
        what is kept for repair (`given_up.poll_reopened`).
        """
        send = self.incoming.find(sender_id, send_id)
        if send is None or not send.contents or send.reconstructed:
            return True
        return self.given_up.give_up(send, keep_messages, now.monotonic_ms)

    def handle_irretrievable(self, message_ids: Iterable[str], now: Now) -> None:
        """The store does not have these. Only what is older than this participant's first receipt is lost by it."""
        self.incoming.gaps.on_irretrievable(message_ids)

    def handle_caught_up(self, now: Now) -> None:
        """A store was asked for the past and everything it had was taken in: what is unknown now is not older."""
        self.participants.first_epoch_ms = 1

    def handle_timeout(self, now: Now) -> None:
        """Does what is due; early and late calls are harmless."""
        for part in (self.repair.settle, self.outgoing.on_timeout, self.incoming.on_timeout):
            part(now.monotonic_ms)

    # --- reactions ------------------------------------------------------------------------------

    def _on_released(self, send: IncomingSend) -> None:
        contents = send.contents
        newest = contents[0]
        newest.send = None
        if len(contents) > 1:
            for entry in contents:
                entry.send = None
                self.log.touch(entry)
                if (entry.lamport, entry.message_id) > (newest.lamport, newest.message_id):
                    newest = entry
        if newest.lamport > self.lamport.timestamp:
            self.lamport.observe(newest.lamport)
        self.log.deliver(newest)
        self.heads.deliver(newest, send.history)
        if self.acknowledgements.incomplete:
            self.acknowledgements.send_delivered(contents)

    def _on_forgotten(self, message_id: str) -> None:
        self.acknowledgements.forget(message_id)
        self.anti_entropy.forget(message_id)

    # --- outputs --------------------------------------------------------------------------------

    def poll_transmit(self, now: Now, kinds: Container[TransmitKind] = ALL_KINDS) -> Transmit | None:
        """The next message of an allowed kind, encoded now; None when nothing is due.

        Order: sync, repair, ephemeral, retransmission, then first and further contents in turn. A content is sent
        again only after `handle_transmitted` or `handle_transmit_failed`.
        """
        return self.transmission.poll(now, kinds)

    def poll_persist(self) -> dict[tuple[str, bytes], bytes | None]:
        """Records that changed since the last call; None deletes."""
        return self.records.poll()

    def poll_timeout(self) -> int | None:
        """Monotonic ms of the next moment at which `handle_timeout` or `poll_transmit` has work; None for never."""
        due_ms = self.outgoing.next_deadline()
        repairs = self._config.enable_repair
        for at_ms in (
            self.incoming.next_deadline(),
            self.acknowledgements.due_ms,
            self.anti_entropy.due_ms,
            self.filter_wish.due_ms,
            self.sync_timer.due_ms,
            self.repair.next_request_ms() if repairs else None,
            self.repair.answers.next_ms() if repairs else None,
        ):
            if at_ms is not None and (due_ms is None or at_ms < due_ms):
                due_ms = at_ms
        return due_ms

    def stats(self) -> dict[str, int]:
        """Sizes of what is held."""
        return stats_of(self)

    # --- restore --------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls,
        records: Mapping[tuple[str, bytes], bytes],
        channel_id: str,
        sender_id: str,
        config: SdsConfig,
        sync: SyncConfig,
        *,
        now: Now,
        rng: random.Random,
        header_bytes_max: int = 24_000,
        delivered_when: DeliveredWhen = "any",
    ) -> MessageChannel:
        """The machine that `records` (all that `poll_persist` ever gave, later over earlier) describe.

        Lamport goes on above everything sent; timers restart from `now`. Records that cannot be read are passed
        over. Raises as the constructor does.
        """
        machine = cls(
            channel_id,
            sender_id,
            config,
            sync,
            now=now,
            rng=rng,
            header_bytes_max=header_bytes_max,
            delivered_when=delivered_when,
        )
        machine.records.restore(records, now)
        return machine
