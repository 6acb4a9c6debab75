"""A state machine drives real machines beside a reference that is dumb on purpose.

The reference knows what each application sent and saw, and which messages a participant holds; from that alone it
says what may be delivered. Compared after every step: nothing twice, nothing before its causes, nothing delivered
that was never sent, acknowledgements only by those who hold the message, memory bounded. At the end of a run the
network is healed and everything must have arrived.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sds_exchange import LOGOS, Exchange, Party, at

from shardwire.sds import DependencyLost, SendAcknowledged, SendGivenUp

NAMES = ("alice", "bob", "carol")
SDS = replace(
    LOGOS.sds,
    max_retransmissions=60,
    incoming_buffer_messages_max=200,
    missing_messages_max=200,
    outgoing_buffer_messages_max=64,
    log_messages_max=2_000,
    bloom_filter_capacity=100,
    # The smallest history: what keeps the order must then come from elsewhere.
    causal_history_size=0,
)


class Reference:
    """Who said what, and after what."""

    def __init__(self) -> None:
        self.sender: dict[str, str] = {}
        self.causes: dict[str, frozenset[str]] = {}
        self.send_ids: dict[str, str] = {}

    def send(self, text: str, name: str, send_id: str, delivered: list[str]) -> None:
        own = {other for other, sender in self.sender.items() if sender == name}
        self.causes[text] = frozenset(delivered) | own
        self.sender[text] = name
        self.send_ids[send_id] = text

    def due(self, name: str) -> set[str]:
        """What `name` must have in the end."""
        return {text for text, sender in self.sender.items() if sender != name}


class SdsModel(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.reference = Reference()
        self.parties = [Party(name, seed=seed, sds=SDS, delivered_when=2) for name in NAMES]
        self.exchange = Exchange(self.parties, seed=seed, delay_ms=(5, 900))
        self.cut_off: set[str] = set()
        self.exchange.lose = lambda name, transmit: name in self.cut_off
        self.lost_before = 0

    @rule(who=st.sampled_from(NAMES), shape=st.sampled_from([(1, 1), (1, 1), (2, 3), (3, 3), (4, 6)]))
    def send(self, who: str, shape: tuple[int, int]) -> None:
        party = self.exchange.party(who)
        text = f"m{len(self.reference.sender)}"
        send_id = party.send(text, at(self.exchange.now_ms), *shape)
        self.reference.send(text, who, send_id, party.delivered)
        self.exchange.flush(party)

    @rule(who=st.sampled_from(NAMES), count=st.integers(2, 12))
    def burst(self, who: str, count: int) -> None:
        for _ in range(count):
            self.send(who, (1, 1))

    @rule(milliseconds=st.sampled_from([1, 40, 300, 1_300, 5_100, 31_000]))
    def wait(self, milliseconds: int) -> None:
        self.exchange.run(self.exchange.now_ms + milliseconds)

    @rule(loss=st.sampled_from([0.0, 0.2, 0.5]), duplicate=st.sampled_from([0.0, 0.3]))
    def weather(self, loss: float, duplicate: float) -> None:
        self.exchange.loss, self.exchange.duplicate = loss, duplicate

    @rule(who=st.sampled_from(NAMES))
    def cut(self, who: str) -> None:
        self.cut_off = {who}

    @rule()
    def heal(self) -> None:
        self.cut_off = set()

    @rule(who=st.sampled_from(NAMES), seed=st.integers(0, 2**16))
    def crash(self, who: str, seed: int) -> None:
        self.exchange.replace_party(self.exchange.party(who).restarted(at(self.exchange.now_ms), seed))

    @rule(who=st.sampled_from(NAMES), data=st.binary(max_size=80))
    def noise(self, who: str, data: bytes) -> None:
        party = self.exchange.party(who)
        party.machine.handle_message(data, at(self.exchange.now_ms))
        self.exchange.flush(party)

    @invariant()
    def deliveries_are_right(self) -> None:
        for party in self.exchange.parties:
            assert len(party.delivered) == len(set(party.delivered)), "delivered twice"
            assert set(party.delivered) <= self.reference.due(party.name), "delivered what nobody sent it"
            if any(isinstance(event, DependencyLost) for event in party.events):
                # Declared lost after its time: what follows goes on without it.
                continue
            place = {text: index for index, text in enumerate(party.delivered)}
            for text, index in place.items():
                for cause in self.reference.causes[text] & self.reference.due(party.name):
                    assert place.get(cause, 1 << 30) < index, f"{text} before its cause {cause} at {party.name}"

    @invariant()
    def acknowledgements_are_true(self) -> None:
        texts = {party.name: set(party.texts.values()) for party in self.exchange.parties}
        for party in self.exchange.parties:
            for event in party.events:
                if isinstance(event, SendAcknowledged):
                    assert self.reference.send_ids[event.send_id] in texts[event.by], "acknowledged and not held"

    @invariant()
    def what_is_held_is_not_asked_for(self) -> None:
        for party in self.exchange.parties:
            held = set(party.machine.inspect()["log"])
            whole = set(party.texts.values())
            for entry in party.machine.missing():
                assert entry.message_id not in held, "asks for what it received"
                assert self.reference.send_ids[entry.message_id[:32]] not in whole, "asks for what it reconstructed"
            assert party.machine.stats()["repair_requests"] <= len(party.machine.missing())

    @invariant()
    def memory_is_bounded(self) -> None:
        for party in self.exchange.parties:
            stats = party.machine.stats()
            assert stats["incoming_contents"] <= SDS.incoming_buffer_messages_max
            assert stats["missing"] <= SDS.missing_messages_max
            assert stats["outgoing_unacknowledged"] <= SDS.outgoing_buffer_messages_max
            assert stats["log"] <= SDS.log_messages_max + SDS.incoming_buffer_messages_max

    def teardown(self) -> None:
        if not hasattr(self, "exchange"):
            return
        self.cut_off = set()
        self.exchange.loss = self.exchange.duplicate = 0.0
        self.exchange.run(self.exchange.now_ms + 600_000)
        self.deliveries_are_right()
        for party in self.exchange.parties:
            given_up = any(isinstance(event, SendGivenUp) for event in party.events)
            assert set(party.delivered) == self.reference.due(party.name), f"{party.name} lacks something"
            assert party.machine.pending_sends() == () or given_up
            stats = party.machine.stats()
            assert stats["outgoing_queued"] == stats["incoming_sends"] == stats["missing"] == 0


SdsModel.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestSdsModel = SdsModel.TestCase
