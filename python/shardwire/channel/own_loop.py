"""The event loop that a channel belongs to."""

from __future__ import annotations

import asyncio
import threading

from shardwire.errors import ConfigError


class OwnLoop:
    """Refuses calls from another event loop, on which a caller would wait for ever.

    Args:
        name: Names the channel.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def require_thread(self) -> None:
        """Refuses a caller in another thread; for what runs no coroutine, as subscribing.

        Raises:
            ConfigError: The caller runs in another thread than that of the loop.
        """
        if threading.get_ident() != self._thread:
            raise self._refuse()

    def require(self) -> None:
        """Refuses a caller on another event loop; for coroutines.

        Raises:
            ConfigError: The caller does not run on the loop that this was made on.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise self._refuse()

    def _refuse(self) -> ConfigError:
        return ConfigError(
            f"channel {self._name} is used on another event loop than the one it was made on: create it where it is "
            "used, or hand the call over with asyncio.run_coroutine_threadsafe, or call_soon_threadsafe of its loop"
        )
