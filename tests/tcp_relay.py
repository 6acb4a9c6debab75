"""A way to a server that can be cut."""

from __future__ import annotations

import asyncio


class TcpRelay:
    """Forwards connections to a server on loopback, until it is cut.

    Args:
        server_port: Where the server listens.

    Attributes:
        port: Where clients find it instead.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Breaks what stands, and lets nothing through."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def restore(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        await asyncio.gather(self._forward(reader, server_writer), self._forward(server_reader, writer))
        self._writers -= {writer, server_writer}

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
