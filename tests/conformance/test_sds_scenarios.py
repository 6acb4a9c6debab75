"""Replays what @waku/sds 0.0.8 did, step by step under a fixed clock: wire bytes, events and state.

The machine runs in the configuration that speaks to it: ids by content, 200 history entries, the filter on every
message, no syncs of its own. Where the peer's behaviour is a bug (the numbers are those of the summary in
docs/decisions) or belongs to its own calling convention, the step is named in `EXCEPTIONS` with what is expected
instead.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from shardwire._native import SdsMessage
from shardwire.config import SdsConfig, SyncConfig
from shardwire.sds import (
    ContentAcknowledged,
    ContentReceived,
    DependencyLost,
    EphemeralReceived,
    MessageChannel,
    MessageDropped,
    MissingDetected,
    Now,
    SendAcknowledged,
    SendReleased,
    SyncReceived,
    TransmitKind,
)

VECTORS = Path(__file__).parents[1] / "vectors" / "sds_scenarios"
NEVER_MS = 10**9
SWEEP_MS = 1

Event = tuple[str, Any]

# (scenario, step) -> (what the peer says there and we do not, what we say instead, why)
EXCEPTIONS: dict[tuple[str, int], tuple[list[str], list[Event], str]] = {
    ("1_in_order_chat", 20): (
        ["sds:in:message-received", "sds:in:message-delivered"],
        [],
        "D10: a message delivered directly and received again is delivered again by the peer; here it is a duplicate",
    ),
    ("2_lost_then_resend", 22): (
        ["sds:in:message-received", "sds:in:message-delivered"],
        [],
        "D10, as above",
    ),
    ("2_lost_then_resend", 13): (
        ["sds:in:message-missing"],
        [],
        "the peer tells every known gap again with each dependent; here a gap is told once",
    ),
    ("2_lost_then_resend", 20): (
        [],
        [("sds:in:message-delivered", "eeb1feb1396c99384d6925b23457f75187fee8e5d75f5ea0575b79212fc28432")],
        "D20: the peer drops a message whose dependency is lost; here it is delivered (as 0.0.9 does)",
    ),
    ("2_lost_then_resend", 26): (
        ["sds:in:message-missing"],
        [
            (
                "sds:in:message-missing",
                [
                    "ab74e526f10b6d2534ee99460fe50392cc94adc836c185144fea77fdbdfa5ae9",
                    "80a9c32aad8b4cd332db2dbf8367c73af4223c7533eca1020d54095abdc87b18",
                ],
            )
        ],
        "D20: here one dependency was delivered; the one that was lost is asked for again, since it is named again",
    ),
    ("2_lost_then_resend", 29): (
        ["sds:in:message-irretrievably-lost"],
        [
            ("sds:in:message-irretrievably-lost", ["80a9c32aad8b4cd332db2dbf8367c73af4223c7533eca1020d54095abdc87b18"]),
            ("sds:in:message-delivered", "a6a2729cbf6bcadce577a31f7f76201d5ce63c57d6c53318000d67714bb354ef"),
        ],
        "D20: the dependent is delivered after the loss, and only what is missing here is lost",
    ),
}
# From this step on the participant's log holds what the peer dropped (D20); its state is not compared.
STATE_DIFFERS_FROM = {("2_lost_then_resend", "carol"): 20}


class Earliest(random.Random):
    """Draws the earliest moment."""

    def random(self) -> float:
        return 0.0


def fields_of(payload: bytes) -> tuple[Any, ...]:
    """All but the message id."""
    message = SdsMessage.decode(payload)
    assert message is not None
    return (
        message.sender_id,
        message.channel_id,
        message.lamport_timestamp,
        message.causal_history,
        message.bloom_filter,
        message.repair_request,
        message.content,
    )


class Peer:
    """A participant of a scenario."""

    def __init__(self, name: str, channel_id: str, options: dict[str, Any], now: Now) -> None:
        sds = SdsConfig(
            acknowledgement_timeout_ms=NEVER_MS,
            causal_history_size=options["causalHistorySize"],
            possible_acks_threshold=options["possibleAcksThreshold"],
            timeout_for_lost_messages_ms=options["timeoutForLostMessagesMs"] or 0,
            enable_repair=options["enableRepair"],
            bloom_interval_ms=0,
            message_id="content-sha256",
        )
        # A sync is due at every step, and leaves at those where the peer's did.
        sync = SyncConfig(sync_min_interval_ms=1, sweep_in_buf_interval_ms=SWEEP_MS, acknowledgement_sync=False)
        self.machine = MessageChannel(channel_id, name, sds, sync, now=now, rng=Earliest(), header_bytes_max=100_000)
        self.sent: dict[str, bytes] = {}
        self.acknowledged: set[str] = set()

    def send(self, payload: bytes, now: Now) -> bytes:
        machine = self.machine
        message_id = hashlib.sha256(payload).hexdigest()
        if message_id in machine.inspect()["unacknowledged"]:
            # The peer sends an unacknowledged payload again where the application gives it again, and its clock ticks
            # for that call although the message stays as it was; here a timer does, and the clock stays too.
            self.tick(now)
            return self.sent[message_id]
        assert machine.send(message_id, [payload], contents_needed=1) == (message_id,)
        transmit = machine.poll_transmit(now, {TransmitKind.FIRST})
        assert transmit is not None
        assert transmit.message_id == message_id
        self.transmit_id = transmit.transmit_id
        self.sent[message_id] = transmit.payload
        return transmit.payload

    def tick(self, now: Now) -> None:
        """A message that never leaves takes a timestamp."""
        self.machine.send("unsent", [b"unsent"], contents_needed=1)
        unsent = self.machine.poll_transmit(now, {TransmitKind.FIRST})
        assert unsent is not None
        self.machine.handle_transmit_failed(unsent.transmit_id, now)
        assert self.machine.cancel("unsent")

    def events(self, now: Now) -> list[Event]:
        out: list[Event] = []
        while (event := self.machine.poll_event()) is not None:
            match event:
                case ContentReceived(message_id, sender_id, _, _, _):
                    out.append(("sds:in:message-received", message_id))
                    self.machine.handle_send_reconstructed(sender_id, message_id, 1, now)
                case SendReleased(_, send_id):
                    out.append(("sds:in:message-delivered", send_id))
                case ContentAcknowledged(_, _, message_id, _):
                    # Here once for each participant, at the peer once.
                    if message_id not in self.acknowledged:
                        self.acknowledged.add(message_id)
                        out.append(("sds:out:message-acknowledged", message_id))
                case SyncReceived():
                    out.append(("sds:in:sync-received", None))
                case MissingDetected(entries):
                    out.append(("sds:in:message-missing", [entry.message_id for entry in entries]))
                case DependencyLost(entry):
                    out.append(("sds:in:message-irretrievably-lost", [entry.message_id]))
                case SendAcknowledged() | MessageDropped() | EphemeralReceived():
                    # An ephemeral message passes without an event at the peer (D15).
                    pass
                case _:
                    out.append((type(event).__name__, event))
        return out

    def state(self) -> dict[str, Any]:
        held = self.machine.inspect()
        return {
            "lamport": str(self.machine.lamport_timestamp),
            "local_history": list(self.machine.ordered_ids()),
            "outgoing_buffer": list(held["unacknowledged"]),
            "incoming_buffer": list(held["incoming"]),
            "bloom_sha256": hashlib.sha256(held["bloom_filter"]).hexdigest(),
            "out_repair": held["repair_requests"],
            "in_repair": held["repair_answers"],
        }


def expected_events(step: dict[str, Any]) -> list[Event]:
    """The peer's events in our terms; those of its own calling convention are left out."""
    out: list[Event] = []
    for event in step["events"]:
        name, detail = event["event"], event["detail"]
        if name in {"sds:out:message-sent", "sds:out:sync-sent", "RepairRequestQueued"}:
            # What is sent is returned by poll_transmit; D25: the last one is emitted under a name of no kind.
            continue
        if name == "sds:in:message-missing" and step["op"] == "sweep_incoming":
            # Told with every sweep, empty or not; compared as a view.
            continue
        if name == "sds:in:sync-received":
            detail = None
        elif isinstance(detail, dict):
            detail = detail["message_id"]
        elif isinstance(detail, list):
            detail = [entry["message_id"] for entry in detail]
        out.append((name, detail))
    return out


