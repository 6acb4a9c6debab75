"""`MqttNode`: messages over an MQTT 5 broker. Needs the extra `mqtt`."""

from __future__ import annotations

from shardwire.node.mqtt.node import MqttNode
from shardwire.node.mqtt.status import MqttNodeStatus

__all__ = ["MqttNode", "MqttNodeStatus"]
