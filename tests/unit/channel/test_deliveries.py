"""The queue of deliveries: what a crash at each point means under both promises."""

from __future__ import annotations

import pytest
from stored_kinds import PAYLOAD

from shardwire._native import payload_key
from shardwire.channel.receiving.deliveries import Deliveries
from shardwire.channel.storing.records import DELIVERY, HANDOVER, of_kind
from shardwire.config import Redelivery
from shardwire.errors import PersistenceError


class Store:
    """What is durable: changes of `poll_persist` applied."""

    def __init__(self, redelivery: Redelivery) -> None:
        self.redelivery: Redelivery = redelivery
        self.records: dict[tuple[str, bytes], bytes] = {}
        self.deliveries = self._new()

    def _new(self) -> Deliveries:
        return Deliveries(self.redelivery, messages_max=3, bytes_max=1_000)

    def append(self, send_id: str, payload: bytes) -> None:
        self.records[PAYLOAD, payload_key("alice", send_id)] = payload
        self.deliveries.append("alice", send_id, payload.hex(), payload)

    def commit(self) -> None:
        for name, value in self.deliveries.poll_persist().items():
            if value is None:
                self.records.pop(name, None)
            else:
                self.records[name] = value
        for key in self.deliveries.poll_delivered():
            self.records.pop((PAYLOAD, key), None)

    def crash(self) -> None:
        self.deliveries = self._new()
        self.deliveries.restore(
            of_kind(self.records, DELIVERY), of_kind(self.records, PAYLOAD), self.records.get((HANDOVER, b""))
        )

    def drain(self) -> list[tuple[bytes, bool]]:
        handed_over = []
        while (delivery := self.deliveries.begin()) is not None:
            self.commit()
            handed_over.append((delivery.payload, delivery.redelivered))
            self.deliveries.finish()
            self.commit()
        return handed_over


def test_at_least_once_repeats_only_the_one_in_progress_and_flags_it() -> None:
    store = Store("at-least-once")
    for number in range(3):
        store.append(f"{number}", b"%d" % number)
    store.commit()
    store.deliveries.begin()
    store.commit()
    store.deliveries.finish()
    store.deliveries.begin()
    store.commit()
    store.crash()
    assert store.drain() == [(b"1", True), (b"2", False)]
    assert store.records == {}


def test_at_most_once_loses_only_the_one_in_progress() -> None:
    store = Store("at-most-once")
    for number in range(3):
        store.append(f"{number}", b"%d" % number)
    store.commit()
    store.deliveries.begin()
    store.commit()
    store.crash()
    assert store.drain() == [(b"1", False), (b"2", False)]
    assert store.records == {}


def test_one_delivery_is_in_progress_at_a_time() -> None:
    store = Store("at-least-once")
    store.append("a", b"a")
    store.append("b", b"b")
    first = store.deliveries.begin()
    assert first is not None
    assert store.deliveries.begin() is None
    store.deliveries.finish()
    second = store.deliveries.begin()
    assert second is not None
    assert (first.payload, second.payload) == (b"a", b"b")


def test_order_continues_after_a_restart() -> None:
    store = Store("at-least-once")
    store.append("a", b"a")
    store.commit()
    store.crash()
    store.append("b", b"b")
    store.commit()
    store.crash()
    assert store.drain() == [(b"a", False), (b"b", False)]


def test_ephemeral_messages_keep_their_place_and_are_never_stored() -> None:
    store = Store("at-least-once")
    store.append("a", b"a")
    store.deliveries.append("alice", None, "id", b"typing")
    store.append("b", b"b")
    store.commit()
    assert len(of_kind(store.records, DELIVERY)) == 2
    assert [payload for payload, _ in store.drain()] == [b"a", b"typing", b"b"]
    assert store.records == {}


def test_full_by_messages_or_by_bytes() -> None:
    store = Store("at-least-once")
    store.append("a", bytes(999))
    assert not store.deliveries.is_full()
    store.append("b", b"x")
    assert store.deliveries.is_full()
    store.deliveries.begin()
    assert store.deliveries.is_full()
    store.deliveries.finish()
    assert not store.deliveries.is_full()
    store.append("c", b"")
    store.append("d", b"")
    assert store.deliveries.is_full()


def test_what_waits_for_its_causes_fills_only_what_the_application_can_empty() -> None:
    store = Store("at-least-once")
    assert not store.deliveries.is_full(held_bytes=5_000)
    store.append("a", b"x")
    assert store.deliveries.is_full(held_bytes=999)
    assert not store.deliveries.is_full(held_bytes=998)


def test_a_delivery_without_its_payload_is_damage() -> None:
    store = Store("at-least-once")
    store.append("a", b"a")
    store.commit()
    del store.records[PAYLOAD, payload_key("alice", "a")]
    with pytest.raises(PersistenceError, match="without its payload"):
        store.crash()
