"""Files of any size over a reliable channel: offered, sent in chunks, resumed after a crash, verified.

The room owns the exchange and the files on disk; a channel carries its messages. `ReliableChannel.send_file` and
`receive_files` are how applications meet it.
"""

from __future__ import annotations

from shardwire._native import is_file_message
from shardwire.files.receiver import TRANSFERS_MAX, Choice, ChoiceError, FileOffer, FileReceiver
from shardwire.files.sender import DoneWhen, FileSender
from shardwire.files.transport import FileChannel

__all__ = [
    "TRANSFERS_MAX",
    "Choice",
    "ChoiceError",
    "DoneWhen",
    "FileChannel",
    "FileOffer",
    "FileReceiver",
    "FileSender",
    "is_file_message",
]