def expected_state(state: dict[str, Any]) -> dict[str, Any]:
    out = {
        name: state[name] for name in ("lamport", "local_history", "outgoing_buffer", "incoming_buffer", "bloom_sha256")
    }
    for name in ("out_repair", "in_repair"):
        out[name] = {
            entry["message_id"]: int(entry.get("t_req") or entry.get("t_resp") or 0) for entry in state[name] or []
        }
    return out


@pytest.mark.parametrize("name", ["1_in_order_chat", "2_lost_then_resend"])
def test_scenario(name: str) -> None:
    scenario = json.loads((VECTORS / f"{name}.json").read_text())
    wires = {wire: base64.b64decode(value["b64"]) for wire, value in scenario["wires"].items()}
    start = scenario["t0_ms"]
    peers = {
        who: Peer(who, scenario["channel_id"], value["options"], Now(start, start))
        for who, value in scenario["participants"].items()
    }
    for who, value in scenario["participants"].items():
        assert str(peers[who].machine.lamport_timestamp) == value["lamport_init"]
    compared = 0
    for number, step in enumerate(scenario["steps"]):
        if step["op"] == "advance":
            continue
        now = Now(step["now_ms"], step["now_ms"])
        peer = peers[step["who"]]
        where = f"{name}, step {number}: {step['op']} {step['who']} {step.get('wire', '')}"
        perform(peer, step, wires, now, where)
        events, expected = peer.events(now), expected_events(step)
        if (name, number) in EXCEPTIONS:
            left_out, instead, reason = EXCEPTIONS[name, number]
            assert reason
            expected = [event for event in expected if event[0] not in left_out] + instead
        assert events == expected, where
        since = STATE_DIFFERS_FROM.get((name, step["who"]), 1 << 30)
        if step.get("state_after") is not None and number < since:
            assert peer.state() == expected_state(step["state_after"]), where
            compared += 1
            if "returned_missing" in step:
                missing = [entry.message_id for entry in peer.machine.missing()]
                assert missing == [entry["message_id"] for entry in step["returned_missing"]], where
    assert compared > 15


