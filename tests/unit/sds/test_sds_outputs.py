"""What the machine gives out behaves as values: equal, hashed, shown, matched, copied and pickled by its fields."""

from __future__ import annotations

import copy
import pickle

import pytest

from shardwire import sds
from shardwire.errors import ConfigError
from shardwire.sds import Now, SdsEvent, Transmit, TransmitKind

VALUES = [
    lambda: Transmit(1, TransmitKind.FIRST, "m.0", b"wire", "m", 0),
    lambda: Transmit(2, TransmitKind.SYNC, "sync", payload=b"wire"),
    lambda: sds.ContentReceived("m.0", "bob", b"content", "m", 0),
    lambda: sds.ContentReceived("m", "bob", content=b"content"),
    lambda: sds.SendReleased("bob", "m"),
    lambda: sds.ContentAcknowledged("m", 0, "m.0", "bob"),
    lambda: sds.SendAcknowledged("m", by="bob"),
    lambda: sds.MissingDetected(()),
]


@pytest.mark.parametrize("make", VALUES)
def test_outputs_are_values(make) -> None:  # type: ignore[no-untyped-def]
    one, other = make(), make()
    assert one == other
    assert hash(one) == hash(other)
    assert one != "m"
    for again in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert type(again) is type(one)
        assert again == one
    fields = {name: getattr(one, name) for name in type(one).__match_args__}
    assert type(one)(**fields) == one
    assert isinstance(one, (Transmit, SdsEvent))
    assert repr(one).startswith(f"{type(one).__name__}({type(one).__match_args__[0]}=")
    assert "payload=" not in repr(one)
    assert "content=" not in repr(one)


def test_a_moment_is_a_value() -> None:
    moment = Now(-3, 1_760_000_000_000)
    for again in (copy.copy(moment), copy.deepcopy(moment), pickle.loads(pickle.dumps(moment))):
        assert again == moment
        assert hash(again) == hash(moment)
    match moment:
        case Now(monotonic_ms, epoch_ms):
            assert (monotonic_ms, epoch_ms) == (-3, 1_760_000_000_000)
    assert Now(1, 2) != Now(2, 1)


@pytest.mark.parametrize("wrong", [None, 1.5, "1", True, 2**63])
def test_a_moment_of_what_is_no_time_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"^monotonic_ms is .*: it must be an integer of ms"):
        Now(wrong, 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^epoch_ms is .*: it must be an integer of ms"):
        Now(0, wrong)  # type: ignore[arg-type]


def test_different_outputs_are_not_equal() -> None:
    made = [make() for make in VALUES]
    assert len(set(made)) == len(made)
    assert sds.SendReleased("a", "b") != sds.SendAcknowledged("a", "b")
    assert sds.SendReleased("a", "b") != sds.SendReleased("a", "c")
    with pytest.raises(AttributeError):
        sds.SendReleased("a", "b").send_id = "c"  # type: ignore[misc]
