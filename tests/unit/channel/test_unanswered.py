"""What a node was handed and has not answered for: whether any of a failed send may have left."""

from __future__ import annotations

import pytest
from channel_machines import channel_machine

from shardwire._native import OwnSends
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Late, Propagated
from shardwire.channel.sending.unanswered import Unanswered
from shardwire.config import ChannelConfig
from shardwire.sds.outputs import Transmit, TransmitKind

FIRST = Transmit(1, TransmitKind.FIRST, "m", b"wire", "s", 0)
SECOND = Transmit(2, TransmitKind.FIRST, "m", b"wire", "s", 1)
REFUSED = "no proof"


def make() -> tuple[OwnSends, Unanswered]:
    machine = channel_machine("alice", ChannelConfig.logos())
    # Somebody listens to everything.
    machine.listen_for(0xFF)
    sends = machine.own_sends()
    sends.register("s", "r", "m", 3, 3)
    return sends, Unanswered(sends)


def test_nothing_of_a_send_left_once_the_node_has_refused_all_that_it_was_handed() -> None:
    sends, unanswered = make()
    assert not sends.never_left("s")
    unanswered.add(FIRST)
    unanswered.add(SECOND)
    sends.on_irrecoverable("s", 2, REFUSED)
    for transmit in (FIRST, FIRST, SECOND):
        assert not sends.never_left("s")
        unanswered.on_outcome(DispatchFailed(transmit, REFUSED, True))
    assert not sends.never_left("s"), "nobody was told the error yet"
    sends.on_announced("s", "error", "r")
    assert sends.never_left("s")


def test_what_was_handed_over_for_another_send_of_the_same_id_counts_for_none() -> None:
    sends, unanswered = make()
    unanswered.add(FIRST)
    sends.withdraw("r")
    sends.register("s", "again", "m", 3, 3)
    unanswered.on_outcome(DispatchFailed(FIRST, REFUSED, True))
    unanswered.add(SECOND)
    sends.on_irrecoverable("s", 2, REFUSED)
    sends.on_announced("s", "error", "again")
    assert not sends.never_left("s")


@pytest.mark.parametrize(
    "outcome", [Propagated(FIRST, b"hash"), DispatchFailed(FIRST, "no answer", False, unanswered=True), Late(SECOND)]
)
def test_something_may_have_left_where_the_node_says_anything_else(outcome: DispatchOutcome) -> None:
    sends, unanswered = make()
    unanswered.add(FIRST)
    sends.on_irrecoverable("s", 2, REFUSED)
    unanswered.on_outcome(outcome)
    sends.on_announced("s", "error", "r")
    assert not sends.never_left("s")
