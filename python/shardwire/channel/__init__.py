"""Reliable channels: segmentation, Scalable Data Sync, rate limit and encryption over a messaging node."""

from __future__ import annotations

from shardwire.channel.cancellation import Cancellation
from shardwire.channel.creation import ChannelCreation, close_channel
from shardwire.channel.lifecycle import create_reliable_channel
from shardwire.channel.metric_names import GAUGES, MEASUREMENTS, METRICS
from shardwire.channel.metrics import Measurement
from shardwire.channel.outgoing import PendingSend
from shardwire.channel.rate_limit import RateLimitStatus
from shardwire.channel.reliable_channel import ReliableChannel
from shardwire.channel.subscriptions import EventIterator
from shardwire.channel.timeline import SdsObservation, SegmentObservation

__all__ = [
    "GAUGES",
    "MEASUREMENTS",
    "METRICS",
    "Cancellation",
    "ChannelCreation",
    "EventIterator",
    "Measurement",
    "PendingSend",
    "RateLimitStatus",
    "ReliableChannel",
    "SdsObservation",
    "SegmentObservation",
    "close_channel",
    "create_reliable_channel",
]
