"""How large messages may be at present: the node may change that while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.cipher_calls import CIPHER_TIMEOUT_MS
from shardwire.channel.hooks import end_tasks, is_ours
from shardwire.channel.node_members import NODE_MESSAGE_BYTES_MAX
from shardwire.channel.sending.segment_size import (
    CIPHER_BYTES_ASSUMED,
    MessageBudget,
    cipher_overhead_bytes,
    divide_message,
    payload_bytes_max,
)
from shardwire.errors import ConfigError

logger = logging.getLogger(__name__)


class MessageSizes:
    """Divides the node's messages when a channel is created, and again whenever the node changes their size.

    `measure` comes before everything else, and `connect` before the node is asked again.

    Args:
        arguments: Of the channel; its node says how large its messages are, its config which segment size is wished
            for.

    Attributes:
        budget: How a message is divided; set by `measure`.
    """

    def __init__(self, arguments: ChannelArguments) -> None:
        self._arguments = arguments
        self._size_bytes = 0
        # A size of the node's messages, and what an envelope of that carries: asked for each.
        self._payload_of_size = (0, 0)
        self._cipher_bytes: int | None = None
        self._refusal: ConfigError | None = None
        self._measuring = asyncio.Lock()
        # The event loop itself refers to a task weakly.
        self._look_task: asyncio.Task[None] | None = None
        self.budget: MessageBudget
        self._use: Callable[[MessageBudget], None]

    def connect(self, use: Callable[[MessageBudget], None]) -> None:
        """Names what is called with each new budget."""
        self._use = use

    @property
    def payload_bytes_max(self) -> int:
        """What the payload of an envelope may have."""
        arguments, size_bytes = self._arguments, self._said_bytes() or self._size_bytes
        if self._payload_of_size[0] != size_bytes:
            self._payload_of_size = (
                size_bytes,
                payload_bytes_max(size_bytes, arguments.content_topic, arguments.envelope_meta),
            )
        return self._payload_of_size[1]

    async def measure(self) -> None:
        """Divides messages for the first time, by the size that the node said when it was asked.

        Raises:
            ConfigError: They are too small to carry anything, or the cipher is none.
        """
        self._size_bytes = self._arguments.members.max_message_size_bytes
        self._cipher_bytes = await self._measure_cipher()
        self.budget = self._divide(self._cipher_bytes)

    def are_current(self) -> bool:
        """Whether messages may be made as `budget` says; else `refresh` comes first."""
        return self._refusal is None and self._said_bytes() in (None, self._size_bytes)

    def _said_bytes(self) -> int | None:
        """What the node says now; None where that is no size."""
        try:
            size_bytes = self._arguments.node.max_message_size_bytes
        except BaseException as error:
            if is_ours(error):
                raise
            logger.debug("max_message_size_bytes of the node raised %s", type(error).__name__)
            return None
        return size_bytes if type(size_bytes) is int and 0 < size_bytes <= NODE_MESSAGE_BYTES_MAX else None

    def look(self) -> bool:
        """Whether messages may be made now; begins to divide them anew where the node says another size."""
        # Asked once: it may say something else the next time.
        said_bytes = self._said_bytes()
        if said_bytes in (None, self._size_bytes):
            return self._refusal is None
        if self._look_task is None:
            self._look_task = asyncio.create_task(self._refresh_quietly(said_bytes))
        return False

    async def _refresh_quietly(self, said_bytes: int | None) -> None:
        try:
            async with self._measuring:
                await self._follow(said_bytes)
        finally:
            self._look_task = None

    async def close(self) -> None:
        """Nothing is divided any more."""
        if self._look_task is not None:
            await end_tasks([self._look_task])

    async def refresh(self) -> None:
        """Divides anew where the node says another size.

        Raises:
            ConfigError: Its messages are too small to carry anything at present.
        """
        async with self._measuring:
            await self._follow(self._said_bytes())
        if self._refusal is not None:
            raise self._refusal

    async def _follow(self, size_bytes: int | None) -> None:
        before_bytes = self._size_bytes
        if size_bytes is None or size_bytes == before_bytes:
            return
        logger.info("the node's messages have %d bytes now, no longer %d", size_bytes, before_bytes)
        try:
            async with asyncio.timeout(CIPHER_TIMEOUT_MS / 1000):
                cipher_bytes = await self._measure_cipher()
        except (TimeoutError, ConfigError) as error:
            said = str(error) or "it did not return"
            logger.warning("the overhead of the encryption cannot be measured and is taken in proportion: %s", said)
            known = self._cipher_bytes or 0
            cipher_bytes = max(min(known, CIPHER_BYTES_ASSUMED), known * size_bytes // before_bytes)
        # Not before: what is made meanwhile would be divided as before, and so would all later where this is cancelled.
        self._size_bytes, self._cipher_bytes, self._refusal = size_bytes, cipher_bytes, None
        try:
            self.budget = self._divide(cipher_bytes)
        except ConfigError as error:
            logger.error("nothing can be sent: %s", error)
            self._refusal = error
        else:
            self._use(self.budget)

    async def _measure_cipher(self) -> int:
        return await cipher_overhead_bytes(self._arguments.encryption, self.payload_bytes_max)

    def _divide(self, cipher_bytes: int) -> MessageBudget:
        arguments = self._arguments
        return divide_message(
            arguments.config,
            max_message_size_bytes=self._size_bytes,
            content_topic=arguments.content_topic,
            channel_id=arguments.channel_id,
            sender_id=arguments.sender_id,
            cipher_bytes=cipher_bytes,
        )
