"""The demo's network: luck decides what is lost, but for what the demo is to show."""

from __future__ import annotations

import random
from dataclasses import replace

from shardwire.cli.demo.settings import BESIDE_LISTENER, CHANNEL_ID, CONDITIONS, LISTENER, SENDER, DemoPlan
from shardwire.cli.demo.transmissions import segment_of
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import MemoryNetwork
from shardwire.node.memory import MemoryNode, Outgoing

EVERYTHING_ARRIVES = replace(CONDITIONS, loss=0.0)
NOTHING_ARRIVES = replace(CONDITIONS, loss=1.0)


def lost_segment(plan: DemoPlan, seed: int) -> int:
    """The data segment that reaches nobody: parity has to bring it back, whatever luck does to the others."""
    return random.Random(f"{seed}/lost segment").randrange(plan.data_segment_count)


class DemoNetwork(MemoryNetwork):
    """A network with the demo's faults.

    One data segment, where it is named, reaches nobody, however often it is sent. What the sender sends reaches the
    listener where it reaches the receiver beside it: nobody sends anything again for a listener, so what it archives
    would else be a matter of luck.

    Args:
        encryption: The channel's, not bound to it yet: segments are told apart inside their envelopes.
        seed: Of all randomness.
        lost_segment: The data segment that reaches nobody; None for none, then the trace keeps no payloads either.
    """

    def __init__(self, encryption: ChaCha20Poly1305Encryption, seed: int, lost_segment: int | None = None) -> None:
        # No store: whatever the network loses comes back through parity or is sent again.
        super().__init__(CONDITIONS, seed=seed, store=False, trace_payloads=lost_segment is not None)
        self._encryption = encryption.bind(CHANNEL_ID)
        self._lost_segment = lost_segment
        self._luck = random.Random(f"{seed}/{BESIDE_LISTENER} and {LISTENER}")

    def transmit(self, sender: MemoryNode, outgoing: Outgoing) -> bool:
        if sender.name != SENDER:
            return super().transmit(sender, outgoing)
        is_lost = self._luck.random() < CONDITIONS.loss
        beside = [node for name in (BESIDE_LISTENER, LISTENER) if (node := self.nodes.get(name)) is not None]
        if self._lost_segment is not None:
            segment = segment_of(outgoing.envelope.payload, self._encryption)
            if segment is not None and segment[1] == self._lost_segment:
                is_lost, self.conditions = True, NOTHING_ARRIVES
        for node in beside:
            node.conditions = NOTHING_ARRIVES if is_lost else EVERYTHING_ARRIVES
        try:
            return super().transmit(sender, outgoing)
        finally:
            self.conditions = CONDITIONS
            for node in beside:
                node.conditions = None
