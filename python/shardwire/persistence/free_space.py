"""Which parts of a file are in use, and where there is room for more."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

# Places begin at multiples of this: a page of the system's cache, and mostly of the disk.
BLOCK_BYTES = 4_096


def in_blocks(size_bytes: int) -> int:
    """The bytes of the blocks that so many bytes take."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


class FreeSpace:
    """The free parts of one file.

    Args:
        taken: Where something lies, and how many bytes it has.

    Attributes:
        end: Behind it nothing is in use.

    Raises:
        ValueError: Two of them overlap, or one begins within a block or has no bytes.
    """

    def __init__(self, taken: Iterable[tuple[int, int]] = ()) -> None:
        # Beginnings and ends, ascending; none touches another, or the end.
        self._free: list[tuple[int, int]] = []
        self.end = 0
        for start, size in sorted(taken):
            if start < self.end or start % BLOCK_BYTES or size <= 0:
                raise ValueError(f"{size} bytes at {start} cannot be in use")
            if start > self.end:
                self._free.append((self.end, start))
            self.end = start + in_blocks(size)

    def take(self, size: int) -> int:
        """Where so many bytes have room from now on: as far in front as they fit."""
        needed = in_blocks(size)
        for index, (start, end) in enumerate(self._free):
            if end - start > needed:
                self._free[index] = (start + needed, end)
                return start
            if end - start == needed:
                del self._free[index]
                return start
        start = self.end
        self.end += needed
        return start

    def give_back(self, start: int, size: int) -> None:
        """What `take` gave, or was taken from the first, is free again."""
        end = start + in_blocks(size)
        index = bisect.bisect_left(self._free, (start, end))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index and self._free[index - 1][1] == start:
            index -= 1
            start = self._free.pop(index)[0]
        if end == self.end:
            self.end = start
        else:
            self._free.insert(index, (start, end))
