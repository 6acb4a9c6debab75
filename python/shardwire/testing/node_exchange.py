"""Two nodes of one network that send one another messages, and what is seen of each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.node.protocol import MessageEnvelope, MessagePropagated, MessageReceived, MessageSendError
from shardwire.testing.node_reader import Reader
from shardwire.testing.promises import Trial, raised, shown

T = TypeVar("T")

# A network may lose a message: then it is sent again, as a channel does.
RESEND_MS = 2_000
# Between looks at what no event tells.
LOOK_MS = 500


@dataclass(slots=True)
class Side:
    """A node and those who read its events.

    Attributes:
        node: The node.
        name: What errors call it.
        readers: Its readers; the first is asked.
        request_ids: Of everything that it sent.
    """

    node: Any
    name: str
    readers: list[Reader] = field(default_factory=list)
    request_ids: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Exchanged:
    """A message that arrived.

    Attributes:
        envelope: As it was sent.
        request_ids: Of each time that it was sent.
        arrived: As it was told where it arrived first.
    """

    envelope: MessageEnvelope
    request_ids: list[str]
    arrived: MessageReceived


class Exchange:
    """Sends, and waits for what must come.

    Args:
        trial: The check.
        patience_ms: How long what must come may take.
        quiet_ms: How long nothing must come that should not.

    Attributes:
        tries: How often a message is sent that does not arrive.
    """

    def __init__(self, trial: Trial, patience_ms: int, quiet_ms: int) -> None:
        self.trial = trial
        self.patience_ms = patience_ms
        self.quiet_ms = quiet_ms
        self.tries = max(1, patience_ms // RESEND_MS)
        # The same payloads at each check.
        self._rng = random.Random(1)
        self._numbers = count(1)

    def payload(self, size: int = 300) -> bytes:
        """Another one each time, of any bytes."""
        return next(self._numbers).to_bytes(4, "big") + bytes(range(256))[: max(0, size - 4)] + self._noise(size - 260)

    async def within(self, call: str, awaitable: Awaitable[T], promise: str | None = None) -> T:
        """Awaits a call of a node.

        Args:
            call: What it is, for people.
            awaitable: What the call gave.
            promise: What it breaks where it does not return; None for what is tried.

        Raises:
            BrokenPromiseError: It does not return.
        """
        self.trial.did(call)
        try:
            async with asyncio.timeout(self.patience_ms / 1000) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            expected, came = "that it returns", f"nothing within {self.patience_ms} ms"
            if promise is not None:
                raise self.trial.breaks(promise, expected, came) from None
            self.trial.require(False, expected, came)
            raise

    async def send(self, sender: Side, envelope: MessageEnvelope) -> str:
        """Sends an envelope; the request id that the node gives it.

        Raises:
            NodeError: The node does not accept it.
            BrokenPromiseError: It returns no id of its own, or nothing.
        """
        trial, call = self.trial, f"send of {len(envelope.payload)} bytes by {sender.name}"
        try:
            request_id: object = await self.within(call, sender.node.send(envelope), "send")
        except (NodeError, PayloadTooLargeError, ConfigError, AssertionError):
            raise
        except Exception as error:
            raise trial.breaks("send", "an id, or NodeError", raised(error)) from error
        if not isinstance(request_id, str):
            raise trial.breaks("send", "a str", f"a {type(request_id).__name__}")
        if request_id in sender.request_ids:
            raise trial.breaks("send", "an id that no other message of this node has", f"{request_id!r} again")
        sender.request_ids.add(request_id)
        return request_id

    async def outcome(self, sender: Side, request_id: str) -> MessagePropagated | MessageSendError:
        """Waits for what the node says became of a request.

        Raises:
            BrokenPromiseError: None is told.
        """
        reader = sender.readers[0]
        if not await reader.until(lambda: bool(reader.outcomes(request_id)), self.patience_ms):
            raise self.trial.breaks(
                "outcome",
                f"MessagePropagated or MessageSendError for {request_id!r}",
                f"neither within {self.patience_ms} ms",
            )
        return reader.outcomes(request_id)[0]

    async def deliver(
        self, sender: Side, receiver: Side, topic: str, payload: bytes | None = None, **settings: Any
    ) -> Exchanged:
        """Sends a message until it arrives.

        Raises:
            BrokenPromiseError: It does not within `patience_ms`, or is another one then.
        """
        envelope = MessageEnvelope(topic, self.payload() if payload is None else payload, **settings)
        reader, trial = receiver.readers[0], self.trial
        known = len(reader.received(envelope.payload))
        request_ids: list[str] = []
        refused = ""
        for _ in range(self.tries):
            try:
                request_id = await self.send(sender, envelope)
            except NodeError as error:
                refused = raised(error)
                if error.permanent:
                    break
                await asyncio.sleep(RESEND_MS / 1000)
                continue
            request_ids.append(request_id)
            outcome = await self.outcome(sender, request_id)
            if isinstance(outcome, MessageSendError):
                refused = f"MessageSendError: {outcome.error}"
                if outcome.permanent:
                    break
            if await reader.until(lambda: len(reader.received(envelope.payload)) > known, RESEND_MS):
                return Exchanged(envelope, request_ids, reader.received(envelope.payload)[known])
        got = [event for event in reader.all_of(MessageReceived) if event.envelope.payload[:4] == envelope.payload[:4]]
        trial.did(f"send of {shown(envelope.payload)} on {topic} by {sender.name}, {self.tries} times at most")
        trial.require(
            False,
            f"MessageReceived with it at {receiver.name}",
            f"one with {shown(got[0].envelope.payload)}" if got else refused or "none",
        )
        raise AssertionError

    async def is_not_told(self, reader: Reader, payload: bytes, topic: str, done: str) -> None:
        """Waits a while, and requires that a message does not arrive.

        Raises:
            BrokenPromiseError: A message arrives that should not.
        """
        await reader.until(lambda: bool(reader.received(payload)), self.quiet_ms)
        self.trial.did(done)
        self.trial.require(not reader.received(payload), "nothing of it", f"a MessageReceived of {topic}")

    async def eventually(self, condition: Callable[[], Awaitable[bool]], timeout_ms: int) -> bool:
        """Whether something that no event tells comes in time."""
        for _ in range(max(1, timeout_ms // LOOK_MS)):
            if await condition():
                return True
            await asyncio.sleep(LOOK_MS / 1000)
        return False

    def _noise(self, size: int) -> bytes:
        return self._rng.randbytes(max(0, size))
