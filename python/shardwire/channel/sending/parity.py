"""Parity on demand: made of the segments that SDS keeps, and what becomes of it in a later life."""

from __future__ import annotations

from shardwire._native import ChannelMachine
from shardwire.channel.sending.outgoing import OutgoingSends
from shardwire.sds import ContentsWanted, Now


def resume_sends(machine: ChannelMachine, outgoing: OutgoingSends, now: Now) -> None:
    """What an earlier life may have ended before goes once more; first parity that was not stored is done without."""
    for send_id, ordinals in outgoing.unsent_ordinals():
        for ordinal in machine.resume(send_id, ordinals, now):
            outgoing.on_left_out(send_id, ordinal)


def make_parity(machine: ChannelMachine, outgoing: OutgoingSends, wanted: ContentsWanted, now: Now) -> int:
    """Answers SDS with as much parity as it wants; how much there is now.

    It is made as the message was segmented, whatever is configured now; of a message that this is not known of, none.
    """
    record = outgoing.record(wanted.send_id)
    wire_format, _, erasure_code = (record.form if record is not None else "").partition(" ")
    count = wanted.count if erasure_code else 0
    return machine.make_parity(wanted.send_id, count, wire_format or "raw", erasure_code or "leopard", now)
