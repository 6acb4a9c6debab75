"""The machine of a channel alone, for tests that say themselves what comes and when."""

from __future__ import annotations

import random
from collections.abc import Mapping

from sds_exchange import at

from shardwire._native import ChannelMachine, Delivery
from shardwire.config import ChannelConfig, DeliveredWhen
from shardwire.sds import Now
from shardwire.segmentation.parameters import native_parameters


def channel_machine(
    sender_id: str,
    config: ChannelConfig,
    records: Mapping[tuple[str, bytes], bytes] | None = None,
    *,
    now: Now | None = None,
    rng: random.Random | None = None,
    delivered_when: DeliveredWhen | None = None,
    members_make_parity: bool = False,
) -> ChannelMachine:
    """That of a participant of the channel "room", as records describe it."""
    return ChannelMachine.restore(
        records or {},
        "room",
        sender_id,
        config.sds,
        config.sync,
        native_parameters(config.segmentation),
        config.segmentation.limits,
        now=now or at(0),
        rng=rng or random.Random(sender_id),
        delivered_when=delivered_when,
        members_make_parity=members_make_parity,
    )


def delivered(machine: ChannelMachine) -> list[Delivery]:
    """Hands over all that waits for the application."""
    taken = []
    while begun := machine.begin_deliveries():
        for delivery in begun:
            machine.finish_delivery()
            taken.append(delivery)
    return taken
