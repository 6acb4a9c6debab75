"""What a node was handed and has not answered for: whether any of a failed send may have left."""

from __future__ import annotations

import pytest
from channel_machines import channel_machine
from sds_exchange import at

from shardwire._native import ChannelMachine
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Late, Propagated
from shardwire.channel.sending.unanswered import Unanswered
from shardwire.config import ChannelConfig
from shardwire.sds.outputs import Transmit, TransmitKind

SEND, REFUSED = "a" * 32, "no proof"
FIRST = Transmit(1, TransmitKind.FIRST, "m", b"wire", SEND, 0)
SECOND = Transmit(2, TransmitKind.FIRST, "m", b"wire", SEND, 1)
CONTENTS = [b"one", b"two", b"three"]


def make() -> tuple[ChannelMachine, Unanswered]:
    machine = channel_machine("alice", ChannelConfig.logos())
    # Somebody listens to everything.
    machine.listen_for(0xFF)
    submit(machine, "r")
    return machine, Unanswered(machine.own_sends())


def submit(machine: ChannelMachine, request_id: str) -> None:
    machine.submit(SEND, request_id, "m", CONTENTS, at(0), data_count=3)


def fail(machine: ChannelMachine) -> None:
    machine.own_sends().on_irrecoverable(SEND, 2, REFUSED)
    assert machine.withdraw(SEND)


def begins_anew(machine: ChannelMachine, request_id: str) -> bool:
    """Whether what is submitted under the same id is a send of its own, and does not share the fate of the failed."""
    submit(machine, request_id)
    progress = machine.own_sends().get(SEND)
    assert progress is not None
    return progress.request_ids == [request_id]


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("answered", range(3))
def test_nothing_of_a_send_left_once_the_node_has_refused_all_that_it_was_handed(answered: int, told: bool) -> None:
    machine, unanswered = make()
    unanswered.add(FIRST)
    unanswered.add(SECOND)
    fail(machine)
    for transmit in (FIRST, SECOND)[:answered]:
        # Of one that was refused before nothing more is known.
        for _ in range(2):
            unanswered.on_outcome(DispatchFailed(transmit, REFUSED, True))
    if told:
        machine.own_sends().on_announced(SEND, "error", "r")
    assert begins_anew(machine, "again") == (told and answered == 2)


def test_what_was_handed_over_for_another_send_of_the_same_id_counts_for_none() -> None:
    machine, unanswered = make()
    unanswered.add(FIRST)
    machine.withdraw_request("r")
    submit(machine, "again")
    unanswered.on_outcome(DispatchFailed(FIRST, REFUSED, True))
    unanswered.add(SECOND)
    fail(machine)
    machine.own_sends().on_announced(SEND, "error", "again")
    assert not begins_anew(machine, "once more")


@pytest.mark.parametrize(
    "outcome", [Propagated(FIRST, b"hash"), DispatchFailed(FIRST, "no answer", False, unanswered=True), Late(SECOND)]
)
def test_something_may_have_left_where_the_node_says_anything_else(outcome: DispatchOutcome) -> None:
    machine, unanswered = make()
    unanswered.add(FIRST)
    fail(machine)
    unanswered.on_outcome(outcome)
    machine.own_sends().on_announced(SEND, "error", "r")
    assert not begins_anew(machine, "again")
