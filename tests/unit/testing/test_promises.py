"""What the checks share: where promises stand, what errors show, and what they need to be imported."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wrapped_node import WrappedNode

from shardwire.errors import ConfigError, ShardwireError
from shardwire.node import MemoryNetwork, run_virtual
from shardwire.persistence import ChannelState, MemoryPersistence
from shardwire.testing import (
    ENCRYPTION_PROMISES,
    NODE_PROMISES,
    PERSISTENCE_PROMISES,
    BrokenPromiseError,
    Promise,
    check_encryption,
    check_node,
    check_persistence,
)
from shardwire.testing.promises import Trial, shown

ROOT = Path(__file__).resolve().parents[3]
ALL = (PERSISTENCE_PROMISES, NODE_PROMISES, ENCRYPTION_PROMISES)


@pytest.mark.parametrize("promise", [promise for promises in ALL for promise in promises], ids=lambda each: each.name)
def test_a_promise_stands_where_it_says(promise: Promise) -> None:
    page, _, heading = promise.where.partition(", ")
    assert f"\n## {heading}" in (ROOT / page).read_text()


@pytest.mark.parametrize("promises", ALL)
def test_names_of_promises_are_their_own(promises: tuple[Promise, ...]) -> None:
    assert len({promise.name for promise in promises}) == len(promises)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"x" * 40, repr(b"x" * 40)),
        (b"x" * 41, "41 bytes that begin with b'xxxxxxxx'"),
        ({("kind", b"k" * 600): None}, "{('kind', 600 bytes that begin with b'kkkkkkkk'): None}"),
        ({number: number for number in range(7)}, "{0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, ...}"),
        ("x" * 400, "'" + "x" * 299 + "..."),
        (None, "None"),
    ],
)
def test_values_are_shown_in_short(value: object, expected: str) -> None:
    assert shown(value) == expected


def broken() -> BrokenPromiseError:
    trial = Trial(PERSISTENCE_PROMISES)
    trial.made(object())
    with pytest.raises(BrokenPromiseError) as caught, trial.of("deletion"):
        trial.did("a commit")
        raise KeyError("two\nlines\x1b[0m")
    return caught.value


def test_an_error_is_a_failure_to_test_runners_and_one_of_ours() -> None:
    error = broken()
    assert isinstance(error, AssertionError)
    assert isinstance(error, ShardwireError)
    assert isinstance(error.__cause__, KeyError)
    assert (error.done, error.expected) == ("a commit", "that it returns")
    assert "\x1b" not in str(error)


def test_a_part_in_place_of_a_factory_is_refused() -> None:
    told = "is a object: it must be a function that makes the part, or its class"
    part: Any = object()
    with pytest.raises(ConfigError, match=f"^open_store {told}"):
        check_persistence(part)
    with pytest.raises(ConfigError, match=f"^create_node {told}"):
        asyncio.run(check_node(part))
    with pytest.raises(ConfigError, match=f"^create {told}"):
        asyncio.run(check_encryption(part))


def test_a_cancellation_of_a_part_is_an_error_as_any() -> None:
    class Cancelling(MemoryPersistence):
        def load(self, channel_id: str) -> ChannelState | None:
            raise asyncio.CancelledError

    with pytest.raises(BrokenPromiseError, match="CancelledError was raised"):
        check_persistence(Cancelling)


def test_a_check_can_be_cancelled() -> None:
    class Hanging(WrappedNode):
        async def start(self) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        network, names = MemoryNetwork(), itertools.count()
        check = asyncio.create_task(check_node(lambda: Hanging(network.create_node(f"node {next(names)}"))))
        await asyncio.sleep(1)
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check

    run_virtual(main())


def test_an_error_crosses_processes() -> None:
    error = broken()
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.promise, copy.done, copy.expected, copy.came) == (
        error.promise,
        error.done,
        error.expected,
        error.came,
    )


def test_importing_needs_no_test_runner_and_no_extra() -> None:
    unwanted = ["pytest", "hypothesis", "unittest", "cryptography", "httpx", "nats", "paho"]
    code = f"import sys, shardwire.testing\nprint([name for name in {unwanted!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
