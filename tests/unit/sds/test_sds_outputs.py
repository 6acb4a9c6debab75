"""What the machine gives out behaves as values: equal, hashed, shown, matched, copied and pickled by its fields."""

from __future__ import annotations

import copy
import pickle

import pytest

from shardwire import sds
from shardwire.sds import SdsEvent, Transmit, TransmitKind

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


def test_different_outputs_are_not_equal() -> None:
    made = [make() for make in VALUES]
    assert len(set(made)) == len(made)
    assert sds.SendReleased("a", "b") != sds.SendAcknowledged("a", "b")
    assert sds.SendReleased("a", "b") != sds.SendReleased("a", "c")
    with pytest.raises(AttributeError):
        sds.SendReleased("a", "b").send_id = "c"  # type: ignore[misc]
