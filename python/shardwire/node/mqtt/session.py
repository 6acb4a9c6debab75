"""One connection to an MQTT broker."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from shardwire.errors import NodeError
from shardwire.node.clock import Clock
from shardwire.node.mqtt.client import MqttClient
from shardwire.node.transport.address import ServerAddress, unreachable
from shardwire.node.transport.kept_connection import ConnectionLost, Session

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
# A broker that answers nothing is gone after two of these at most.
KEEP_ALIVE_S = 5
LOOK_S = 1.0
CLOSE_TIMEOUT_S = 2.0
# Messages that a broker may send before the first of them is acknowledged.
RECEIVE_MAX = 256
# The largest packet that a broker may send.
PACKET_BYTES_MAX = 16 << 20
# What an earlier process subscribed to comes in before its successor has subscribed.
UNKNOWN_TOPIC_WAIT_S = 10.0
QOS = 1

_UNSUPPORTED_PROTOCOL_VERSION = 0x84
_SESSION_TAKEN_OVER = 0x8E


@dataclass(frozen=True, slots=True)
class MqttLogin:
    """Where the broker is, and what it is shown."""

    address: ServerAddress
    client_id: str
    session_expiry_s: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What a broker says when it lets us in.

    Attributes:
        packet_bytes_max: Its Maximum Packet Size; None where it has none but the protocol's.
        receive_max: Its Receive Maximum.
        session_expiry_s: How long it keeps a session, where it says that it is another time than was asked for.
    """

    packet_bytes_max: int | None
    receive_max: int
    session_expiry_s: int | None = None


