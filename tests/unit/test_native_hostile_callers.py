"""Lengths that lie, threads that share, other interpreters: an answer or a clear exception, never an abort."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from shardwire import erasure, keccak256_many
from shardwire._native import BloomFilter, HistoryEntry, MessageChannel, Now, SdsMessage
from shardwire.config import SdsConfig, SyncConfig
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    SegmentationConfig,
    reassemble_many,
    segment,
    segment_many,
)

CONFIG = SegmentationConfig(segment_size_bytes=1_024)
WORDS = {"sender_id": "alice", "message_id": "m", "channel_id": "c"}


class Lying(list[Any]):
    """A list whose length is told wrongly, or not at all."""

    def __init__(self, items: list[Any], length: int | type[Exception]) -> None:
        super().__init__(items)
        self._length = length

    def __len__(self) -> int:
        if isinstance(self._length, int):
            return self._length
        raise self._length("no length is told")


class Shrinking(list[Any]):
    """A list that gets shorter while it is iterated over."""

    def __iter__(self) -> Iterator[Any]:
        yield self[0]
        self.clear()


def machine() -> MessageChannel:
    now = Now(0, 0)
    return MessageChannel("c", "alice", SdsConfig(), SyncConfig(), now=now, rng=__import__("random").Random(1))


CALLS: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
    "SdsMessage.causal_history": (
        lambda items: SdsMessage(**WORDS, causal_history=items),
        [HistoryEntry("m1"), HistoryEntry("m2")],
    ),
    "SdsMessage.repair_request": (
        lambda items: SdsMessage(**WORDS, repair_request=items),
        [HistoryEntry("m1"), HistoryEntry("m2")],
    ),
    "BloomFilter.insert_many": (lambda items: BloomFilter(100, 0.01).insert_many(items), ["a", "b"]),
    "BloomFilter.review": (
        lambda items: BloomFilter(100, 0.01).review(BloomFilter(100, 0.01).to_bytes(), items),
        ["a"],
    ),
    "MessageChannel.send": (
        lambda items: machine().send("0" * 32, items, contents_needed=1),
        [b"one", b"two"],
    ),
    "MessageChannel.handle_irretrievable": (lambda items: machine().handle_irretrievable(items), ["a", "b"]),
    "MessageChannel.handle_send_reconstructed": (
        lambda items: machine().handle_send_reconstructed("bob", "s", 2, Now(0, 0), inferred_message_ids=items),
        ["a", "b"],
    ),
    "Reassembler.restore": (lambda items: Reassembler(CONFIG).restore(items), [("put_segment", b"k", b"v")] * 2),
    "keccak256_many": (keccak256_many, [b"one", b"two"]),
    "segment_many": (lambda items: segment_many(items, CONFIG), [b"one", b"two"]),
    "reassemble_many": (lambda items: reassemble_many([items], CONFIG), segment(b"one", CONFIG)),
    "erasure.encode": (lambda items: erasure.encode(items, 1), [bytes(64), bytes(64)]),
    "erasure.reconstruct": (lambda items: erasure.reconstruct(items, 2, 1), [bytes(64), bytes(64), None]),
}
RUN = """
import sys
sys.path[:0] = sys.argv[3:]
import test_native_hostile_callers as here
print(here.outcome_of(sys.argv[1], sys.argv[2]))
"""


def outcome_of(name: str, manner: str) -> str:
    call, items = CALLS[name]
    lies: dict[str, Callable[[], list[Any]]] = {
        "huge": lambda: Lying(items, 1 << 62),
        "overflowing": lambda: Lying(items, 1 << 80),
        "negative": lambda: Lying(items, -1),
        "empty": lambda: Lying(items, 0),
        "raises": lambda: Lying(items, RuntimeError),
        "shrinks": lambda: Shrinking(items),
    }
    try:
        call(lies[manner]())
    except (ValueError, TypeError, RuntimeError, OverflowError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return "served"


@pytest.mark.parametrize("manner", ["huge", "overflowing", "negative", "empty", "raises", "shrinks"])
@pytest.mark.parametrize("name", CALLS)
def test_a_length_that_lies_ends_no_process(name: str, manner: str) -> None:
    outcome = outcome_of(name, manner)
    assert "PanicException" not in outcome
    if manner == "huge" and "insert_many" not in name:
        assert "has more than 1099511627776 items" in outcome or "65536 items" in outcome
    if manner == "empty":
        assert outcome == "served"


def test_the_process_is_alive_after_all_of_them() -> None:
    # In a process of its own: an abort would end this one.
    code = RUN.replace(
        "print(here.outcome_of(sys.argv[1], sys.argv[2]))", "print([here.outcome_of(n, 'huge') for n in here.CALLS])"
    )
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", code, "", "", str(__file__).rpartition("/")[0], *paths], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("items") >= len(CALLS) - 1


def test_an_iterable_may_look_at_the_filter_that_takes_it_in() -> None:
    bloom = BloomFilter(100, 0.01)

    def words() -> Iterator[str]:
        yield "first"
        assert "first" in bloom
        yield "second"

    bloom.insert_many(words())
    assert "second" in bloom


def test_threads_that_share_a_reassembler_take_turns() -> None:
    # Above the size from which the work runs without the interpreter's lock.
    config = SegmentationConfig(segment_size_bytes=20_000)
    payloads = [bytes([number]) * 200_000 for number in range(8)]
    shared, whole, errors = Reassembler(config), [], []
    barrier = threading.Barrier(len(payloads))

    def receive(payload: bytes) -> None:
        try:
            wire = segment(payload, config)
            barrier.wait()
            for data in wire:
                outcome = shared.receive(data, now_ms=0)
                shared.stats()
                shared.poll_persist()
                if isinstance(outcome, PayloadReconstructed):
                    whole.append(outcome.payload)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=receive, args=(payload,)) for payload in payloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(whole) == payloads


class Bytes(bytes):
    """Does something of its own when it goes."""

    gone: ClassVar[list[object]] = []

    def __del__(self) -> None:
        self.gone.append(shared_with_bytes.stats()["received"])


shared_with_bytes = Reassembler(CONFIG)


def test_what_a_segments_class_does_at_its_end_does_not_meet_the_lock() -> None:
    for data in segment(bytes(10_000), CONFIG):
        shared_with_bytes.receive(Bytes(data), now_ms=0)
    assert shared_with_bytes.stats()["reconstructed"] == 1
    assert len(Bytes.gone) == len(segment(bytes(10_000), CONFIG))


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
import sys
sys.path[:] = {path!r}
for _ in range(2):
    try:
        from shardwire import keccak256
    except ImportError as error:
        print(error)
    else:
        print("served")
'''
identifier = interpreters.create()
run = getattr(interpreters, "run_string", None) or interpreters.exec
run(identifier, code.format(path=sys.path))
interpreters.destroy(identifier)
from shardwire import keccak256
print(keccak256(b"").hex()[:8])
"""


def test_a_subinterpreter_is_refused_at_import_and_disturbs_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", SUBINTERPRETER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *refused, served = done.stdout.splitlines()
    assert len(refused) == 2
    for line in refused:
        assert "shardwire works in the main interpreter of a process alone" in line
    assert served == "c5d24601"
