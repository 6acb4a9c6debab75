"""A machine that is dropped lets go of all that it holds."""

from __future__ import annotations

import gc
import hashlib
import sys

from sds_exchange import Party, at

# Contents of this size are held where they lie, smaller ones are copied.
LENT_BYTES = 100_000


def send_id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def test_a_dropped_machine_lets_go_of_sends_under_way_and_messages_that_wait() -> None:
    alice, bob = Party("alice"), Party("bob")
    contents = [b"0/1/1|" + bytes([number]) * LENT_BYTES for number in range(3)]
    for number in range(3):
        bob.machine.send(send_id(f"own {number}"), [contents[number]], contents_needed=1)
    alice.send("before", at(0))
    alice.send("after" * LENT_BYTES, at(0))
    payloads = [bytes(transmit.payload) for transmit in alice.drain(at(0))]
    bob.machine.handle_message(payloads[1], at(1))
    bob.drain(at(1))
    assert bob.machine.stats()["incoming_sends"] == 2
    held = [*contents, payloads[1]]
    del contents, payloads, alice
    while_it_lives = [sys.getrefcount(kept) for kept in held]
    del bob
    gc.collect()
    # One of the list, one of the loop, one of the call.
    assert [sys.getrefcount(kept) for kept in held] == [3] * len(held)
    assert any(count > 3 for count in while_it_lives)


def test_a_cancelled_send_is_let_go_while_the_machine_lives() -> None:
    alice = Party("alice")
    content = b"0/1/1|" + bytes(LENT_BYTES)
    before = sys.getrefcount(content)
    alice.machine.send(send_id("cancelled"), [content], contents_needed=1)
    assert sys.getrefcount(content) > before
    assert alice.machine.cancel(send_id("cancelled"))
    alice.drain(at(0))
    assert sys.getrefcount(content) == before
