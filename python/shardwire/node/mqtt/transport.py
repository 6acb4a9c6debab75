"""How messages travel over an MQTT broker."""

from __future__ import annotations

from paho.mqtt.reasoncodes import ReasonCode

from shardwire.errors import NodeError
from shardwire.node.mqtt.session import BrokerLimits, MqttLogin, MqttSession
from shardwire.node.mqtt.status import MqttNodeStatus
from shardwire.node.transport.answers import Ambiguous, Answer, Passing, Permanent, Published
from shardwire.node.transport.kept_connection import ConnectionLost, KeptConnection
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.topic_names import topic_name
from shardwire.node.transport.transport import Transport, TransportLink

PUBLISHES_AT_ONCE = 32
# Where a broker tells no limit: what most of them take.
MESSAGE_BYTES_MAX = 1 << 20
# A PUBLISH beside its payload: the fixed header, the packet's number, no properties, and its topic.
PUBLISH_HEADER_BYTES = 5 + 2 + 1
TOPIC_BYTES = 512
# Answers of that kind after which a message is given up.
UNREADABLE_MAX = 2
# Reason codes of a PUBACK (MQTT 5.0, 3.4.2.1) after which the same message is refused again.
_FINAL_REASONS = frozenset({0x87, 0x90, 0x99})


class MqttTransport(Transport):
    """Publishes to one topic a content topic.

    Args:
        login: Where, under which name and with which credentials.
        topic_prefix: First levels of every topic.
        size_bytes_max: Largest encoded message; None for what the broker carries.
    """

    publishes_at_once = PUBLISHES_AT_ONCE

    def __init__(self, login: MqttLogin, topic_prefix: str, *, size_bytes_max: int | None) -> None:
        self.name = str(login.address)
        self._login = login
        self._topic_prefix = topic_prefix
        self._size_bytes_max = MESSAGE_BYTES_MAX if size_bytes_max is None else size_bytes_max
        # How often a message, by its number, was the largest one when the broker sent something unreadable.
        self._unreadable: dict[int, int] = {}
        self._connection: KeptConnection[MqttSession] | None = None
        self._limits = BrokerLimits(None, 0)

    async def connect(self, link: TransportLink) -> None:
        self._link = link
        self._connection = KeptConnection(self.name, self._open, link)
        await self._connection.start()

    async def disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.stop()

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        assert self._connection is not None
        topic = self._topic_of(content_topic)
        if len(topic) > TOPIC_BYTES:
            raise NodeError(f"the content topic takes {len(topic)} bytes at the broker: {TOPIC_BYTES} may be")
        await self._connection.subscribe(content_topic)

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        assert self._connection is not None
        await self._connection.unsubscribe(content_topic)

    async def publish(self, message: OutgoingMessage) -> Answer:
        session = self._session
        if session is None:
            return Passing("the broker is out of reach")
        topic = self._topic_of(message.envelope.content_topic)
        if len(topic) > TOPIC_BYTES:
            return Permanent(f"the content topic takes {len(topic)} bytes at the broker: {TOPIC_BYTES} may be")
        data = message.encode()
        try:
            reason = await session.publish(topic, data)
        except ConnectionLost as lost:
            if session.unreadable_after_bytes == len(data):
                return self._on_unreadable(message, len(data))
            return Ambiguous(str(lost))
        self._unreadable.pop(message.number, None)
        return _answer_of(reason, topic)

    def status(self) -> MqttNodeStatus:
        """What the broker said when it let us in last."""
        limits = self._limits
        expiry_s = self._login.session_expiry_s if limits.session_expiry_s is None else limits.session_expiry_s
        return MqttNodeStatus(
            self._link.state,
            self._login.client_id,
            self._login.tls is not None,
            limits.packet_bytes_max,
            limits.receive_max,
            expiry_s * 1_000,
        )

    # --- details ---

    @property
    def _session(self) -> MqttSession | None:
        return None if self._connection is None else self._connection.session

    def _topic_of(self, content_topic: str) -> str:
        return topic_name(self._topic_prefix, content_topic, "/")

    async def _open(self) -> MqttSession:
        session = MqttSession(self._link.clock, self._on_data, self._topic_of)
        limits = self._limits = await session.open(self._login, PUBLISHES_AT_ONCE)
        size_bytes = self._size_bytes_max
        if limits.packet_bytes_max is not None:
            carried = limits.packet_bytes_max - PUBLISH_HEADER_BYTES - 2 - TOPIC_BYTES
            if carried < 1:
                await session.close()
                raise NodeError(
                    f"{self.name} carries packets of {limits.packet_bytes_max} bytes: too small for any message"
                )
            size_bytes = min(size_bytes, carried)
        self._link.max_message_size_bytes = size_bytes
        return session

    def _on_unreadable(self, message: OutgoingMessage, size_bytes: int) -> Answer:
        """Some brokers refuse a large message with a reason that an acknowledgement cannot have, and libraries end the
        connection for it: mosquitto does with its `message_size_limit`. Such a message would end every connection.
        """
        times = self._unreadable.pop(message.number, 0) + 1
        error = (
            f"the broker answers a message of {size_bytes} bytes with what is no MQTT 5.0: it may be too large for it"
        )
        if times >= UNREADABLE_MAX:
            return Permanent(error)
        self._unreadable[message.number] = times
        return Ambiguous(error)

    def _on_data(self, content_topic: str, data: bytes) -> None:
        self._link.received_encoded(data, content_topic=content_topic)


def _answer_of(reason: ReasonCode, topic: str) -> Answer:
    """What a broker's acknowledgement means. That nobody is subscribed is no failure."""
    if not reason.is_failure:
        return Published()
    if reason.value in _FINAL_REASONS:
        return Permanent(f"the broker refuses the message on {topic}: {reason}")
    return Passing(f"the broker does not take the message: {reason}")