def perform(peer: Peer, step: dict[str, Any], wires: dict[str, bytes], now: Now, where: str) -> None:
    machine = peer.machine
    match step["op"]:
        case "push_outgoing":
            assert peer.send(step["payload_utf8"].encode(), now) == wires[step["wire"]], where
            hint = bytes.fromhex(step["callback_returns"]["retrieval_hint_hex"])
            machine.handle_transmitted(peer.transmit_id, hint, now)
        case "receive":
            hint = bytes.fromhex(step["retrieval_hint_hex"]) if step.get("retrieval_hint_hex") else None
            machine.handle_message(wires[step["wire"]], now, hint)
        case "push_sync":
            transmit = machine.poll_transmit(now, {TransmitKind.SYNC})
            assert transmit is not None, where
            # Each makes up ids of its own for syncs.
            assert fields_of(transmit.payload) == fields_of(wires[step["wire"]]), where
        case "push_ephemeral":
            payload = step["payload_utf8"].encode()
            machine.send_ephemeral("ephemeral", payload)
            transmit = machine.poll_transmit(now, {TransmitKind.EPHEMERAL})
            assert transmit is not None, where
            assert transmit.payload == wires[step["wire"]], where
        case "sweep_incoming":
            machine.handle_timeout(now)
        case "sweep_outgoing":
            filters = machine.inspect()["unacknowledged"]
            possible = [key for key, count in filters.items() if count]
            unacknowledged = [key for key, count in filters.items() if not count]
            assert unacknowledged == step["returned"]["unacknowledged"], where
            assert possible == step["returned"]["possibly_acknowledged"], where
        case other:
            raise AssertionError(f"unknown operation {other}")
