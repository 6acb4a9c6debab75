"""Encrypts what leaves (003, Outgoing message processing, step 3): before it is counted, and never in the clear."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shardwire.channel.cipher_calls import encrypted, told_of_cipher
from shardwire.channel.hooks import heed_cancellation, is_ours
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.outcomes import DispatchFailed
from shardwire.encryption.protocol import Encryption
from shardwire.node.wake import Wake
from shardwire.peer_log import PeerLog
from shardwire.quoting import quoted
from shardwire.sds import Transmit, TransmitKind

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Sealed:
    """A transmit as it leaves; not frozen, as one is made for each.

    Attributes:
        transmit: The transmit.
        payload: What the envelope carries: the ciphertext, where there is a cipher.
    """

    transmit: Transmit
    payload: bytes = field(repr=False)


class Sealer:
    """One task that encrypts in order.

    Args:
        encryption: The cipher; None for none, then everything goes on at once.
        sizes: How large messages may be.
        may_try: Whether the node is worth a try; while it is not, nothing is encrypted.
        is_wanted: Whether anybody waits for a transmit still: another one is not encrypted.
        forward: Given everything that is ready to leave.
        report: Told what can never leave.
        peer_log: Told which messages of others those are.
    """

    def __init__(
        self,
        encryption: Encryption | None,
        sizes: MessageSizes,
        may_try: Callable[[], bool],
        is_wanted: Callable[[Transmit], bool],
        forward: Callable[[Sealed], None],
        report: Callable[[DispatchFailed], None],
        peer_log: PeerLog,
    ) -> None:
        self._encryption = encryption
        self._sizes = sizes
        self._may_try = may_try
        self._is_wanted = is_wanted
        self._forward = forward
        self._report = report
        self._peer_log = peer_log
        self._queue: deque[Transmit] = deque()
        self._wake = Wake()

    def submit(self, transmit: Transmit) -> None:
        """Takes a transmit; everything it speaks of must be durable."""
        if self._encryption is None:
            self._pass_on(transmit, transmit.payload)
            return
        self._queue.append(transmit)
        self._wake.set()

    def resume(self) -> None:
        """Looks again whether what is queued may be tried."""
        if self._queue:
            self._wake.set()

    def clear(self) -> None:
        """Forgets what was not encrypted; nobody waits for it any longer."""
        self._queue.clear()

    async def run(self) -> None:
        """Encrypts what is queued, until cancelled."""
        while True:
            while self._queue and self._may_try():
                transmit = self._queue.popleft()
                if self._is_wanted(transmit):
                    await self._seal(transmit)
                    heed_cancellation()
            self._wake.clear()
            await self._wake.wait()

    async def _seal(self, transmit: Transmit) -> None:
        assert self._encryption is not None
        try:
            payload = await encrypted(self._encryption, transmit.payload)
        except BaseException as error:
            if is_ours(error):
                raise
            # Nothing leaves in the clear. The error may quote what it could not encrypt: its text is not told.
            self._fail(transmit, f"encryption failed: {told_of_cipher(error, __file__)}")
            return
        self._pass_on(transmit, payload)

    def _pass_on(self, transmit: Transmit, payload: bytes) -> None:
        payload_bytes_max = self._sizes.payload_bytes_max
        if len(payload) <= payload_bytes_max:
            self._forward(Sealed(transmit, payload))
            return
        # A cipher may add more than it says, or than it added when it was measured, and the node may carry less than
        # when this was encoded.
        self._fail(transmit, f"it is too large: {len(payload)} bytes, the node carries {payload_bytes_max}")

    def _fail(self, transmit: Transmit, text: str) -> None:
        # A repair is somebody else's message, for somebody else who asked for it.
        tell = self._peer_log.tell if transmit.kind is TransmitKind.REPAIR else logger.error
        tell("message %s cannot leave: %s", quoted(transmit.message_id), text)
        self._report(DispatchFailed(transmit, text, permanent=True))
