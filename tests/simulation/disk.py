"""The durable state of a simulated participant: what a commit wrote before a crash is there after it, nothing else."""

from __future__ import annotations

import json
import random

from shardwire import ChannelConfig, keccak256
from shardwire._native import ChannelMachine
from shardwire.persistence import Changes, ChannelState, MemoryPersistence
from shardwire.sds import Now
from shardwire.segmentation.parameters import native_parameters

# Whole messages: their bytes, or what names them.
PAYLOAD = "channel.payload"
PARTS = "channel.parts"
DELIVERY = "channel.delivery"
# Where the record of parts has the hash of the message: behind a version and the length of what follows (4 bytes), and
# in that behind a version, the length of the message (8 bytes) and its own length (4 bytes).
_HASH_OF_PARTS = slice(18, 50)


class Disk:
    """Survives crashes; hands out one persistence for each life of a participant."""

    def __init__(self) -> None:
        self.content = MemoryPersistence()
        self.commits = 0
        # Records of messages that were once written whole, not read yet, and what those read before hold.
        self._whole: list[tuple[str, bytes]] = []
        self._written: set[str] = set()

    def mount(self) -> MountedDisk:
        return MountedDisk(self)

    def note_written(self, changes: Changes) -> None:
        """Remembers the whole messages that a commit wrote."""
        for (kind, _), value in changes.records.items():
            if value is not None and kind in (PAYLOAD, PARTS):
                self._whole.append((kind, value))

    def written(self) -> set[str]:
        """Hex hashes of messages that were once written whole."""
        whole, self._whole = self._whole, []
        for kind, value in whole:
            self._written.add((keccak256(value) if kind == PAYLOAD else value[_HASH_OF_PARTS]).hex())
        return self._written

    def payloads(self, channel_id: str) -> set[bytes]:
        """Whole messages that are stored now, as a restart would read them."""
        state = self.content.load(channel_id)
        if state is None:
            return set()
        records = {name: value for name, value in state.records.items() if name[0] != DELIVERY}
        # Each as one that waits for the application, which is then what the machine gives.
        for number, key in enumerate(key for kind, key in state.records if kind in (PAYLOAD, PARTS)):
            sender_bytes = 4 + int.from_bytes(key[:4], "big")
            texts = {"sender_id": key[4:sender_bytes].decode(), "send_id": key[sender_bytes:].decode()}
            delivery = {"version": 1, **texts, "message_id": "00" * 32}
            records[DELIVERY, number.to_bytes(8, "big")] = json.dumps(delivery).encode()
        # Whatever it is configured with, it reads them.
        config = ChannelConfig.logos()
        machine = ChannelMachine.restore(
            records,
            channel_id,
            "reader",
            config.sds,
            config.sync,
            native_parameters(config.segmentation),
            config.segmentation.limits,
            now=Now(0, 0),
            rng=random.Random(0),
        )
        payloads = set()
        while begun := machine.begin_deliveries():
            for delivery in begun:
                machine.finish_delivery()
                payloads.add(delivery.payload)
        return payloads


class MountedDisk:
    """A persistence over a disk until the power is cut; from then on commits reach nothing.

    It is no `MemoryPersistence`, so a channel commits through the executor, which takes time in the simulation: a
    crash meets commits before, while and after they are written.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._powered = True

    def load(self, channel_id: str) -> ChannelState | None:
        return self._disk.content.load(channel_id)

    def commit(self, channel_id: str, changes: Changes) -> None:
        if self._powered:
            self._disk.content.commit(channel_id, changes)
            self._disk.commits += 1
            self._disk.note_written(changes)

    def close(self) -> None:
        pass

    def cut_power(self) -> None:
        self._powered = False
