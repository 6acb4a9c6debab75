"""What a channel needs of a persistence, one promise at a time."""

from __future__ import annotations

from shardwire.testing.promises import Promise

_PARTS = "docs/howto/persistence.md, What a record is"
_OWN = "docs/howto/persistence.md, A backend of your own"
_OWES = "docs/howto/persistence.md, What `commit` owes"

PERSISTENCE_PROMISES = (
    Promise("plain-methods", "it has load, commit and close, plain methods that are done when they return", _OWN),
    Promise("never-stored", "load gives None for a channel that was never stored", _OWES),
    Promise("round-trip", "load gives a ChannelState of what was committed, the same texts and bytes", _OWES),
    Promise("last-commit-stands", "commits count in the order in which they were made", _OWES),
    Promise("deletion", "a record whose value is None is gone; where there is none, nothing happens", _OWES),
    Promise("any-key", "a key is any bytes, none too, up to 600, and every one its own", _PARTS),
    Promise("any-kind", "a kind is any ASCII text of up to 32 characters, and none touches another", _PARTS),
    Promise("any-channel-id", "a channel id is any text of up to 300 bytes, and every one its own", _PARTS),
    Promise("empty-values", "a value of no bytes is a value", _PARTS),
    Promise("large-values", "a value has up to 26 MB", _PARTS),
    Promise("many-records", "one commit puts and deletes thousands of records", _PARTS),
    Promise("deleted-prefixes", "every record of that kind goes whose key begins so, and no other", _OWES),
    Promise("prefixes-first", "what a commit puts stays, though its deleted_prefixes name it", _OWES),
    Promise("same-changes-again", "the same changes again change nothing", _OWES),
    Promise("no-changes", "a commit without changes changes nothing", _OWES),
    Promise("all-or-nothing", "of a commit that raises nothing is stored, then or later", _OWES),
    Promise("other-threads", "load and commit are called from any thread, for one channel from one at a time", _OWES),
    Promise("channels-at-once", "several channels commit at the same time", _OWES),
    Promise("release", "after release of one channel every channel can be loaded and committed", _OWES),
    Promise("reopening", "what was committed is there when the store is opened anew", _OWES),
    Promise("commit-before-load", "a commit changes what is stored, also where nobody loaded it before", _OWES),
    Promise("closing-again", "closing again does nothing", _OWES),
)