class MqttSession(Session):
    """A connection that is open, until it breaks. `open` makes one.

    Args:
        clock: Unix time.
        on_data: Given each message: what was subscribed, the data.
        topic_of: The broker's topic for a content topic.
    """

    def __init__(self, clock: Clock, on_data: Callable[[str, bytes], None], topic_of: Callable[[str], str]) -> None:
        super().__init__()
        self.heard_ns = clock.epoch_ns()
        # Size of the largest message that waited for its acknowledgement when the broker sent what is no packet of
        # MQTT 5.0; 0 where it did not.
        self.unreadable_after_bytes = 0
        self._clock = clock
        self._on_data = on_data
        self._topic_of = topic_of
        self._loop = asyncio.get_running_loop()
        # The broker's topic -> content topic.
        self._topics: dict[str, str] = {}
        # Acknowledged only once somebody subscribed to their topics.
        self._unclaimed: list[paho.MQTTMessage] = []
        self._answers: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        # With the size of each message.
        self._acknowledgements: dict[int, tuple[int, asyncio.Future[ReasonCode]]] = {}
        self._connected: asyncio.Future[tuple[ReasonCode, Properties | None]] = self._loop.create_future()
        self._client: paho.Client | None = None
        self._socket: Any = None
        self._looks: asyncio.Task[None] | None = None
        self._sends_at_once = 1
        self._room = asyncio.Semaphore(self._sends_at_once)

    def break_(self, reason: str) -> None:
        super().break_(reason)
        # Nobody waits for room at a broker that is gone.
        for _ in range(self._sends_at_once):
            self._room.release()

    async def open(self, login: MqttLogin, sends_at_once: int) -> BrokerLimits:
        """Connects.

        Raises:
            NodeError: The broker is out of reach, or refuses us, or speaks no MQTT 5.
        """
        address = login.address
        try:
            async with asyncio.timeout(2 * CONNECT_TIMEOUT_S):
                await self._connect(login)
                reason, properties = await self.unless_broken(asyncio.shield(self._connected))
        except TimeoutError:
            await self.close()
            raise NodeError(f"{address} cannot be used: no answer in time") from None
        except ConnectionLost as lost:
            await self.close()
            raise NodeError(
                f"{address} cannot be used: it closed the connection without an answer ({lost}), as brokers do that "
                "do not speak MQTT 5.0, or where another port or TLS is wanted"
            ) from None
        except (OSError, ValueError) as error:
            await self.close()
            told = unreachable(error) if isinstance(error, OSError) else str(error)
            raise NodeError(f"{address} cannot be used: {told or type(error).__name__}") from None
        except BaseException:
            await self.close()
            raise
        if reason.is_failure:
            await self.close()
            if reason.value == _UNSUPPORTED_PROTOCOL_VERSION:
                raise NodeError(f"{address} does not speak MQTT 5.0, which MqttNode needs: update the broker")
            raise NodeError(f"{address} refuses this client: {reason}")
        if getattr(properties, "MaximumQoS", 2) < QOS:
            await self.close()
            raise NodeError(f"{address} carries messages with QoS 0 only: MqttNode needs QoS 1")
        limits = BrokerLimits(
            getattr(properties, "MaximumPacketSize", None),
            getattr(properties, "ReceiveMaximum", 0xFFFF),
            getattr(properties, "SessionExpiryInterval", None),
        )
        self._sends_at_once = sends_at_once
        self._room = asyncio.Semaphore(max(1, min(limits.receive_max, sends_at_once)))
        self._looks = asyncio.create_task(self._look(), name=f"{address} keep alive")
        return limits

    async def subscribe(self, content_topic: str) -> None:
        topic = self._topic_of(content_topic)
        if topic in self._topics:
            return
        self._topics[topic] = content_topic
        options = SubscribeOptions(qos=QOS, noLocal=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        try:
            (reason,) = await self._ask(lambda client: client.subscribe(topic, options=options))
        except BaseException:
            self._topics.pop(topic, None)
            raise
        if reason.is_failure:
            self._topics.pop(topic, None)
            raise NodeError(f"the broker lets this client not subscribe to {topic}: {reason}")
        unclaimed, self._unclaimed = self._unclaimed, []
        for message in unclaimed:
            self._take(message)

    async def unsubscribe(self, content_topic: str) -> None:
        topic = self._topic_of(content_topic)
        if self._topics.pop(topic, None) is not None:
            await self._ask(lambda client: client.unsubscribe(topic))

    async def publish(self, topic: str, data: bytes) -> ReasonCode:
        """Publishes once the broker has room for one more, and waits for its acknowledgement.

        Raises:
            ConnectionLost: The session broke first.
        """
        await self._room.acquire()
        client = self._client
        if client is None or self.is_broken:
            self._room.release()
            raise ConnectionLost("the connection is closed")
        info = client.publish(topic, data, qos=QOS)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._room.release()
            raise ConnectionLost(paho.error_string(info.rc))
        acknowledgement: asyncio.Future[ReasonCode] = self._loop.create_future()
        # Room is there again when the broker says so, whoever still waits for it.
        acknowledgement.add_done_callback(lambda _: self._room.release())
        self._acknowledgements[info.mid] = len(data), acknowledgement
        return await self.unless_broken(asyncio.shield(acknowledgement))

    async def say_goodbye(self) -> None:
        """The broker then keeps nothing for this client any more."""
        if self._client is None or self.is_broken:
            return
        properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0
        self._client.disconnect(properties=properties)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.broken()
        except TimeoutError:
            return

    async def close(self) -> None:
        self.break_("closed")
        if self._looks is not None:
            self._looks.cancel()
        self._detach()
        client, self._client = self._client, None
        connection = None if client is None else client.socket()
        if connection is not None:
            connection.close()

    # --- the library's client ---

    async def _connect(self, login: MqttLogin) -> None:
        client = MqttClient(
            CallbackAPIVersion.VERSION2,
            client_id=login.client_id,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        # The session counts by itself, as the broker says.
        client.max_inflight_messages_set(0)
        if login.user is not None:
            client.username_pw_set(login.user, login.password)
        if login.tls is not None:
            client.tls_set_context(login.tls)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_answer
        client.on_unsubscribe = self._on_answer
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = login.session_expiry_s
        properties.ReceiveMaximum = RECEIVE_MAX
        properties.MaximumPacketSize = PACKET_BYTES_MAX
        # It blocks until the connection stands and TLS is agreed on.
        connecting = self._loop.run_in_executor(
            None,
            lambda: client.connect(
                login.address.host, login.address.port, KEEP_ALIVE_S, clean_start=False, properties=properties
            ),
        )
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(lambda done: _close_late(client, done))
            raise
        self._client = client
        self._attach(client)

    def _attach(self, client: paho.Client) -> None:
        """Lets the event loop serve the client's socket."""
        connection: Any = client.socket()
        if connection is None:
            self.break_("the connection was closed")
            return
        self._socket = connection
        client.on_socket_close = lambda *_: self._detach()
        client.on_socket_register_write = lambda *_: self._loop.add_writer(connection, self._serve, client.loop_write)
        client.on_socket_unregister_write = self._on_written
        self._loop.add_reader(connection, self._read, client, connection)
        if client.want_write():
            self._loop.add_writer(connection, self._serve, client.loop_write)

    def _detach(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None and connection.fileno() >= 0:
            self._loop.remove_reader(connection)
            self._loop.remove_writer(connection)

    def _read(self, client: paho.Client, connection: Any) -> None:
        self.heard_ns = self._clock.epoch_ns()
        self._serve(client.loop_read)
        # What TLS has decoded already makes no socket readable.
        while self._socket is connection and isinstance(connection, ssl.SSLSocket) and connection.pending():
            self._serve(client.loop_read)

    def _serve(self, step: Callable[[], MQTTErrorCode]) -> None:
        """Runs a step of the client; what it makes of a broker's bytes ends at most the session."""
        try:
            code = step()
        except Exception as error:
            self.break_(f"the client raised {type(error).__name__}")
            self._detach()
            return
        if code == MQTTErrorCode.MQTT_ERR_PROTOCOL:
            self.unreadable_after_bytes = max((size for size, _ in self._acknowledgements.values()), default=0)
            self.break_("the broker sent what is no packet of MQTT 5.0")
        elif code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self.break_("the connection broke")

    async def _look(self) -> None:
        """Lets the client send its pings, and drops what nobody subscribes to."""
        begun_s = self._loop.time()
        while not self.is_broken and self._client is not None:
            self._serve(self._client.loop_misc)
            if self._unclaimed and self._loop.time() - begun_s > UNKNOWN_TOPIC_WAIT_S:
                unclaimed, self._unclaimed = self._unclaimed, []
                for message in unclaimed:
                    self._client.ack(message.mid, message.qos)
                for topic in {message.topic for message in unclaimed} - set(self._topics):
                    self._client.unsubscribe(topic)
            await asyncio.sleep(LOOK_S)

    async def _ask(self, request: Callable[[paho.Client], tuple[MQTTErrorCode, int | None]]) -> list[ReasonCode]:
        """Makes a request and waits for its answer."""
        if self._client is None or self.is_broken:
            raise ConnectionLost("the connection is closed")
        code, number = request(self._client)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or number is None:
            raise ConnectionLost(paho.error_string(code))
        answer: asyncio.Future[list[ReasonCode]] = self._loop.create_future()
        self._answers[number] = answer
        try:
            return await self.unless_broken(answer)
        finally:
            self._answers.pop(number, None)

    # --- callbacks of the client, all on the event loop ---

    def _on_connect(
        self, client: Any, data: Any, flags: Any, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if not self._connected.done():
            self._connected.set_result((reason, properties))

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if isinstance(reason, ReasonCode) and reason.value == _SESSION_TAKEN_OVER:
            self.break_("another client came under the same client_id: give each participant its own")
        elif flags.is_disconnect_packet_from_server:
            self.break_(f"the broker ends it: {reason}")
        else:
            # Who called the client knows more.
            self._loop.call_soon(self.break_, "the connection broke")

    def _on_written(self, client: Any, data: Any, connection: Any) -> None:
        self._loop.remove_writer(connection)

    def _on_message(self, client: Any, data: Any, message: paho.MQTTMessage) -> None:
        self._take(message)

    def _take(self, message: paho.MQTTMessage) -> None:
        client = self._client
        if client is None:
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        content_topic = self._topics.get(topic)
        if content_topic is None and message.qos == QOS and topic:
            self._unclaimed.append(message)
            return
        if content_topic is not None:
            self._on_data(content_topic, bytes(message.payload))
        client.ack(message.mid, message.qos)

    def _on_publish(self, client: Any, data: Any, number: int, reason: ReasonCode, properties: Any) -> None:
        _, acknowledgement = self._acknowledgements.pop(number, (0, None))
        if acknowledgement is not None and not acknowledgement.done():
            acknowledgement.set_result(reason)

    def _on_answer(self, client: Any, data: Any, number: int, reasons: Any, properties: Any) -> None:
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(list(reasons) if isinstance(reasons, list) else [reasons])


def _close_late(client: paho.Client, done: asyncio.Future[Any]) -> None:
    """Closes a connection that came to stand when nobody waited for it any more."""
    if not done.cancelled():
        done.exception()
    connection = client.socket()
    if connection is not None:
        connection.close()
