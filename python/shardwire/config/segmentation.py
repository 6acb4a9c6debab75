"""How payloads become segments, and what a receiver may hold of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shardwire.config.checks import check_bools, check_choices, check_integers, check_share, refuse
from shardwire.errors import ConfigError

ErasureCode = Literal["leopard", "vandermonde"]
SegmentWireFormat = Literal["raw", "draft", "lip243"]

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class ReassemblyLimits:
    """What a receiver may hold for payloads that are not complete (segmentation 001 and 002, Denial of Service).

    Attributes:
        sets_max: Incomplete sets held at once, over all senders.
        sets_per_sender_max: Incomplete sets held at once with segments of one sender.
        buffered_bytes_max: Wire bytes held in incomplete sets, over all senders.
        buffered_bytes_per_sender_max: Wire bytes held for one sender.
        unauthenticated_share: Part of both global budgets that senders without an authenticated identity share.
        candidates_per_slot_max: Different segments kept for one position of a set.
        completed_remembered_max: Completed sets remembered, so that a late segment does not reopen one. A channel
            remembers `log_messages_max` at least.
        timeout_ms: A set expires this long after its last new segment; under a rate limit after 3 epochs at least.
        work_budget: Reconstructions that guesses at wrong segments of a set may cost; as many are kept for the rest.
            One counts as 4 MiB of hashing at most, but four are afforded whatever the size. To look for wrong segments
            among more than enough is paid for apart: up to 2 MiB of hashing for each, but as much as two need.
    """

    sets_max: int = 1_000
    sets_per_sender_max: int = 100
    buffered_bytes_max: int = 256 * MEBIBYTE
    buffered_bytes_per_sender_max: int = 64 * MEBIBYTE
    unauthenticated_share: float = 0.5
    candidates_per_slot_max: int = 4
    completed_remembered_max: int = 100_000
    timeout_ms: int = 300_000
    work_budget: int = 32

    def __post_init__(self) -> None:
        check_integers(self, 1, ("sets_max", "sets_per_sender_max", "buffered_bytes_max"))
        check_integers(self, 1, ("buffered_bytes_per_sender_max", "candidates_per_slot_max", "timeout_ms"))
        check_integers(self, 1, ("work_budget",))
        check_integers(self, 0, ("completed_remembered_max",))
        check_share(self, "unauthenticated_share", zero=False)


@dataclass(frozen=True, slots=True)
class SegmentationConfig:
    """How payloads become segments (segmentation 002; Logos 003 SegmentationConfig).

    Attributes:
        segment_size_bytes: Payload bytes of a data segment; under `lip243` the size of a serialized segment.
        enable_reed_solomon: Whether parity segments are made.
        parity_rate: Parity segments per data segment, counted in millionths.
        parity_for_single_segment: Whether a payload that fits one segment gets parity too.
        erasure_code: The code of parity that is made, and the first one tried on receipt.
        wire_format: The segment wire.
        max_total_segments: A sender emits fewer data and parity segments than this, a receiver accepts as many.
        max_tail_candidates: Lengths tried for a recovered last segment; None means `segment_size_bytes`.
        limits: What a receiver holds.
    """

    segment_size_bytes: int = 102_400
    enable_reed_solomon: bool = False
    parity_rate: float = 0.125
    parity_for_single_segment: bool = False
    erasure_code: ErasureCode = "leopard"
    wire_format: SegmentWireFormat = "raw"
    max_total_segments: int = 256
    max_tail_candidates: int | None = None
    limits: ReassemblyLimits = field(default_factory=ReassemblyLimits)

    def __post_init__(self) -> None:
        check_integers(self, 1, ("segment_size_bytes",), 1 << 30)
        check_bools(self, ("enable_reed_solomon", "parity_for_single_segment"))
        check_share(self, "parity_rate")
        check_choices(self, "erasure_code", ("leopard", "vandermonde"))
        check_choices(self, "wire_format", ("raw", "draft", "lip243"))
        check_integers(self, 2, ("max_total_segments",), 256)
        if self.max_tail_candidates is not None:
            check_integers(self, 1, ("max_tail_candidates",), 1 << 30)
        if not isinstance(self.limits, ReassemblyLimits):
            raise refuse(self, "limits", self.limits, "a ReassemblyLimits")
        if self.enable_reed_solomon and not self.has_codable_size:
            raise refuse_size(self, "erasure_code='leopard'")
        if self.wire_format == "lip243":
            check_integers(self, 192, ("segment_size_bytes",), 1 << 30)
        # Under `raw` any rate gives a single segment one of parity; a rate counts in millionths.
        parity = self.enable_reed_solomon and self.wire_format == "raw" and self.parity_rate >= 0.5e-6
        if parity and self.parity_for_single_segment and self.max_total_segments == 2:
            raise refuse(self, "max_total_segments", 2, "at least 3 where a single segment has parity")

    @property
    def has_codable_size(self) -> bool:
        """Whether parity can be made of segments of this size: Leopard takes multiples of 64 bytes."""
        pads = self.wire_format == "lip243" or self.erasure_code != "leopard"
        return pads or self.segment_size_bytes % 64 == 0


def refuse_size(segmentation: SegmentationConfig, what: str) -> ConfigError:
    """What is raised where `what` needs parity, which cannot be made of segments of this size."""
    nearest = max(64, round(segmentation.segment_size_bytes / 64) * 64)
    limit = f"a multiple of 64 for {what}: the nearest is {nearest}"
    return refuse(segmentation, "segment_size_bytes", segmentation.segment_size_bytes, limit)
