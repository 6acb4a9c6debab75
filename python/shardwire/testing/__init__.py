"""Checks of parts that an application supplies: a persistence, a node, a cipher, against what a channel needs of them.

Each check takes what makes the part, tries every promise of its protocol, and raises `BrokenPromiseError` at the first
that does not hold. They need no test runner, and work under any.
"""

from __future__ import annotations

from shardwire.testing.encryption import ENCRYPTION_PROMISES, check_encryption
from shardwire.testing.node import check_node
from shardwire.testing.node_promises import NODE_PROMISES
from shardwire.testing.persistence import check_persistence
from shardwire.testing.persistence_promises import PERSISTENCE_PROMISES
from shardwire.testing.promises import BrokenPromiseError, CheckReport, Promise

__all__ = [
    "ENCRYPTION_PROMISES",
    "NODE_PROMISES",
    "PERSISTENCE_PROMISES",
    "BrokenPromiseError",
    "CheckReport",
    "Promise",
    "check_encryption",
    "check_node",
    "check_persistence",
]
