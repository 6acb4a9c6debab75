"""`MqttNode`: messages over an MQTT 5 broker. Needs the extra `mqtt`."""

from __future__ import annotations

from shardwire.node.mqtt.node import MqttNode

__all__ = ["MqttNode"]
