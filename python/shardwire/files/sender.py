"""Sending one file: offered, its chunks sent from where receivers say, until enough of them have it.

A sender keeps no state on disk. The same file under the same name is the same transfer, so one that was interrupted
goes on when the file is sent again: receivers say what they have. The contract stands in `docs/guide/files.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shardwire._native import (
    FileStatus,
    decode_file_message,
    encode_file_chunk,
    encode_file_manifest,
    encode_file_status,
)
from shardwire.errors import (
    ChannelClosedError,
    FileChangedError,
    FileRefusedError,
    QueueFullError,
    ShardwireError,
)
from shardwire.events import (
    FileProgressEvent,
    FileReason,
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from shardwire.files.chain import FileSource, check_regular
from shardwire.files.chunk_size import checked_chunk_size
from shardwire.files.names import checked_name
from shardwire.files.receiver import REPORT_BYTES
from shardwire.files.transport import Announce, FileChannel, NewNonce

DoneWhen = int | Literal["any"] | Set[str]

# Chunks that were sent and neither delivered nor lost: what the channel holds of a file.
WINDOW_BYTES = 16 << 20
WINDOW_CHUNKS_MIN = 2
# Of them, what the node has yet to send: on a slow one other messages of the channel wait behind it.
UNSENT_BYTES = 2 << 20
# The file is offered again when nothing is heard of it, and twice as much later each time.
OFFER_INTERVAL_MS = 30_000
OFFER_INTERVAL_MS_MAX = 600_000
# Whoever hears unknown chunks is offered the file, at most so often.
OFFER_INTERVAL_MS_MIN = 1_000
# Enough participants have the file: another one that takes it is waited for as long as it keeps reporting.
LINGER_MS = 30_000
# All was acknowledged, and a receiver says nothing since it asked: what it lost comes within two acknowledgement
# timeouts of the defaults, or it had not taken the file yet.
STUCK_MS = 10_000
# Nobody takes the file: who has not spoken yet gets so long.
REFUSAL_LINGER_MS = 15_000
# A receiver without room is offered the file again so soon, then twice as late each time, up to OFFER_INTERVAL_MS.
BUSY_INTERVAL_MS = 2_000
RECEIVERS_MAX = 1_024
# Whether the channel was closed, and what was not told of, is looked up so often.
_LOOK_S = 1.0


@dataclass(slots=True)
class _Receiver:
    next_index: int = 0
    asked_index: int = -1
    heard_ms: float = 0.0
    state: Literal["receiving", "received", "refused", "busy", "lost"] = "lost"
    reason: FileReason = ""


class FileSender:
    """Sends one file: what `ReliableChannel.send_file` runs.

    Args:
        channel: Carries the messages.
        announce: Takes the events.
        new_nonce: Draws what makes a message another one than all before.
        done_when: Who must have the file.
        message_bytes_max: The largest message that the channel carries.
        places: Of all files that are sent on the channel; each waits for one of them.

    Raises:
        ConfigError: The name, or the size of chunks, is out of its limits; or the path is of no regular file.
        OSError: The file is not there.
    """

    def __init__(
        self,
        channel: FileChannel,
        announce: Announce,
        new_nonce: NewNonce,
        path: Path,
        name: str | None,
        done_when: DoneWhen,
        chunk_size_bytes: int | None,
        message_bytes_max: int,
        places: asyncio.Semaphore,
    ) -> None:
        self._channel = channel
        self._places = places
        self._has_place = False
        self._announce = announce
        self._new_nonce = new_nonce
        # Before its name, which that of a directory may not be: another name would not help.
        check_regular(path)
        self._name = checked_name(path, name)
        self._done_when = done_when
        self._source = FileSource(path, checked_chunk_size(chunk_size_bytes, message_bytes_max))
        self._window = max(WINDOW_CHUNKS_MIN, WINDOW_BYTES // self._source.chunk_size_bytes)
        self._unsent_max = max(WINDOW_CHUNKS_MIN, UNSENT_BYTES // self._source.chunk_size_bytes)
        self._transfer_id = b""
        self._session = new_nonce()
        self._chain_hash = b""
        # By request id, the chunks that were sent and are not settled.
        self._in_flight: dict[str, int] = {}
        self._next_index = 0
        self._receivers: dict[str, _Receiver] = {}
        self._refused_ms: float | None = None
        self._offer_id = ""
        self._offered_ms = 0.0
        self._offer_interval_ms = OFFER_INTERVAL_MS
        self._is_asked_to_offer = False
        self._wake = asyncio.Event()

    async def run(self, timeout_ms: int | None) -> frozenset[str]:
        """Sends the file and waits until it is received.

        Returns:
            The participants that have it, as far as they have said so.

        Raises:
            FileRefusedError: Whoever should have it does not take it.
            FileChangedError: It changed while it was sent.
            TimeoutError: It was not received in time; sent again, it goes on where it stopped.
            ChannelClosedError: The channel is closed or not started, or closes meanwhile.
            PersistenceError: The channel cannot store a message.
            OSError: The file cannot be read.
        """
        # Around all of it: the channel may have no room for as long as others do not answer.
        limit = asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000)
        try:
            async with limit:
                return await self._run()
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"{self._name!r} was not received within {timeout_ms} ms: {self._standing()}") from None

    async def _run(self) -> frozenset[str]:
        await self._places.acquire()
        self._has_place = True
        try:
            return await self._send()
        finally:
            self._leave_place()

    def _leave_place(self) -> None:
        if self._has_place:
            self._has_place = False
            self._places.release()

    async def _send(self) -> frozenset[str]:
        self._chain_hash = await asyncio.to_thread(self._source.scan)
        unsubscribers = [
            self._channel.on(MessageReceivedEvent, self._on_message),
            *(self._channel.on(kind, lambda _: self._wake.set()) for kind in (MessageSentEvent, MessageDeliveredEvent)),
            self._channel.on(MessageSendErrorEvent, self._on_send_error),
        ]
        try:
            await self._offer()
            while True:
                if (having := self._outcome()) is not None:
                    return having
                await self._go_on()
        except FileChangedError:
            # It is told whatever becomes of that: the channel may take nothing more.
            with contextlib.suppress(ShardwireError):
                await self._withdraw()
            raise
        finally:
            for unsubscribe in unsubscribers:
                unsubscribe()

    def close(self) -> None:
        """Closes the file that is sent; the transfer can be taken up again by another sender."""
        self._source.close()

    # --- what leaves ---

    async def _go_on(self) -> None:
        """Sends the next thing, or waits until there may be one."""
        self._wake.clear()
        pending = {send.request_id: send.sent for send in self._channel.pending()}
        self._in_flight = {request: index for request, index in self._in_flight.items() if request in pending}
        self._go_back()
        unsent = sum(not pending[request] for request in self._in_flight)
        has_room = len(self._in_flight) < self._window and unsent < self._unsent_max
        if has_room and self._next_index < self._index_max():
            await self._send_chunk()
        elif self._offer_is_due(pending):
            if all(each.state != "busy" for each in self._receivers.values()):
                # Nobody goes on with it: other files need not wait until somebody does.
                self._leave_place()
            await self._offer()
        else:
            if self._channel.is_closed():
                raise ChannelClosedError(
                    f"the channel was closed while {self._name!r} was sent: send it again on a new one to go on"
                )
            try:
                await asyncio.wait_for(self._wake.wait(), _LOOK_S)
            except TimeoutError:
                return

    def _go_back(self) -> None:
        """Goes back to what a receiver asked for while it was on its way, and had no use for, once for each asking."""
        for receiver in () if self._in_flight else self._receivers.values():
            is_stuck = receiver.state == "receiving" and receiver.asked_index == receiver.next_index < self._next_index
            if is_stuck and _now_ms() - receiver.heard_ms >= STUCK_MS:
                receiver.asked_index = -1
                self._next_index = receiver.next_index

    def _index_max(self) -> int:
        """The chunk before which to stop, until receivers say that they have more.

        A channel acknowledges what waits there for an earlier message, too, as where a receiver began anew and lacks
        what its former life had acknowledged: a sender that went on would soon not have that any more.
        """
        held = max((each.next_index for each in self._receivers.values() if each.state == "receiving"), default=None)
        ahead = self._window + -(-REPORT_BYTES // self._source.chunk_size_bytes)
        return 0 if held is None else min(held + ahead, self._source.chunk_count)

    async def _send_chunk(self) -> None:
        # Counted first: while it is read and sent, a receiver may ask for an earlier one.
        index = self._next_index
        self._next_index += 1
        data, next_hash = await asyncio.to_thread(self._source.read, index)
        message = encode_file_chunk(
            transfer_id=self._transfer_id,
            index=index,
            next_hash=next_hash,
            data=data,
            nonce=self._new_nonce(),
            session=self._session,
        )
        try:
            self._in_flight[await self._channel.send(message)] = index
        except QueueFullError:
            self._next_index = min(self._next_index, index)
            await asyncio.sleep(_LOOK_S)

    def _offer_is_due(self, pending: Container[str]) -> bool:
        if self._offer_id in pending:
            return False
        silent_ms = _now_ms() - max([self._offered_ms, *(each.heard_ms for each in self._receivers.values())])
        if self._is_asked_to_offer and _now_ms() - self._offered_ms >= OFFER_INTERVAL_MS_MIN:
            return True
        return not self._in_flight and silent_ms >= self._offer_interval_ms

    async def _offer(self) -> None:
        if self._offer_id:
            self._offer_interval_ms = min(2 * self._offer_interval_ms, OFFER_INTERVAL_MS_MAX)
        self._is_asked_to_offer = False
        message, self._transfer_id = encode_file_manifest(
            name=self._name,
            size_bytes=self._source.size_bytes,
            chunk_size_bytes=self._source.chunk_size_bytes,
            chain_hash=self._chain_hash,
            nonce=self._new_nonce(),
            session=self._session,
        )
        self._offered_ms = _now_ms()
        try:
            self._offer_id = await self._channel.send(message)
        except QueueFullError:
            # As if it had been lost: it is repeated in its time.
            await asyncio.sleep(_LOOK_S)

    async def _withdraw(self) -> None:
        await self._channel.send(
            encode_file_status(
                transfer_id=self._transfer_id,
                state="withdrawn",
                reason="changed",
                nonce=self._new_nonce(),
                session=self._session,
            )
        )

    # --- what arrives ---

    def _on_message(self, event: MessageReceivedEvent) -> None:
        status = decode_file_message(event.message)
        if not isinstance(status, FileStatus) or status.transfer_id != self._transfer_id:
            return
        if status.session != self._session or status.next_index > self._source.chunk_count:
            return
        self._wake.set()
        if status.state == "unknown":
            self._is_asked_to_offer = True
            return
        if event.sender_id not in self._receivers and len(self._receivers) >= RECEIVERS_MAX:
            return
        receiver = self._receivers.setdefault(event.sender_id, _Receiver())
        receiver.heard_ms = _now_ms()
        if (status.state, status.reason) == ("refused", "busy"):
            was_busy, receiver.state = receiver.state == "busy", "busy"
            self._offer_interval_ms = min(self._offer_interval_ms, OFFER_INTERVAL_MS) if was_busy else BUSY_INTERVAL_MS
            return
        self._offer_interval_ms = OFFER_INTERVAL_MS
        if status.state == "refused":
            receiver.state, receiver.reason = "refused", status.reason
            if self._refused_ms is None:
                self._refused_ms = receiver.heard_ms
            return
        receiver.next_index = status.next_index
        if status.state == "received":
            receiver.state, receiver.next_index = "received", self._source.chunk_count
        elif status.state == "requested":
            self._on_request(receiver)
        self._tell_progress(event.sender_id, receiver)

    def _on_request(self, receiver: _Receiver) -> None:
        was_receiving = receiver.state == "receiving"
        index = receiver.next_index
        others = any(each.state == "receiving" for each in self._receivers.values() if each is not receiver)
        receiver.state = "receiving"
        # Who asks for it again has had a later one: it came before the offer was taken, and is acknowledged soon.
        is_repeated, receiver.asked_index = receiver.asked_index == index, index
        if not is_repeated and (others if not was_receiving else index in self._in_flight.values()):
            # It is on its way, or came as late as the offer did: whoever lacks it asks again when a later one comes.
            return
        self._next_index = min(self._next_index, index) if others else index

    def _on_send_error(self, event: MessageSendErrorEvent) -> None:
        if event.request_id not in self._in_flight:
            return
        # Nobody has it, and nobody is sent more, until somebody answers an offer.
        for receiver in self._receivers.values():
            if receiver.state == "receiving":
                receiver.state = "lost"
        self._wake.set()

    def _tell_progress(self, receiver_id: str, receiver: _Receiver) -> None:
        size_bytes = self._source.size_bytes
        done_bytes = min(receiver.next_index * self._source.chunk_size_bytes, size_bytes)
        event = FileProgressEvent(
            self._transfer_id.hex(), self._name, size_bytes, done_bytes, self._channel.sender_id, receiver_id
        )
        self._announce(event)

    # --- what became of it ---

    def _outcome(self) -> frozenset[str] | None:
        having = frozenset(name for name, each in self._receivers.items() if each.state == "received")
        now_ms = _now_ms()
        if self._is_enough(having):
            is_awaited = any(
                each.state in ("receiving", "lost") and now_ms - each.heard_ms < LINGER_MS
                for each in self._receivers.values()
            )
            return None if is_awaited else having
        refused = {name: each.reason for name, each in self._receivers.items() if each.state == "refused"}
        if isinstance(self._done_when, Set):
            refused = {name: reason for name, reason in refused.items() if name in self._done_when}
            is_vain = bool(refused)
        else:
            is_left = any(each.state in ("receiving", "busy", "lost") for each in self._receivers.values())
            is_over = self._refused_ms is not None and now_ms - self._refused_ms >= REFUSAL_LINGER_MS
            is_vain = bool(refused) and not is_left and is_over
        if is_vain:
            said = ", ".join(f"{name!r} ({reason or 'no reason'})" for name, reason in sorted(refused.items()))
            raise FileRefusedError(f"{self._name!r} was refused by {said}", refused)
        return None

    def _is_enough(self, having: frozenset[str]) -> bool:
        if isinstance(self._done_when, Set):
            return self._done_when <= having
        return len(having) >= (1 if self._done_when == "any" else self._done_when)

    def _standing(self) -> str:
        if not self._receivers:
            return "nobody has answered; sent again, it goes on where it stopped"
        count = self._source.chunk_count
        held = ", ".join(
            f"{name!r} has {each.next_index:,} of {count:,} chunks" for name, each in sorted(self._receivers.items())
        )
        return f"{held}; sent again, it goes on there"


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1_000
