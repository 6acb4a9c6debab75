"""Ids of contents that name their send."""

from __future__ import annotations

from shardwire.sds.identity import split_content_id


def test_ids_that_name_a_send() -> None:
    send_id = "0" * 32
    assert split_content_id(f"{send_id}.0") == (send_id, 0)
    assert split_content_id(f"{send_id}.255") == (send_id, 255)
    for other in (
        "",
        send_id,
        f"{send_id}.",
        f"{send_id}.00",
        f"{send_id}.-1",
        f"{send_id}.٣",
        f"{send_id}.12345",
        "a" * 64,
    ):
        assert split_content_id(other) is None
