"""A machine that is dropped takes all that it holds with it, also what the garbage collector does not see."""

from __future__ import annotations

import gc
import hashlib
import sys
import weakref
from typing import Any

from sds_exchange import Party, at


def send_id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def test_a_dropped_machine_is_freed_with_sends_under_way_and_messages_that_wait() -> None:
    alice, bob = Party("alice"), Party("bob")
    held: list[Any] = [bytes(f"content {number}", "ascii") for number in range(3)]
    for number, content in enumerate(held):
        bob.machine.send(send_id(f"own {number}"), [content], at(0), contents_needed=1)
    taken = bob.machine.poll_transmit(at(0))
    assert taken is not None
    alice.send("before", at(0))
    alice.send("after", at(0))
    payloads = [transmit.payload for transmit in alice.drain(at(0))]
    hints = [bytes(range(start, start + 32)) for start in range(2)]
    bob.machine.handle_message(payloads[1], at(1), hints[1])
    bob.drain(at(1))
    assert bob.machine.stats()["incoming_sends"] == 2
    machine = weakref.ref(bob.machine)
    held += [hints[1], payloads[1]]
    del taken, alice, payloads, content
    del bob, hints
    gc.collect()
    assert machine() is None
    # Sends that wait for each other go once the log has let go of them.
    gc.collect()
    # One of the list, one of the loop, one of the call.
    assert [sys.getrefcount(kept) for kept in held] == [3] * len(held)


def test_a_cancelled_send_is_freed_while_the_machine_lives() -> None:
    alice = Party("alice")
    content = b"0/1/1|cancelled"
    before = sys.getrefcount(content)
    alice.machine.send(send_id("cancelled"), [content], at(0), contents_needed=1)
    assert alice.machine.cancel(send_id("cancelled"), at(0))
    alice.drain(at(0))
    assert sys.getrefcount(content) == before
