"""Which waiting for a rate limit is told of."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from shardwire.channel.limits.limit import Limit
from shardwire.channel.limits.quota import Quota
from shardwire.channel.sending.limit_notices import LimitNotices
from shardwire.config import RateLimitConfig
from shardwire.peer_log import PeerLog
from shardwire.sds import Now
from shardwire.sds.outputs import TransmitKind

NOW_MS = 120_000
CONFIG = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=8, ack_reserve=0.25)


async def store(*_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("spent", "holds_contents", "told"),
    [
        pytest.param(TransmitKind.SYNC, False, False, id="acknowledgements wait for their turn"),
        pytest.param(TransmitKind.SYNC, True, True, id="a message waits too"),
        pytest.param(TransmitKind.FIRST, False, True, id="messages would wait as well"),
    ],
)
def test_acknowledgements_that_alone_wait_for_their_turn_are_not_told_of(
    spent: TransmitKind, holds_contents: bool, told: bool
) -> None:
    limit = Limit(CONFIG, store)
    member = limit.join(lambda: 0, lambda: NOW_MS)
    quota = Quota((limit, member))
    machine: Any = SimpleNamespace(waiting=lambda: dict.fromkeys(TransmitKind, 0), unplaced=0)
    events: list[Any] = []
    notices = LimitNotices(machine, quota, PeerLog(logging.getLogger(__name__), lambda: 0), events.append)
    asyncio.run(quota.take([spent] * 8))
    notices.on_limited(holds_contents, Now(0, NOW_MS))
    assert [event.resets_at_ms for event in events] == [180_000] * told
