"""A node over an MQTT broker."""

from __future__ import annotations

import re
import ssl
from importlib.util import find_spec
from uuid import uuid4

from shardwire.config.checks import check_integer, check_kind, check_text
from shardwire.errors import ConfigError, MissingLibraryError
from shardwire.node.clock import Clock
from shardwire.node.mqtt.status import MqttNodeStatus
from shardwire.node.protocol import NodeConfig
from shardwire.node.transport.address import parse_server_url
from shardwire.node.transport.node import TransportNode

DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}
DEFAULT_PREFIX = "shardwire"
SESSION_EXPIRY_MS = 300_000
# Every broker must take a client id of so many letters and digits (MQTT 5.0, 3.1.3.1).
CLIENT_ID_CHARACTERS = 23
# What a text of MQTT holds (MQTT 5.0, 1.5.4).
TEXT_BYTES_MAX = 0xFFFF
_SESSION_EXPIRY_MS_MAX = (2**32 - 2) * 1_000
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


class MqttNode(TransportNode):
    """A `Node` over an MQTT 5 broker, with QoS 1: every participant gets every message, and not its own.

    Messages go to `<topic_prefix>/<parts of the content topic>`. A broker has no store, so `has_store` is False; while
    the connection is away it keeps what comes in, as much as it likes, for `session_expiry_ms`. Messages are
    acknowledged to it once the node has them. `max_message_size_bytes` follows the Maximum Packet Size that the broker
    tells, and the `config` where that is smaller; no more messages are under way than its Receive Maximum.

    Args:
        url: `mqtt://host[:port]`, or `mqtts://...` for TLS. May hold `user:password@`.
        user: User name; instead of one in the URL.
        password: Its password.
        tls: Verifies the server and may hold a client certificate; given, TLS is used.
        client_id: Names this participant to the broker, which has one connection for each name. A participant that
            comes back under its name is given what was kept for it, also after a crash. None for a new one.
        session_expiry_ms: How long the broker keeps that; 0 for not at all.
        topic_prefix: The first levels of every topic.
        config: Configuration of the node.
        clock: Both times; None for those of the running event loop.

    Raises:
        ConfigError: An argument is wrong, or the library paho-mqtt is missing.
    """

    def __init__(
        self,
        url: str = "mqtt://localhost",
        *,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        client_id: str | None = None,
        session_expiry_ms: int = SESSION_EXPIRY_MS,
        topic_prefix: str = DEFAULT_PREFIX,
        config: NodeConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_kind("config", config, NodeConfig)
        check_kind("MqttNode: tls", tls, ssl.SSLContext)
        for name, text in (("user", user), ("password", password), ("client_id", client_id)):
            check_text(f"MqttNode: {name}", text, or_none=True)
        check_text("MqttNode: topic_prefix", topic_prefix)
        check_integer("MqttNode: session_expiry_ms", session_expiry_ms, 0, _SESSION_EXPIRY_MS_MAX)
        address = parse_server_url("MqttNode: url", url, DEFAULT_PORTS)
        if user is None and password is None:
            user, password = address.user, address.password
        elif address.user is not None:
            raise ConfigError("MqttNode: url holds credentials, and others are given beside it: keep one of them")
        if user is None and password is not None:
            raise ConfigError("MqttNode: password is given without a user")
        for name, text, least in (("client_id", client_id, 1), ("user", user, 0), ("password", password, 0)):
            if text is not None and not least <= len(text.encode()) <= TEXT_BYTES_MAX:
                raise ConfigError(
                    f"MqttNode: {name} has {len(text.encode())} bytes: it must have {least} to {TEXT_BYTES_MAX}"
                )
            # A broker ends the connection without a word for it (MQTT 5.0, 1.5.4); a password is no text.
            if text is not None and "\0" in text and name != "password":
                raise ConfigError(f"MqttNode: {name} holds a NUL, which no text of MQTT does: leave it out")
        if not _PREFIX.fullmatch(topic_prefix):
            raise ConfigError(
                f"MqttNode: topic_prefix is {topic_prefix!r}: it must be levels of A-Z a-z 0-9 _ - with / between them"
            )
        if find_spec("paho") is None:
            raise MissingLibraryError("MqttNode needs the library 'paho-mqtt': pip install 'shardwire[mqtt]'")
        from shardwire.node.mqtt.session import MqttLogin
        from shardwire.node.mqtt.transport import MqttTransport

        login = MqttLogin(
            address,
            client_id or f"shardwire{uuid4().hex}"[:CLIENT_ID_CHARACTERS],
            -(-session_expiry_ms // 1_000),
            user,
            password,
            ssl.create_default_context() if tls is None and address.scheme == "mqtts" else tls,
        )
        self._mqtt = MqttTransport(
            login, topic_prefix, size_bytes_max=None if config is None else config.max_message_size_bytes
        )
        super().__init__(self._mqtt, config, clock=clock)

    def status(self) -> MqttNodeStatus:
        """What the broker said when it let us in.

        Raises:
            NodeError: The node is not started.
        """
        self._require_running("status")
        return self._mqtt.status()
