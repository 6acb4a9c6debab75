"""What all events of a channel have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ChannelEvent:
    """Base of all events of a channel: `on(ChannelEvent, callback)` hears every one of them."""

    names: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """The first of the strings that subscribe to this event."""
        return self.names[0]
