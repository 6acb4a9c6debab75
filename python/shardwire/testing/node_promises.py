"""What a channel needs of a node, one promise at a time."""

from __future__ import annotations

from shardwire.testing.promises import Promise

_PAGE = "docs/guide/write_your_own_node.md"
_MEMBERS = f"{_PAGE}, The members of a node"
_EVENTS = f"{_PAGE}, What each event promises"

NODE_PROMISES = (
    Promise(
        "members",
        "it has the members of Node: config, max_message_size_bytes and has_store as they should be",
        _MEMBERS,
    ),
    Promise("start", "start connects, and does nothing on a started node", _MEMBERS),
    Promise("subscribe-before-start", "subscribe raises NodeError before the start, or holds after it", _MEMBERS),
    Promise("events", "events() gives an async iterator of well-formed events", _MEMBERS),
    Promise("events-go-on", "an iterator goes on until the node stops", _MEMBERS),
    Promise("every-reader", "every iterator gives every event", _MEMBERS),
    Promise("events-from-now-on", "an iterator gives nothing from before its call of events()", _MEMBERS),
    Promise("send", "send accepts or raises NodeError, and returns another text for each message", _MEMBERS),
    Promise("outcome", "each request is told as propagated or failed within 60 s", _EVENTS),
    Promise("propagated-once", "MessagePropagated is told once for a request", _EVENTS),
    Promise("failed-for-good", "a request that is told as failed is never told as propagated", _EVENTS),
    Promise("delivery", "who is subscribed gets the message: its topic, payload and meta as they were sent", _EVENTS),
    Promise("ephemeral", "an ephemeral message reaches others as any", _EVENTS),
    Promise("own-messages", "a node that is subscribed tells of its own messages too", _EVENTS),
    Promise(
        "message-hash", "a hash is the same for one message wherever it is told, and differs for any other", _MEMBERS
    ),
    Promise("timestamp", "timestamp_ns is the sender's time in nanoseconds since the Unix epoch", _EVENTS),
    Promise("topics-apart", "nothing is told of topics that are not subscribed", _MEMBERS),
    Promise("subscribe", "further topics are told beside those before", _MEMBERS),
    Promise(
        "unsubscribe", "nothing is told of a topic any longer; one that is not subscribed is passed over", _MEMBERS
    ),
    Promise("subscribe-again", "what was unsubscribed can be subscribed again", _MEMBERS),
    Promise("largest-message", "a message of max_message_size_bytes, encoded, arrives", _MEMBERS),
    Promise("too-large", "a larger one is carried all the same, or refused for good", _EVENTS),
    Promise(
        "connection-status", "ConnectionStatus tells changes, and none is disconnected while messages pass", _EVENTS
    ),
    Promise("no-store", "without a store query_store raises NodeError", _MEMBERS),
    Promise("store-page", "query_store gives a well-formed StorePage, or raises NodeError", _MEMBERS),
    Promise("store-by-hash", "a store gives what is asked for by hash, and nothing else", _MEMBERS),
    Promise(
        "store-by-time",
        "a store gives the messages of a topic between two times, both included, and none an hour away",
        _MEMBERS,
    ),
    Promise("store-pages", "pages hold page_size messages at most, and every one once, oldest first", _MEMBERS),
    Promise("store-ephemeral", "a store passes over ephemeral messages", _MEMBERS),
    Promise("sent-is-stored", "a message that MessageSent tells of is in the store", _EVENTS),
    Promise("stop", "stop ends every iterator, and does nothing on a stopped node", _MEMBERS),
)
