"""A node over a NATS server."""

from __future__ import annotations

import re
import ssl
from importlib.util import find_spec
from pathlib import Path

from shardwire.config.checks import check_kind, check_path, check_text
from shardwire.errors import ConfigError, MissingLibraryError
from shardwire.node.clock import Clock
from shardwire.node.nats.status import NatsNodeStatus
from shardwire.node.nats.stream import StreamLimits
from shardwire.node.protocol import NodeConfig
from shardwire.node.transport.address import parse_server_url
from shardwire.node.transport.node import TransportNode

DEFAULT_PORT = 4222
DEFAULT_NAME = "shardwire"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


class NatsNode(TransportNode):
    """A `Node` over a NATS server or cluster: every participant gets every message.

    Messages go to `<subject_prefix>.<parts of the content topic>.<message hash>`. Where the server has JetStream, a
    stream keeps them: `has_store` is True, whoever was away fetches what it missed, and `MessageSent` is told with the
    stream's acknowledgement. `max_message_size_bytes` follows the server's `max_payload`, and the `config` where that
    is smaller. What a slow consumer loses, or passes by during a reconnection, is told as `MessagesMissed`.

    Args:
        url: `nats://host[:port]`, or `tls://...`, which refuses a server without TLS. May hold `user:password@` or
            `token@`.
        user: User name; instead of one in the URL.
        password: Its password.
        token: A token instead of both.
        credentials: Path of a `.creds` file (JWT and nkey).
        tls: Verifies the server and may hold a client certificate; given, TLS is required.
        subject_prefix: The first token of every subject.
        stream: Name of the stream; None uses no JetStream. One that is missing is made, for `<subject_prefix>.>`.
        stream_limits: Of a stream that is made.
        config: Configuration of the node.
        clock: Both times; None for those of the running event loop.

    Raises:
        ConfigError: An argument is wrong, or the library nats-py is missing.
    """

    def __init__(
        self,
        url: str = "nats://localhost",
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        credentials: str | Path | None = None,
        tls: ssl.SSLContext | None = None,
        subject_prefix: str = DEFAULT_NAME,
        stream: str | None = DEFAULT_NAME,
        stream_limits: StreamLimits | None = None,
        config: NodeConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_kind("config", config, NodeConfig)
        check_kind("NatsNode: tls", tls, ssl.SSLContext)
        check_kind("NatsNode: stream_limits", stream_limits, StreamLimits)
        for name, text in (("user", user), ("password", password), ("token", token), ("stream", stream)):
            check_text(f"NatsNode: {name}", text, or_none=True)
        check_text("NatsNode: subject_prefix", subject_prefix)
        if credentials is not None:
            check_path("NatsNode: credentials", credentials, "a .creds file")
        address = parse_server_url("NatsNode: url", url, {"nats": DEFAULT_PORT, "tls": DEFAULT_PORT})
        if user is None and token is None and credentials is None:
            if address.password is None:
                token = address.user
            else:
                user, password = address.user, address.password
        elif address.user is not None:
            raise ConfigError("NatsNode: url holds credentials, and others are given beside it: keep one of them")
        given = [name for name, value in (("user", user), ("token", token), ("credentials", credentials)) if value]
        if len(given) > 1:
            raise ConfigError(f"NatsNode: {' and '.join(given)} are given: a server wants one of them")
        if (user is None) != (password is None):
            raise ConfigError("NatsNode: user and password must be given together")
        if credentials is not None and not Path(credentials).is_file():
            raise ConfigError("NatsNode: credentials must be the path of a .creds file, and there is no such file")
        for name, value in (("subject_prefix", subject_prefix), ("stream", stream)):
            if value is not None and not _TOKEN.fullmatch(value):
                raise ConfigError(f"NatsNode: {name} is {value!r}: it must be of the characters A-Z a-z 0-9 _ -")
        if find_spec("nats") is None:
            raise MissingLibraryError("NatsNode needs the library 'nats-py': pip install 'shardwire[nats]'")
        from shardwire.node.nats.session import NatsLogin
        from shardwire.node.nats.transport import NatsTransport

        login = NatsLogin(
            address,
            user,
            password,
            token,
            None if credentials is None else Path(credentials),
            tls,
        )
        self._nats = NatsTransport(
            login,
            subject_prefix,
            stream,
            stream_limits or StreamLimits(),
            size_bytes_max=None if config is None else config.max_message_size_bytes,
        )
        super().__init__(self._nats, config, clock=clock)

    async def status(self) -> NatsNodeStatus:
        """Asks the server what it is and has: version, limits, JetStream and the stream, its clock.

        Raises:
            NodeError: The node is not started, or the server does not answer.
        """
        self._require_running("status")
        return await self._nats.status()
