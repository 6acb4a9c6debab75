"""A live page about a channel: participants, messages, quota, what follows what, throughput (extra `monitor`)."""

from __future__ import annotations

from shardwire.errors import MissingLibraryError

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise MissingLibraryError(
        f"shardwire.monitor needs the library {error.name}: pip install 'shardwire[monitor]'"
    ) from None

from shardwire.monitor.server import Monitor

__all__ = ["Monitor"]
