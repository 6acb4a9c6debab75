"""The event loop that a channel belongs to."""

from __future__ import annotations

import asyncio
import logging

from shardwire.errors import ConfigError

logger = logging.getLogger(__name__)


class OwnLoop:
    """Tells whoever calls from another event loop, on which it would wait for ever.

    Args:
        name: Names the channel.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._told = False

    def require(self) -> None:
        """Raises:
        ConfigError: The caller does not run on the loop that this was made on; the log says so once.
        """
        if asyncio.get_running_loop() is self._loop:
            return
        error = (
            f"channel {self._name} is used on another event loop than the one it was made on: create it where it is "
            "used, or hand the call over with asyncio.run_coroutine_threadsafe"
        )
        if not self._told:
            self._told = True
            logger.error("%s", error)
        raise ConfigError(error)
