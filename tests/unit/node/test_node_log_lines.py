"""What servers and networks answer, in the log of a node: printable, in one line, cut."""

from __future__ import annotations

import asyncio
import logging

import pytest
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import TOPIC, virtual

from shardwire import NodeError
from shardwire.node import ConnectionState, MessageEnvelope
from shardwire.node.transport import Passing, PassingUntil, TransportNode
from shardwire.quoting import LINE_CHARACTERS_MAX

HOSTILE = "no\nCRITICAL all is lost\x1b[2J\x9b31m\u202e" + "y" * 2_000


class Failing(ScriptedTransport):
    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        raise NodeError(HOSTILE)


def test_every_line_is_printable_and_short(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        transport = Failing(has_store=True, asks_store_for_presence=True, stored=None)
        node = TransportNode(transport, rng=OnTime())
        await node.start()
        await node.subscribe([TOPIC])
        transport.answers.append(Passing(HOSTILE))
        await node.send(MessageEnvelope(TOPIC, b"1"))
        await asyncio.sleep(20)
        transport.answers.append(PassingUntil(HOSTILE, 5_000))
        await node.send(MessageEnvelope(TOPIC, b"2"))
        await asyncio.sleep(20)
        transport.link.connection(ConnectionState.DISCONNECTED, HOSTILE)
        transport.link.connection(ConnectionState.CONNECTED, HOSTILE)
        await node.unsubscribe([TOPIC])
        await node.stop()

    def fail(query: object) -> None:
        raise NodeError(HOSTILE)

    with caplog.at_level(logging.DEBUG, "shardwire"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedTransport, "query_store", lambda self, query: asyncio.sleep(0, fail(query)))
        run()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("shardwire")]
    for phrase in ("tried again", "nothing is published", "disconnected", "connected: ", "raised", "does not say"):
        assert any(phrase in line for line in lines), phrase
    hostile = [line for line in lines if "no CRITICAL" in line]
    assert len(hostile) >= 5
    assert [line for line in lines if not line.isprintable() or len(line) > LINE_CHARACTERS_MAX + 100] == []
