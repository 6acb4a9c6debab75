"""What a transport's `publish` returns, by mistake too."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import TOPIC, virtual

from shardwire.node import MessageEnvelope
from shardwire.node.transport import Passing, PassingUntil, Published, Restamp, TransportNode

ANYTHING: Any = "1000"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "returned NoneType: it must return an answer, as Published()"),
        ("ok", "returned str: it must return an answer"),
        (Published, "returned the class Published: it must return an answer"),
        (Passing(OSError("away")), "returned Passing with error of OSError: it must be str"),  # type: ignore[arg-type]
        (PassingUntil("quota", ANYTHING), "returned PassingUntil with wait_ms of str: it must be int"),
        (Restamp("old", ANYTHING), "returned Restamp with attempts_max of str: it must be int"),
    ],
)
def test_what_is_no_answer_is_told_and_tried_again(answer: Any, told: str, caplog: pytest.LogCaptureFixture) -> None:
    class Mistaken(ScriptedTransport):
        calls_of_publish = 0

        async def publish(self, message: Any) -> Any:
            self.calls_of_publish += 1
            return answer if self.calls_of_publish < 3 else Published()

    @virtual
    async def run() -> None:
        transport = Mistaken()
        node = TransportNode(transport, rng=OnTime())
        await node.start()
        await node.send(MessageEnvelope(TOPIC, b"1"))
        await asyncio.sleep(1)
        # Half a second lies between, however wrong the answer is.
        assert transport.calls_of_publish == 2
        await asyncio.sleep(1)
        assert transport.calls_of_publish == 3
        await node.stop()

    with caplog.at_level(logging.WARNING, "shardwire.node.transport.outbox"):
        run()
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("outbox")]
    assert line.startswith("scripted: publishing fails and is tried again: publish of the transport ")
    assert told in line
