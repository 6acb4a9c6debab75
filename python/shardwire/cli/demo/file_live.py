"""The live part for a file that no message holds: `send_file` to two receivers, and a listener that archives it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from shardwire._native import FileChunk, Keccak256, decode_file_message
from shardwire.channel import ReliableChannel
from shardwire.cli.demo.live import DRAIN_MS, listening, participants
from shardwire.cli.demo.network import DemoNetwork
from shardwire.cli.demo.settings import BESIDE_LISTENER, LISTENER, RECEIVERS, SENDER, segmentation_of
from shardwire.config import ChannelConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ShardwireError
from shardwire.events import FileFailedEvent, FileProgressEvent, FileReceivedEvent, MessageReceivedEvent

# What a transfer may take: so long, and a second for so many bytes.
TRANSFER_TIMEOUT_MS = 60_000
BYTES_PER_S_MIN = 200_000
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class FileLiveResult:
    """What happened.

    Attributes:
        delivered_to: Who said that the file is whole, verified and on disk.
        hashes: By receiver, the Keccak-256 of what is on its disk.
        chunks: Hashes of the messages, each a chunk of the file, that reached the receiver beside the listener.
        archived_rows: Messages that the passive listener archived.
        seconds: Wall time.
    """

    delivered_to: frozenset[str] = frozenset()
    hashes: dict[str, bytes] = field(default_factory=dict)
    chunks: set[bytes] = field(default_factory=set)
    archived_rows: int = 0
    seconds: float = 0.0


class FileBars:
    """How far the file is at each receiver; a context manager around the run."""

    def __init__(self, console: Console, size_bytes: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=40), DownloadColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._bars = {
            name: self._progress.add_task(f"{name:8} received", total=max(1, size_bytes)) for name in RECEIVERS
        }
        self._size_bytes = size_bytes
        self._heard = self._progress.add_task(f"{LISTENER:8} archived", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def on_progress(self, event: FileProgressEvent) -> None:
        """What a receiver has."""
        self._progress.update(self._bars[event.receiver_id], completed=event.done_bytes)

    def on_whole(self, name: str) -> None:
        """A receiver has all of it."""
        self._progress.update(self._bars[name], completed=max(1, self._size_bytes))

    def heard(self, size_bytes: int) -> None:
        """The passive listener archived one more message."""
        self._progress.advance(self._heard, size_bytes)


def file_config() -> ChannelConfig:
    """Of all three channels: parity as in the rest of the demo, and no rate limit, which would take epochs."""
    config = ChannelConfig.logos(segmentation=segmentation_of(), delivered_when=len(RECEIVERS))
    return config.without_store(members=1 + len(RECEIVERS))


async def run_file_live(
    path: Path,
    encryption: ChaCha20Poly1305Encryption,
    *,
    archive: Path,
    private: Path,
    seed: int,
    bars: FileBars,
    size_bytes: int,
    chunk_size_bytes: int | None = None,
) -> FileLiveResult:
    """Sends a file from one participant to the two others while a listener archives what it hears.

    Args:
        path: The file.
        encryption: Of the channel.
        archive: Directory that gets the Parquet files.
        private: Directory for the participants' databases and for what they receive.
        seed: Of the network's faults.
        bars: Told how far it is.
        size_bytes: Of the file.
        chunk_size_bytes: Bytes of a chunk, each one message; None for the default of `send_file`.

    Raises:
        ShardwireError: The file was refused, or not received in time.
        OSError: A file cannot be read or written.
    """
    result = FileLiveResult()
    started = time.monotonic()
    network = DemoNetwork(encryption, seed)
    async with (
        listening(network, archive, lambda message: bars.heard(len(message.envelope.payload))) as recorder,
        participants(network, file_config(), encryption, private) as channels,
    ):
        for name in RECEIVERS:
            _receive(channels[name], private / name, bars)
        channels[BESIDE_LISTENER].on_message_received(lambda event: _note_chunk(result.chunks, event))
        timeout_ms = TRANSFER_TIMEOUT_MS + size_bytes * 1_000 // BYTES_PER_S_MIN
        try:
            result.delivered_to = await channels[SENDER].send_file(
                path,
                name="file",
                delivered_when=frozenset(RECEIVERS),
                chunk_size_bytes=chunk_size_bytes,
                timeout_ms=timeout_ms,
            )
        except TimeoutError as error:
            raise ShardwireError(str(error)) from None
        await asyncio.sleep(DRAIN_MS / 1_000)
        for name in RECEIVERS:
            result.hashes[name] = await asyncio.to_thread(file_hash, private / name / "file")
    result.archived_rows = recorder.rows_written
    result.seconds = time.monotonic() - started
    return result


def _receive(channel: ReliableChannel, directory: Path, bars: FileBars) -> None:
    directory.mkdir()
    channel.receive_files(directory)
    channel.on(FileProgressEvent, bars.on_progress)
    channel.on(FileReceivedEvent, lambda event: bars.on_whole(channel.sender_id))
    # `send_file` raises for it.
    channel.on(FileFailedEvent, lambda event: None)


def _note_chunk(chunks: set[bytes], event: MessageReceivedEvent) -> None:
    if isinstance(decode_file_message(event.message), FileChunk):
        chunks.add(bytes.fromhex(event.message_id))


def file_hash(path: Path) -> bytes:
    """Keccak-256 of a file, in constant memory.

    Raises:
        OSError: It cannot be read.
    """
    digest = Keccak256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.digest()
