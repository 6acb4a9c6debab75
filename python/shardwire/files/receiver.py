"""Receiving files: what is offered is taken or refused, and what is taken is asked for, written and told of.

A receiver keeps no state but the partial files. It answers every offer of a transfer with what it has, so whichever
side was away, or came back with no memory, goes on from there. The contract of the two stands in `docs/guide/files.md`.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from shardwire._native import (
    FileChunk,
    FileManifest,
    FileStatus,
    decode_file_message,
    encode_file_status,
    keccak256,
)
from shardwire.errors import ShardwireError
from shardwire.events import (
    FileFailedEvent,
    FileProgressEvent,
    FileReason,
    FileReceivedEvent,
    MessageReceivedEvent,
)
from shardwire.files.names import fault_of
from shardwire.files.partial import PartialFile
from shardwire.files.transport import Announce, FileChannel, FileState, NewNonce
from shardwire.peer_log import PeerLog
from shardwire.quoting import os_reason, quoted

# Files that are received at once. One of which nothing came for so long makes room for another; its chunks stay.
TRANSFERS_MAX = 16
TRANSFER_IDLE_MS = 60_000
# How much is received from one report to the next: it frees the sender's window.
REPORT_BYTES = 4 << 20
# Chunks of the sender's own that are wrong, until a transfer is given up.
WRONG_CHUNKS_MAX = 8
# Transfers remembered of which chunks are none of ours.
STRANGE_TRANSFERS_MAX = 1_024
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class FileOffer:
    """A file that a participant offers.

    Attributes:
        transfer_id: Hex; the same whenever a file of these bytes is offered by this name.
        name: What its sender calls it: one component of a path, safe in any directory.
        size_bytes: Its size.
        sender_id: Who offers it.
    """

    transfer_id: str
    name: str
    size_bytes: int
    sender_id: str


# Where an offered file shall be, or None to decline it. A plain or an `async` function.
Choice = Callable[[FileOffer], "str | os.PathLike[str] | Awaitable[str | os.PathLike[str] | None] | None"]


class ChoiceError(Exception):
    """A function that chooses raised something, of the type that this says."""


class _Refused(Exception):
    def __init__(self, reason: FileReason, error: str) -> None:
        super().__init__(error)
        self.reason: FileReason = reason


def _refusal_of(error: OSError, destination: Path) -> _Refused:
    # Names of what is not whole yet say nothing to a reader.
    named = OSError(error.errno, error.strerror, str(destination)) if error.filename else error
    if isinstance(error, FileExistsError):
        return _Refused("exists", os_reason(named))
    return _Refused("no_space" if error.errno in _NO_SPACE else "failed", os_reason(named))


class _Transfer:
    """One file under way."""

    def __init__(self, partial: PartialFile, sender_id: str, session: int, now_ms: float) -> None:
        self.partial = partial
        # Of who offered it last.
        self.sender_id = sender_id
        self.session = session
        self.heard_ms = now_ms
        self.reported_bytes = partial.held_bytes
        self.wrong_chunks = 0
        # Whether the next chunk was asked for and has not come.
        self.has_asked = False

    @property
    def transfer_id(self) -> bytes:
        return self.partial.manifest.transfer_id


# What a status may answer.
_Answered = FileManifest | FileChunk | _Transfer


class FileReceiver:
    """The files that one participant receives on a channel. Its `on_message` is called with one message at a time.

    Args:
        channel: Carries the answers.
        announce: Takes the events.
        new_nonce: Draws what makes a message another one than all before.
        choose: Says where a file shall be; raises nothing but `ChoiceError`.
        file_bytes_max: Larger files are refused; None for those of any size.
        peer_log: Told what is wrong with what comes.
    """

    def __init__(
        self,
        channel: FileChannel,
        announce: Announce,
        new_nonce: NewNonce,
        choose: Choice,
        file_bytes_max: int | None,
        peer_log: PeerLog,
    ) -> None:
        self._channel = channel
        self._announce = announce
        self._new_nonce = new_nonce
        self._choose = choose
        self._file_bytes_max = file_bytes_max
        self._peer_log = peer_log
        self._mark = keccak256(f"{len(channel.channel_id)} {channel.channel_id}{channel.sender_id}".encode()).hex()[:16]
        # The one that was heard of longest ago comes first.
        self._transfers: OrderedDict[bytes, _Transfer] = OrderedDict()
        self._strange: OrderedDict[bytes, None] = OrderedDict()

    async def on_message(self, event: MessageReceivedEvent) -> None:
        """Called with every message of the channel: takes what belongs to a file, and passes over the rest."""
        message = decode_file_message(event.message)
        if isinstance(message, FileManifest):
            await self._on_offer(message, event.sender_id)
        elif isinstance(message, FileChunk):
            await self._on_chunk(message, event.sender_id)
        elif isinstance(message, FileStatus) and message.state == "withdrawn":
            await self._on_withdrawn(message, event.sender_id)

    # --- what arrives ---

    async def _on_offer(self, manifest: FileManifest, sender_id: str) -> None:
        self._strange.pop(manifest.transfer_id, None)
        transfer = self._heard(manifest.transfer_id)
        if transfer is not None:
            # Who goes on with it may have begun anew, and know nothing of us.
            transfer.sender_id, transfer.session = sender_id, manifest.session
            await self._say(manifest, "requested", next_index=transfer.partial.next_index)
            return
        try:
            await self._take(manifest, sender_id)
        except _Refused as refused:
            await self._refuse(manifest, manifest.session, sender_id, refused)

    async def _take(self, manifest: FileManifest, sender_id: str) -> None:
        destination = await self._destination_of(manifest, sender_id)
        partial = PartialFile(destination, manifest, self._mark)
        transfer = _Transfer(partial, sender_id, manifest.session, _now_ms())
        try:
            if await asyncio.to_thread(partial.is_there):
                await self._on_received(transfer)
                return
            holder = next((one for one in self._transfers.values() if one.partial.destination == destination), None)
            if holder is not None and not self._gives_way(holder):
                raise _Refused("exists", f"another file is being received as {str(destination)!r}")
            await asyncio.to_thread(_begin, partial)
        except OSError as error:
            await asyncio.to_thread(partial.discard)
            raise _refusal_of(error, partial.destination) from error
        if partial.next_index == partial.chunk_count:
            await self._finish(transfer)
            return
        transfer.reported_bytes = partial.held_bytes
        self._transfers[manifest.transfer_id] = transfer
        self._tell_progress(transfer)
        await self._say(transfer, "requested", next_index=partial.next_index)

    async def _destination_of(self, manifest: FileManifest, sender_id: str) -> Path:
        if (fault := fault_of(manifest.name)) is not None:
            raise _Refused("name", f"the name is {manifest.name!r}: {fault}")
        if self._file_bytes_max is not None and manifest.size_bytes > self._file_bytes_max:
            raise _Refused(
                "too_large", f"the file has {manifest.size_bytes:,} bytes: at most {self._file_bytes_max:,} are taken"
            )
        if not self._has_room():
            raise _Refused("busy", f"{TRANSFERS_MAX} files are being received: offer it later")
        offer = FileOffer(manifest.transfer_id.hex(), manifest.name, manifest.size_bytes, sender_id)
        try:
            chosen: object = self._choose(offer)
            if inspect.isawaitable(chosen):
                chosen = await chosen
        except ChoiceError as error:
            raise _Refused("failed", f"choosing a place raised {error}") from error
        if chosen is None:
            raise _Refused("declined", "it was declined")
        if not isinstance(chosen, str | os.PathLike):
            said = f"the place chosen is a {type(chosen).__name__}"
            raise _Refused("failed", f"{said}: it must be the path of a file, or None")
        if (destination := _path_of_file(chosen)) is None:
            raise _Refused("failed", f"the place chosen is {str(chosen)!r}: it must be the path of a file")
        return destination

    def _has_room(self) -> bool:
        return len(self._transfers) < TRANSFERS_MAX or self._gives_way(next(iter(self._transfers.values())))

    def _gives_way(self, transfer: _Transfer) -> bool:
        """Lets go of a transfer of which nothing came lately; whether it did."""
        if _now_ms() - transfer.heard_ms < TRANSFER_IDLE_MS:
            return False
        del self._transfers[transfer.transfer_id]
        if transfer.partial.next_index == 0:
            # Offers alone leave nothing behind.
            transfer.partial.discard()
        return True

    async def _on_chunk(self, chunk: FileChunk, sender_id: str) -> None:
        transfer = self._heard(chunk.transfer_id)
        if transfer is None:
            await self._on_strange_chunk(chunk)
            return
        partial = transfer.partial
        if chunk.index < partial.next_index:
            return
        if chunk.index > partial.next_index:
            if not transfer.has_asked:
                transfer.has_asked = True
                await self._say(transfer, "requested", next_index=partial.next_index)
            return
        transfer.has_asked = False
        try:
            await self._add(transfer, chunk, sender_id)
        except _Refused as refused:
            del self._transfers[chunk.transfer_id]
            await asyncio.to_thread(partial.discard)
            await self._refuse(partial.manifest, transfer.session, transfer.sender_id, refused)

    async def _add(self, transfer: _Transfer, chunk: FileChunk, sender_id: str) -> None:
        partial = transfer.partial
        try:
            is_written = await asyncio.to_thread(_write, partial, chunk)
        except OSError as error:
            raise _refusal_of(error, partial.destination) from error
        if not is_written:
            # Anybody may send anything in the name of a transfer; its own sender may not for ever.
            if sender_id == transfer.sender_id:
                self._peer_log.tell("chunk %d of %s is not of the file it offered", chunk.index, quoted(sender_id))
                transfer.wrong_chunks += 1
            if transfer.wrong_chunks > WRONG_CHUNKS_MAX:
                raise _Refused("failed", f"more than {WRONG_CHUNKS_MAX} of its chunks were wrong")
            return
        if partial.is_whole:
            await self._finish(transfer)
            del self._transfers[chunk.transfer_id]
        elif partial.held_bytes - transfer.reported_bytes >= REPORT_BYTES:
            transfer.reported_bytes = partial.held_bytes
            self._tell_progress(transfer)
            await self._say(transfer, "held", next_index=partial.next_index)

    async def _on_strange_chunk(self, chunk: FileChunk) -> None:
        """Asks, once, to be offered what we hear parts of: we came late, or forgot."""
        if chunk.transfer_id in self._strange:
            return
        self._note_strange(chunk.transfer_id)
        await self._say(chunk, "unknown")

    async def _on_withdrawn(self, status: FileStatus, sender_id: str) -> None:
        transfer = self._transfers.get(status.transfer_id)
        if transfer is None or (transfer.sender_id, transfer.session) != (sender_id, status.session):
            return
        del self._transfers[status.transfer_id]
        self._note_strange(status.transfer_id)
        await asyncio.to_thread(transfer.partial.discard)
        self._tell_failure(transfer.partial.manifest, sender_id, status.reason or "failed", "its sender withdrew it")

    # --- what becomes of a file ---

    async def _finish(self, transfer: _Transfer) -> None:
        partial = transfer.partial
        if not partial.is_whole:
            await asyncio.to_thread(partial.discard)
            raise _Refused("failed", "its hash is not that of an empty file")
        try:
            await asyncio.to_thread(partial.finish)
        except OSError as error:
            await asyncio.to_thread(partial.discard)
            raise _refusal_of(error, partial.destination) from error
        await self._on_received(transfer)

    async def _on_received(self, transfer: _Transfer) -> None:
        partial, manifest = transfer.partial, transfer.partial.manifest
        # Of chunks that still come nothing is asked.
        self._note_strange(manifest.transfer_id)
        event = FileReceivedEvent(
            manifest.transfer_id.hex(), manifest.name, manifest.size_bytes, transfer.sender_id, partial.destination
        )
        self._announce(event)
        await self._say(transfer, "received", next_index=partial.chunk_count)

    async def _refuse(self, manifest: FileManifest, session: int, sender_id: str, refused: _Refused) -> None:
        self._note_strange(manifest.transfer_id)
        self._tell_failure(manifest, sender_id, refused.reason, str(refused))
        await self._send_status(manifest.transfer_id, session, "refused", refused.reason, 0)

    # --- what is told ---

    def _tell_progress(self, transfer: _Transfer) -> None:
        partial, manifest = transfer.partial, transfer.partial.manifest
        event = FileProgressEvent(
            manifest.transfer_id.hex(),
            manifest.name,
            manifest.size_bytes,
            partial.held_bytes,
            transfer.sender_id,
            self._channel.sender_id,
        )
        self._announce(event)

    def _tell_failure(self, manifest: FileManifest, sender_id: str, reason: FileReason, error: str) -> None:
        self._announce(FileFailedEvent(manifest.transfer_id.hex(), manifest.name, sender_id, reason, error))

    async def _say(self, answered: _Answered, state: FileState, *, next_index: int = 0) -> None:
        await self._send_status(answered.transfer_id, answered.session, state, "", next_index)

    async def _send_status(
        self, transfer_id: bytes, session: int, state: FileState, reason: FileReason, next_index: int
    ) -> None:
        message = encode_file_status(
            transfer_id=transfer_id,
            state=state,
            reason=reason,
            next_index=next_index,
            nonce=self._new_nonce(),
            session=session,
        )
        try:
            await self._channel.send(message)
        except ShardwireError as error:
            # The sender asks again.
            self._peer_log.tell("the state of a file was not sent: %s", type(error).__name__)

    def _heard(self, transfer_id: bytes) -> _Transfer | None:
        transfer = self._transfers.get(transfer_id)
        if transfer is not None:
            transfer.heard_ms = _now_ms()
            self._transfers.move_to_end(transfer_id)
        return transfer

    def _note_strange(self, transfer_id: bytes) -> None:
        self._strange[transfer_id] = None
        if len(self._strange) > STRANGE_TRANSFERS_MAX:
            self._strange.popitem(last=False)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1_000


def _path_of_file(chosen: str | os.PathLike[str]) -> Path | None:
    """The path that was chosen; None where no file can have it."""
    try:
        path = Path(chosen)
        return path if path.name and b"\0" not in os.fsencode(path) else None
    except (TypeError, UnicodeEncodeError):  # a path of bytes, or a lone surrogate
        return None


def _begin(partial: PartialFile) -> None:
    partial.resume()
    free_bytes = shutil.disk_usage(partial.destination.parent).free
    missing_bytes = partial.manifest.size_bytes - partial.held_bytes
    if missing_bytes > free_bytes:
        raise OSError(errno.ENOSPC, f"{missing_bytes:,} bytes are missing and {free_bytes:,} free")


def _write(partial: PartialFile, chunk: FileChunk) -> bool:
    if not partial.fits(chunk):
        return False
    partial.write(chunk)
    return True
