"""One participant of a channel, as the options of a command describe it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.output import Output, tell_received
from shardwire.config import ChannelConfig
from shardwire.config.channel import ID_BYTES_MAX
from shardwire.encryption import Encryption
from shardwire.errors import ConfigError, MissingLibraryError, PersistenceError
from shardwire.events import (
    IrretrievableMessageEvent,
    MessageReceivedEvent,
    NodeFailingEvent,
    SenderIdConflictEvent,
    WithinReachEvent,
)
from shardwire.node import ConnectionState, ConnectionStatus, UdpNode, create_node
from shardwire.node.waku_message import PubsubTopics
from shardwire.persistence import MemoryPersistence, Persistence, SqlitePersistence
from shardwire.quoting import printable

if TYPE_CHECKING:
    from shardwire.node.transport import TransportNode

DATABASE = "channels.sqlite"
# Acknowledgements of what came in leave within this.
CLOSING_MS = 5_000
# What errors of the library call the options.
_OPTION_OF_ARGUMENT = {"channel_id": "--channel", "content_topic": "--topic", "sender_id": "--sender"}

_OPTIONS_OF_STATE = {
    "use another database": "give another --state",
    "give the path of a new database": "give another --state",
    "give the key it began with": "give the key it began with by --state-key-file or --state-key-env",
    "open it without one": "leave out --state-key-file and --state-key-env",
}


@dataclass(frozen=True, slots=True)
class Participation:
    """Who takes part in which channel, by which node.

    Attributes:
        node: The node; not started.
        channel: The channel's id.
        topic: The content topic.
        sender: Who takes part.
        encryption: Of everything that is sent; None for none.
        state: Directory of what is kept; None keeps it in memory.
        state_key: Under which it is encrypted; None for none.
        config: The channel's configuration, without its persistence.
        as_json: Whether scripts read what is told.
        verbose: Whether more than warnings are shown of what the library logs.
        quiet: Whether nothing but what was asked for, and errors, is told.
        secret_variables: Environment variables that hold keys.
    """

    node: TransportNode = field(repr=False)
    channel: str
    topic: str
    sender: str
    encryption: Encryption | None
    state: Path | None
    state_key: bytes | None = field(repr=False)
    config: ChannelConfig
    as_json: bool
    verbose: bool
    quiet: bool
    secret_variables: tuple[str, ...] = ()

    @property
    def kept(self) -> str:
        """What becomes of what is unfinished, for people."""
        if self.state is None:
            return "it went with this process, as nothing is kept without --state"
        return f"it is kept in {self.state}, and goes on with the next command that has this --state"

    @property
    def unread(self) -> str:
        """What becomes of a message that came and that nobody reads, for people."""
        if self.state is None and self.node.has_store:
            return "nothing is kept without --state, but the store may bring it again"
        if self.state is None:
            return "it is lost, as nothing is kept without --state"
        return f"it is kept in {self.state}, and shown by the next command that has this --state"


def make_node(url: str, credentials: str | None, participant: str | None, *, option: str = "--node") -> TransportNode:
    """The node that a URL names.

    Raises:
        typer.BadParameter: It names none.
        MissingLibraryError: Its library is not installed.
    """
    try:
        return create_node(url, credentials=credentials, participant=participant)
    except MissingLibraryError:
        raise
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def check_names(channel: str, topic: str, sender: str) -> None:
    """Refuses names that no channel can have.

    Raises:
        typer.BadParameter: A name is too long or empty, or the topic none.
    """
    for option, value in (("--channel", channel), ("--topic", topic), ("--sender", sender)):
        size_bytes = len(value.encode("utf-8", "surrogateescape"))
        if not 1 <= size_bytes <= ID_BYTES_MAX:
            raise typer.BadParameter(f"it has {size_bytes} bytes: 1 to {ID_BYTES_MAX} are allowed", param_hint=option)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{value!r} is no UTF-8", param_hint=option) from None
    try:
        PubsubTopics(0, 1).of(topic)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from None


def participant_name(channel: str, sender: str) -> str:
    """How a participant is known to a network that keeps something for it: the same in every life of its state."""
    digest = sha256(f"{len(sender)} {sender}{channel}".encode()).hexdigest()
    return f"shardwire{digest[:14]}"


def open_state(state: Path | None, channel: str, key: bytes | None) -> Persistence:
    """Where a channel is kept; taken before anything of the network is used, so that a second process disturbs nobody.

    Raises:
        PersistenceError: Another process has it, or it cannot be used.
    """
    if state is None:
        return MemoryPersistence()
    # Refuses a key before anything is made.
    persistence = SqlitePersistence(state / DATABASE, key=key)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise PersistenceError(f"--state {str(state)!r} is no directory: name one") from None
    try:
        persistence.acquire(channel)
    except PersistenceError as error:
        persistence.close()
        raise in_words_of_options(error) from None
    return persistence


def in_words_of_options(error: PersistenceError) -> PersistenceError:
    """What is wrong with a state, and what to do about it on the command line."""
    text = str(error)
    for words, options in _OPTIONS_OF_STATE.items():
        text = text.replace(words, options)
    return PersistenceError(text)


@dataclass(slots=True)
class Member:
    """A participant that takes part.

    Attributes:
        channel: The channel.
        output: Where it tells what happens.
        interruption: Whether it should end.
        drain_ms: How long closing waits for what is unfinished; may be changed.
    """

    participation: Participation
    channel: ReliableChannel
    output: Output
    interruption: Interruption
    drain_ms: int = CLOSING_MS

    async def show(self, event: MessageReceivedEvent, written: Path | None = None) -> None:
        """Tells a message that came in, and the file that holds it where there is one.

        Where nobody can read it any more this does not return: the message is not ours, and the next life of the state
        is given it.
        """
        if not self.output.is_closed:
            tell_received(self.output, event, written)
            if await self.output.written() or written is not None:
                return
            self.output.complain(
                f"{self.output.why_closed}, so a message of {len(event.message):,} bytes from "
                f"{printable(event.sender_id)} was not shown: {self.participation.unread}"
            )
        await asyncio.Event().wait()

    def tell_closed(self) -> None:
        """Says what was left unfinished."""
        pending = self.channel.pending()
        stored = sum(send.stored for send in pending)
        self.output.event("closed", pending=len(pending), stored=stored)


@asynccontextmanager
async def taking_part(participation: Participation, interruption: Interruption) -> AsyncIterator[Member]:
    """Takes part in a channel, from the start of the node to its end.

    Raises:
        typer.BadParameter: An option does not fit what the state or the network says.
        ShardwireError: The state or the network cannot be used.
        InterruptedByUserError: The user ended it before it began.
        OSError: The standard output could not be written.
    """
    output = Output(as_json=participation.as_json, quiet=participation.quiet, on_closed=interruption.want)
    async with output.without_blocking(interruption), _joined(participation, interruption, output) as member:
        yield member


@asynccontextmanager
async def _joined(participation: Participation, interruption: Interruption, output: Output) -> AsyncIterator[Member]:
    node = participation.node
    persistence = open_state(participation.state, participation.channel, participation.state_key)
    watching: asyncio.Task[None] | None = None
    try:
        await interruption.unless(node.start())
        config = participation.config
        config = replace(config, sds=replace(config.sds, persistence=persistence))
        if not node.has_store:
            config = config.without_store()
        watching = asyncio.create_task(_watch(node, output))
        channel = await interruption.unless(_open_channel(participation, config))
        member = Member(participation, channel, output, interruption)
        _tell_joined(member)
        _tell_troubles(channel, output)
        try:
            yield member
        except BaseException:
            # Who gives up waits for nothing more.
            member.drain_ms = 0
            raise
        finally:
            # What is being shown is done then, or is the next life's.
            await output.written()
            await close_channel(channel, member.drain_ms)
            member.tell_closed()
    finally:
        if watching is not None:
            watching.cancel()
        await node.stop()
        persistence.close()


async def _open_channel(participation: Participation, config: ChannelConfig) -> ReliableChannel:
    try:
        return await create_reliable_channel(
            participation.node,
            participation.channel,
            participation.topic,
            participation.sender,
            participation.encryption,
            config,
        )
    except ConfigError as error:
        name, _, rest = str(error).partition(" ")
        if name not in _OPTION_OF_ARGUMENT:
            raise
        told = f"it {rest}".replace("another persistence", "another --state").replace("sender id", "--sender")
        raise typer.BadParameter(told, param_hint=_OPTION_OF_ARGUMENT[name]) from None


def _tell_joined(member: Member) -> None:
    participation, node = member.participation, member.participation.node
    address, port = _own_address(node)
    member.output.event(
        "joined",
        node=node.name,
        address=address,
        channel=participation.channel,
        topic=participation.topic,
        sender_id=participation.sender,
        store=node.has_store,
        message_bytes_max=node.max_message_size_bytes,
        encrypted=participation.encryption is not None,
        state=None if participation.state is None else os.fspath(participation.state),
        pending=len(member.channel.pending()),
    )
    store = "with a store" if node.has_store else "without a store"
    pending = len(member.channel.pending())
    member.output.remark(
        f"{participation.sender} takes part in {participation.channel} over {node.name}{port}, {store}"
        + (f"; {pending} earlier messages are on their way" if pending else "")
    )


def _own_address(node: TransportNode) -> tuple[str | None, str]:
    """Where a UDP node listens, for scripts; and for people the port, where a free one was asked for."""
    if not isinstance(node, UdpNode) or node.address is None:
        return None, ""
    host, port = node.address
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # Others need to know which port it is.
    return address, f" (port {port})" if node.name.endswith(":0") else ""


def _tell_troubles(channel: ReliableChannel, output: Output) -> None:
    def on_within_reach(event: WithinReachEvent) -> None:
        output.event("within-reach", within_reach=event.within_reach, in_store=event.in_store)
        if not event.within_reach:
            output.remark(f"nobody is within reach: a store has {event.in_store} messages for them")

    def on_node_failing(event: NodeFailingEvent) -> None:
        output.event("node-failing", failing=event.failing, error=event.error)
        if event.failing:
            output.remark(f"the network takes nothing: {printable(event.error)}; what waits is tried again")

    def on_conflict(event: SenderIdConflictEvent) -> None:
        output.event("sender-id-conflict", sender_id=event.sender_id)
        output.remark(f"another participant calls itself {printable(event.sender_id)}, too: choose another --sender")

    def on_irretrievable(event: IrretrievableMessageEvent) -> None:
        for entry in event.history_entries:
            output.event("irretrievable", message_id=entry.message_id)
        count = len(event.history_entries)
        if count == 1:
            output.remark("a message is missing, and nobody has given it so far; it is asked for again")
        else:
            output.remark(f"{count} messages are missing, and nobody has given them so far; they are asked for again")

    channel.on(NodeFailingEvent, on_node_failing)
    channel.on(WithinReachEvent, on_within_reach)
    channel.on(SenderIdConflictEvent, on_conflict)
    channel.on(IrretrievableMessageEvent, on_irretrievable)


async def _watch(node: TransportNode, output: Output) -> None:
    was_lost, was_there = False, False
    async for event in node.events():
        if not isinstance(event, ConnectionStatus):
            continue
        output.event("connection", state=event.state.value)
        # The library has logged why it was lost.
        if was_lost and event.state is not ConnectionState.DISCONNECTED:
            output.remark("connected again" if was_there else "connected")
        was_lost = event.state is ConnectionState.DISCONNECTED
        was_there = was_there or not was_lost
