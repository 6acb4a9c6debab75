"""Files over a channel, as applications meet them; `shardwire.files` does the work."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from shardwire.channel.arguments import without_sender
from shardwire.channel.hooks import callable_name, frames, is_ours, running_task
from shardwire.channel.observing.subscriptions import check_callable
from shardwire.config.checks import check_timeout_ms
from shardwire.errors import ConfigError
from shardwire.events import MessageReceivedEvent
from shardwire.files import Choice, ChoiceError, FileOffer, FileReceiver, FileSender
from shardwire.files.transport import FileChannel
from shardwire.quoting import quoted
from shardwire.segmentation.parameters import native_parameters

if TYPE_CHECKING:
    from shardwire.channel.session import Session

logger = logging.getLogger(__name__)


class FileTransfers:
    """The part of `ReliableChannel` that sends and receives files."""

    _session: Session
    _file_receiver: FileReceiver | None = None
    _file_places: asyncio.Semaphore

    async def send_file(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        delivered_when: int | Literal["any"] | Set[str] | None = None,
        chunk_size_bytes: int | None = None,
        timeout_ms: int | None = None,
    ) -> frozenset[str]:
        """Sends a file of any size in constant memory, and returns when it was received.

        It is read twice: for its hash, and in chunks as receivers ask for them. After a crash or a timeout the same
        call goes on where it stopped. `FileProgressEvent` tells how far each receiver is. What a transfer sends are
        messages of the channel, which its other listeners get too: use a channel for files alone, or pass over what
        `shardwire.files.is_file_message` says yes to.

        Args:
            path: The file; it must not change meanwhile.
            name: What receivers are told it is called; None for its own name.
            delivered_when: Who must have it: `"any"`, a number of participants, or a set of sender ids, among which
                this one's own does not count; None for `ChannelConfig.delivered_when`. Others that take it are waited
                for while they keep receiving.
            chunk_size_bytes: Bytes of a chunk, each one message; None for 1 MiB, or what a message holds.
            timeout_ms: How long to try; None for as long as it takes.

        Returns:
            The participants that have the file, verified and on disk.

        Raises:
            FileRefusedError: A participant that must have it refuses it, or everybody who answers does.
            FileChangedError: The file changed while it was sent; receivers drop what they have.
            TimeoutError: It was not received in time.
            ChannelClosedError: The channel is closed or not started, or closes meanwhile.
            ConfigError: An argument is out of its limits, or the path is of no regular file.
            OSError: The file cannot be read.
            PersistenceError: The channel cannot store a message.
        """
        session = self._session
        session.require_started()
        if timeout_ms is not None:
            check_timeout_ms("timeout_ms", timeout_ms, or_none="None or ")
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"path is a {type(path).__name__}: it must name a file")
        config = session.config
        if delivered_when is not None:
            try:
                config = without_sender(replace(config, delivered_when=delivered_when), session.sender_id)
            except ConfigError as error:  # of the argument, not of the channel's configuration
                raise ConfigError(str(error).removeprefix("ChannelConfig.")) from None
        if isinstance(config.delivered_when, Set) and config.delivered_when <= {session.sender_id}:
            raise ConfigError(
                f"delivered_when names {quoted(session.sender_id)} alone, who sends the file: name who shall have it"
            )
        sender = FileSender(
            cast(FileChannel, self),
            session.subscriptions.announce,
            self._new_nonce,
            Path(path),
            name,
            config.delivered_when,
            chunk_size_bytes,
            native_parameters(config.segmentation).max_payload_bytes,
            self._file_places,
        )
        try:
            return await sender.run(timeout_ms)
        finally:
            sender.close()

    def receive_files(
        self, destination: str | os.PathLike[str] | Choice, *, file_bytes_max: int | None = None
    ) -> Callable[[], None]:
        """Takes the files that are offered on this channel, until it is told to end.

        Each file is written beside its destination under a hidden name, verified chunk by chunk, made durable, and only
        then given its name; nothing is overwritten. After a crash it goes on with what is on disk. `FileReceivedEvent`,
        `FileProgressEvent` and `FileFailedEvent` tell of it.

        Args:
            destination: A directory that takes every file under its own name, or a function, plain or `async`, that is
                given a `FileOffer` and says at which path the file shall be, or None to decline it. The function is
                asked again after a restart, and must give the same path for the transfer to go on.
            file_bytes_max: Larger files are refused; None for no limit but the free space.

        Returns:
            A function that ends it; what is on disk stays, and a later call goes on.

        Raises:
            ConfigError: `destination` is neither, `file_bytes_max` is no integer of at least 0, or files are being
                received on this channel already.
            ChannelClosedError: The channel is closed.
        """
        if self._session.is_closed:
            raise self._session.closed_error()
        if file_bytes_max is not None and (
            isinstance(file_bytes_max, bool) or not isinstance(file_bytes_max, int) or file_bytes_max < 0
        ):
            raise ConfigError(f"file_bytes_max is {file_bytes_max!r}: it must be None or an integer of at least 0")
        if self._file_receiver is not None:
            raise ConfigError(
                "files are being received on this channel: end that first, by what receive_files returned"
            )
        channel = cast(FileChannel, self)
        receiver = FileReceiver(
            channel,
            self._session.subscriptions.announce,
            self._new_nonce,
            _choice_of(destination),
            file_bytes_max,
            self._session.engine.peer_log,
        )
        unsubscribe = channel.on(MessageReceivedEvent, receiver.on_message)
        self._file_receiver = receiver

        def end() -> None:
            unsubscribe()
            if self._file_receiver is receiver:
                self._file_receiver = None

        return end

    def _new_nonce(self) -> int:
        # Of the channel's own source of randomness, so that a run replays from its seed.
        return int(self._session.new_request_id()[:16], 16)


def _choice_of(destination: object) -> Choice:
    """The function that `receive_files` was given, or one that puts everything in the directory it was given.

    Raises:
        ConfigError: It is neither.
    """
    if callable(destination):
        check_callable("destination", destination)
        return partial(_chosen, destination)
    given = destination if isinstance(destination, str | os.PathLike) else ""
    # An empty text, of a variable that is not set say, would be the working directory. `Path.is_dir` raises for names
    # that are too long.
    if not given or not os.path.isdir(directory := Path(given)):
        raise ConfigError(f"destination is {destination!r}: it must be a directory that exists or a function")
    return lambda offer: directory / offer.name


async def _chosen(choose: Choice, offer: FileOffer) -> str | os.PathLike[str] | None:
    """What the application's function says; the file is refused where it raises, and the log shows where it did."""
    own = running_task()
    try:
        chosen = choose(offer)
        return await chosen if inspect.isawaitable(chosen) else chosen
    except BaseException as error:
        if is_ours(error, own):
            raise
        name = type(error).__name__
        logger.error("receive_files: %s raised %s%s", callable_name(choose), name, frames(error, __file__))
        raise ChoiceError(name) from error
