"""Every refusal of a node that is known, with its text, and what follows: see the table in docs/guide/waku_rest.md."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from stub_waku_node import StubHttp, StubNetwork, StubNode
from virtual_nodes import TOPIC, virtual

from shardwire import RateLimitConfig
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageSendError,
    NodeConfig,
)
from shardwire.node.rest.publish_errors import PROOF_REFUSALS_MAX, Refusal, refusal_of, shown
from shardwire.node.rest.rest_store import StoreSettings
from shardwire.node.rest.transport import RestTransport
from shardwire.node.transport import Passing, PassingUntil, Permanent, Published, Restamp, TransportNode

RLN = "Failed to publish: error appending RLN proof to message: "
NONCE = (
    RLN + "could not get new message id to generate an rln proof: NonceLimitReached: Nonce limit reached. Please wait "
    "for the next epoch. requested nonce: 21 & nonceLimit: 20"
)
EPOCH_LEFT_MS = 7_000

PERMANENT = [
    (400, "message size exceeds gossipsub max message size"),
    (503, "lightpush errorcould not publish message: message size exceeds gossipsub max message size"),
    (400, "Failed to publish: Message size exceeded maximum of 153600 bytes"),
    (420, '{"statusDesc":"Message size exceeded maximum of 153600 bytes"}'),
    (413, ""),
    (413, "anything"),
    (400, "missing Payload field"),
    (400, "missing ContentTopic field"),
    (400, "invalid length for Meta field"),
    (400, "invalid content topic format : x"),
    (400, ""),
    (420, '{"statusDesc":"Invalid message"}'),
    (400, "Invalid push request"),
    (400, "Invalid content body, could not decode. Unable to deserialize data"),
    (400, "Autosharding is disabled"),
    (400, "Autosharding error: no shards"),
    (421, '{"statusDesc":"Unsupported pubsub topic"}'),
    (421, ""),
    (500, RLN + "identity credentials are not set"),
    (500, RLN + "membership index is not set"),
    (500, RLN + "user message limit is not set"),
]
PASSING = [
    (500, RLN + "merkle proof path refresh failed"),
    (500, RLN + "failed to fetch merkle root"),
    (500, RLN + "Ethereum RPC error"),
    (500, RLN + "could not generate rln proof"),
    (500, ""),
    (400, "validation throttled"),
    (400, "validation queue full"),
    (400, "validation ignored"),
    (500, "Failed to publish: timedout"),
    (500, "Failed to publish. No Waku Relay found"),
    (503, "push request timed out"),
    (429, ""),
    (429, "TOO_MANY_REQUESTS"),
    (503, "lightpush errorexceeds the rate limit"),
    (500, "Unable to send within retry time window"),
    (418, "something new"),
    (404, "404 page not found"),
    (302, ""),
]
ALONE = [
    (400, "not enough peers to publish"),
    (400, "cannot publish to unsubscribed topic"),
    (400, "Failed to publish: publish failed in relay: NoPeersToPublish"),
    (505, '{"statusDesc":"No peers for topic, skipping publish"}'),
    (503, "no suitable service peer"),
    (503, "no suitable remote peers"),
]
RESTAMPED = [
    (503, "Failed to publish: stale RLN proof suspected; refresh scheduled, retry the publish: RLN validation failed"),
    (504, "stale RLN proof suspected; refresh scheduled, retry the publish: RLN validation failed"),
]
PROOF_REFUSED = [
    (400, "Failed to publish: RLN validation failed"),
    (420, '{"statusDesc":"RLN validation failed"}'),
    (400, "validation failed"),
]
QUOTA = [(500, NONCE), (504, "nonce limit reached")]
KNOWN = [(400, "Failed to publish: Dropping already-seen message"), (420, "dropping already-seen message")]


@pytest.mark.parametrize(("status", "text"), PERMANENT)
def test_permanent(status: int, text: str) -> None:
    refusal = refusal_of(status, text.encode(), EPOCH_LEFT_MS)
    assert isinstance(refusal.answer, Permanent)
    assert str(status) in refusal.answer.error
    assert refusal == Refusal(refusal.answer)


@pytest.mark.parametrize(("status", "text"), PASSING)
def test_passing(status: int, text: str) -> None:
    refusal = refusal_of(status, text.encode(), EPOCH_LEFT_MS)
    assert refusal.answer == Passing(f"{status}: {text}" if text else str(status))
    assert refusal == Refusal(refusal.answer)


@pytest.mark.parametrize(("status", "text"), ALONE)
def test_nobody_in_reach(status: int, text: str) -> None:
    refusal = refusal_of(status, text.encode(), EPOCH_LEFT_MS)
    assert isinstance(refusal.answer, Passing)
    assert refusal.disconnected


@pytest.mark.parametrize(("status", "text"), RESTAMPED)
def test_stamped_anew(status: int, text: str) -> None:
    assert refusal_of(status, text.encode(), EPOCH_LEFT_MS).answer == Restamp(f"{status}: {text}")


@pytest.mark.parametrize(("status", "text"), PROOF_REFUSED)
def test_stamped_anew_a_few_times(status: int, text: str) -> None:
    answer = refusal_of(status, text.encode(), EPOCH_LEFT_MS).answer
    assert answer == Restamp(f"RLN: node clock or membership: {status}: {text}", PROOF_REFUSALS_MAX)


@pytest.mark.parametrize(("status", "text"), QUOTA)
def test_held_until_the_next_epoch(status: int, text: str) -> None:
    answer = refusal_of(status, text.encode(), EPOCH_LEFT_MS).answer
    assert isinstance(answer, PassingUntil)
    assert answer.wait_ms == EPOCH_LEFT_MS


@pytest.mark.parametrize(("status", "text"), KNOWN)
def test_what_the_network_has_seen_is_published(status: int, text: str) -> None:
    assert refusal_of(status, text.encode(), EPOCH_LEFT_MS).answer == Published()


def test_what_else_a_refusal_tells() -> None:
    assert refusal_of(400, b"PubSub hasn't been set", 1).no_relay
    assert refusal_of(400, b"Failed to publish: Node not subscribed to topic: /waku/2/rs/1/1", 1).not_subscribed


def test_a_text_is_shown_in_one_short_line() -> None:
    assert shown(b"a\r\n b\x1b[31m\xff\x00" + b"x" * 5_000) == "a b\\x1b[31m\ufffd\\x00" + "x" * 284
    assert shown(b"") == ""


# --- through a node ---


async def sending(node: StubNode, *answers: tuple[int, str], epoch_ms: int = 600_000) -> tuple[TransportNode, list]:  # type: ignore[type-arg]
    limit = RateLimitConfig(enabled=True, epoch_size_ms=epoch_ms, messages_per_epoch=100)
    it = TransportNode(
        RestTransport("stub", StubHttp(node), StoreSettings(use=False), None),
        replace(NodeConfig(), rate_limit_config=limit),
    )
    await it.start()
    node.publish_answers.extend(answers)
    told: list[object] = []

    async def read() -> None:
        async for event in it.events():
            told.append(event)

    it._reader = asyncio.create_task(read())  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    return it, told


def of_kind(told: list[object], kind: type) -> list:  # type: ignore[type-arg]
    return [event for event in told if isinstance(event, kind)]


@pytest.mark.parametrize(("status", "text"), [*PASSING, *ALONE, *RESTAMPED, *PROOF_REFUSED, *KNOWN])
def test_what_passes_is_tried_until_it_is_published(status: int, text: str) -> None:
    @virtual
    async def run() -> None:
        node = StubNode(StubNetwork())
        it, told = await sending(node, (status, text), (status, text))
        request_id = await it.send(MessageEnvelope(TOPIC, b"x"))
        await asyncio.sleep(5)
        assert [event.request_id for event in of_kind(told, MessagePropagated)] == [request_id]
        assert of_kind(told, MessageSendError) == []
        if (status, text) in ALONE:
            states = [event.state for event in of_kind(told, ConnectionStatus)]
            assert states[0] is ConnectionState.DISCONNECTED
            assert states[-1] is ConnectionState.CONNECTED

    run()


@pytest.mark.parametrize(("status", "text"), PERMANENT)
def test_what_is_permanent_fails_once(status: int, text: str) -> None:
    @virtual
    async def run() -> None:
        node = StubNode(StubNetwork())
        it, told = await sending(node, (status, text))
        request_id = await it.send(MessageEnvelope(TOPIC, b"x"))
        await asyncio.sleep(60)
        (error,) = of_kind(told, MessageSendError)
        assert (error.request_id, error.permanent) == (request_id, True)
        assert of_kind(told, MessagePropagated) == []

    run()


@pytest.mark.parametrize(("status", "text"), PROOF_REFUSED)
def test_a_proof_that_is_refused_again_and_again_is_permanent(status: int, text: str) -> None:
    @virtual
    async def run() -> None:
        node = StubNode(StubNetwork())
        it, told = await sending(node, *[(status, text)] * PROOF_REFUSALS_MAX)
        await it.send(MessageEnvelope(TOPIC, b"x"))
        await asyncio.sleep(60)
        (error,) = of_kind(told, MessageSendError)
        assert error.permanent
        assert "RLN: node clock or membership" in error.error

    run()


@pytest.mark.parametrize(("status", "text"), QUOTA)
def test_a_used_up_quota_is_told_with_its_end(status: int, text: str) -> None:
    @virtual
    async def run() -> None:
        node = StubNode(StubNetwork())
        it, told = await sending(node, (status, text))
        # The epoch began with the run's first second: what is left of it is longer than a message may wait.
        await it.send(MessageEnvelope(TOPIC, b"x"))
        await asyncio.sleep(1)
        (error,) = of_kind(told, MessageSendError)
        assert error.retry_after_ms is not None
        assert 590_000 < error.retry_after_ms < 600_000
        assert not error.permanent

    run()


@virtual
async def test_a_node_that_turns_out_to_have_no_relay_is_used_as_a_light_one() -> None:
    node = StubNode(StubNetwork())
    it, told = await sending(node)
    await it.subscribe([TOPIC])
    node.light = True
    request_id = await it.send(MessageEnvelope(TOPIC, b"x"))
    await asyncio.sleep(5)
    assert [event.request_id for event in of_kind(told, MessagePropagated)] == [request_id]
    assert node.count("POST", "/lightpush/v1") == 1
