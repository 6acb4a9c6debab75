"""A machine whose changes are dropped, as where there is no persistence, beside its twin whose changes are stored."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from channel_machines import channel_machine, delivered
from sds_exchange import at

from shardwire._native import ChannelMachine, Delivery
from shardwire.config import ChannelConfig
from shardwire.sds import Now
from shardwire.segmentation import segment

CONFIG = ChannelConfig.logos()
SDS = replace(CONFIG.sds, acknowledgement_timeout_ms=1_000, log_messages_max=60)
SEGMENTATION = replace(CONFIG.segmentation, segment_size_bytes=640)
STEPS = 400


def machine(sender_id: str) -> ChannelMachine:
    return channel_machine(sender_id, replace(CONFIG, sds=SDS, segmentation=SEGMENTATION), rng=random.Random(1))


def forged(sender_id: str, send_id: str, contents: list[bytes], now: Now, needed: int = 1) -> list[bytes]:
    """Messages that somebody says under the id of a send of another participant."""
    forger = machine(sender_id)
    forger.send(send_id, contents, contents_needed=needed)
    messages = []
    while (transmit := forger.poll_transmit(now)) is not None:
        messages.append(transmit.payload)
        forger.handle_transmitted(transmit.transmit_id, bytes(32), now)
    return messages


class Twins:
    """One participant twice: what one does the other does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stored, self.dropped = machine(name), machine(name)
        self.delivered: list[Delivery] = []

    def handle_message(self, data: bytes, now: Now) -> None:
        assert self.stored.handle_message(data, now) == self.dropped.handle_message(data, now)

    def send(self, send_id: str, contents: list[bytes], needed: int) -> None:
        for twin in (self.stored, self.dropped):
            twin.send(send_id, contents, contents_needed=needed)

    def cancel(self, send_id: str) -> None:
        assert self.stored.cancel(send_id) == self.dropped.cancel(send_id)

    def run(self, now: Now, *, fails: bool) -> list[bytes]:
        """Everything that is due; what leaves."""
        assert self.stored.poll_timeout() == self.dropped.poll_timeout()
        for twin in (self.stored, self.dropped):
            twin.handle_timeout(now)
            twin.expire(now)
        left = []
        while True:
            transmit, other = self.stored.poll_transmit(now), self.dropped.poll_transmit(now)
            if transmit is None or other is None:
                assert transmit is other
                break
            assert (transmit.kind, transmit.payload) == (other.kind, other.payload)
            for twin, handed in ((self.stored, transmit), (self.dropped, other)):
                if fails:
                    twin.handle_transmit_failed(handed.transmit_id, now)
                else:
                    twin.handle_transmitted(handed.transmit_id, bytes(32), now)
            if fails:
                break
            left.append(transmit.payload)
        assert repr(self.stored.poll_events(now)) == repr(self.dropped.poll_events(now))
        return left

    def hand_over(self) -> None:
        """The application takes what waits for it."""
        taken = delivered(self.stored)
        assert taken == delivered(self.dropped)
        self.delivered += taken

    def commit(self) -> None:
        self.stored.poll_persist()
        self.dropped.drop_changes()
        assert self.stored.stats() == self.dropped.stats()
        assert self.stored.receiving_stats() == self.dropped.receiving_stats()
        # Whatever was dropped is not gathered for later.
        assert {kind for kind, _ in self.dropped.poll_persist().to_dict()} <= {"sds.state"}


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_whose_changes_are_dropped_does_as_one_whose_changes_are_stored(seed: int) -> None:
    rng = random.Random(seed)
    twins = [Twins(name) for name in ("alice", "bobby", "carol")]
    on_the_way: list[tuple[Twins, bytes]] = []
    for step in range(STEPS):
        now = at(step * 100)
        one = rng.choice(twins)
        action = rng.random()
        if action < 0.15:
            payload = rng.randbytes(rng.choice((50, 700, 5_000)))
            parity = replace(SEGMENTATION, enable_reed_solomon=rng.random() < 0.5)
            contents = segment(payload, parity)
            send_id = f"{rng.getrandbits(128):032x}"
            one.send(send_id, contents, -(-len(payload) // 640))
            if rng.random() < 0.3:
                rival = segment(rng.randbytes(len(payload)), SEGMENTATION)
                on_the_way += [(other, data) for other in twins for data in forged(one.name, send_id, rival, now)]
        elif action < 0.2:
            one.cancel(f"{rng.getrandbits(128):032x}")
        elif action < 0.6:
            for data in one.run(now, fails=rng.random() < 0.1):
                on_the_way += [(other, data) for other in twins if other is not one and rng.random() < 0.8]
        elif on_the_way:
            for _ in range(min(len(on_the_way), 10)):
                receiver, data = on_the_way.pop(rng.randrange(len(on_the_way)))
                receiver.handle_message(data, now)
        if rng.random() < 0.5:
            one.hand_over()
            one.commit()
    assert sum(len(one.delivered) for one in twins) > 5


@pytest.mark.parametrize("made_with_parity", [False, True])
def test_a_message_that_waits_for_its_delivery_is_told_from_another_one_of_its_send(made_with_parity: bool) -> None:
    bobby = Twins("bobby")
    send_id = f"{1:032x}"
    parity = replace(SEGMENTATION, enable_reed_solomon=True)
    messages = forged("alice", send_id, segment(bytes(5_000), parity), at(0), needed=8)
    _, rival = forged("alice", send_id, [b"-", segment(b"rival", SEGMENTATION)[0]], at(1))
    # Of data segments alone it is kept as these, else as what they gave.
    for real in messages[1:] if made_with_parity else messages[:-1]:
        bobby.handle_message(real, at(2))
    bobby.run(at(2), fails=False)
    bobby.commit()
    bobby.handle_message(rival, at(3))
    bobby.run(at(3), fails=False)
    bobby.hand_over()
    assert [delivery.payload for delivery in bobby.delivered] == [bytes(5_000), b"rival"]
    bobby.commit()
