"""Reliable channels: segmentation, Scalable Data Sync, rate limit and encryption over a messaging node."""

from __future__ import annotations

from shardwire.channel.creation import create_reliable_channel
from shardwire.channel.creation_coroutine import ChannelCreation
from shardwire.channel.limits.quota import RateLimitStatus
from shardwire.channel.observing.event_iterator import EventIterator
from shardwire.channel.observing.metric_names import GAUGES, MEASUREMENTS, METRICS
from shardwire.channel.observing.metrics import Measurement
from shardwire.channel.observing.timeline import SdsObservation, SegmentObservation
from shardwire.channel.reliable_channel import ReliableChannel, close_channel
from shardwire.channel.sending.cancellation import Cancellation
from shardwire.channel.sending.pending import PendingSend

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
