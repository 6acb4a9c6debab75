"""The store v3 REST interface (13/WAKU2-STORE) in both dialects: logos-delivery (nwaku) and go-waku.

The dialects differ in how hashes are written, in the names of the answer's fields and in what a query must name. An
answer is read by the fields it has, so either server may give either form. What a server sends is checked first.
"""

from __future__ import annotations

import base64
from typing import Literal

from shardwire._native import decode_store_json, message_hash, shard_of
from shardwire.errors import ConfigError, NodeError
from shardwire.node.protocol import MessageEnvelope, StoredMessage, StorePage, StoreQuery
from shardwire.quoting import quoted

WakuDialect = Literal["logos-delivery", "go-waku"]

STORE_PATH = "/store/v3/messages"
PAGE_SIZE_MAX = 100
CONTENT_TOPICS_MAX = 10
TEXT_SHOWN_MAX = 200


def query_parameters(
    query: StoreQuery,
    dialect: WakuDialect,
    *,
    peer_addr: str | None,
    pubsub_topic: str | None,
    cluster_id: int,
    num_shards_in_cluster: int,
) -> dict[str, str]:
    """The query string of one request.

    Args:
        query: What is asked.
        dialect: What the node speaks.
        peer_addr: The store peer that the node forwards to.
        pubsub_topic: Where the content topics lie; None derives it by autosharding where go-waku requires one.
        cluster_id: For autosharding.
        num_shards_in_cluster: For autosharding.

    Raises:
        ConfigError: The query asks for what this dialect cannot answer.
    """
    if query.page_size > PAGE_SIZE_MAX:
        raise ConfigError(f"StoreQuery.page_size is {query.page_size}: it must be from 1 to {PAGE_SIZE_MAX}")
    write_hash = _base64_hash if dialect == "go-waku" else _hex_hash
    parameters = {
        "includeData": _word(query.include_data),
        "pageSize": str(query.page_size),
        "ascending": _word(query.forward),
    }
    if peer_addr is not None:
        parameters["peerAddr"] = peer_addr
    if query.cursor is not None:
        parameters["cursor"] = write_hash(query.cursor)
    if query.message_hashes:
        if dialect == "go-waku" and peer_addr is None:
            raise ConfigError("go-waku answers a query by hashes only where a store peer is named: set its address")
        return parameters | {"hashes": ",".join(map(write_hash, query.message_hashes))}
    for topic in query.content_topics:
        if "," in topic:
            raise ConfigError(
                f"StoreQuery.content_topics holds {quoted(topic)}: a store takes a comma for the end of a topic, "
                "so it may hold none"
            )
    if query.content_topics:
        parameters["contentTopics"] = ",".join(query.content_topics)
    if dialect == "go-waku":
        pubsub_topic = pubsub_topic or _autosharded(query.content_topics, cluster_id, num_shards_in_cluster)
        if len(query.content_topics) > CONTENT_TOPICS_MAX:
            raise ConfigError(
                f"a query of go-waku names {len(query.content_topics)} content topics: at most {CONTENT_TOPICS_MAX}"
            )
    if pubsub_topic is not None:
        parameters["pubsubTopic"] = pubsub_topic
    if query.start_time_ns is not None:
        parameters["startTime"] = str(query.start_time_ns)
    if query.end_time_ns is not None:
        parameters["endTime"] = str(query.end_time_ns)
    return parameters


def parse_page(answer: bytes) -> StorePage:
    """A page out of either dialect's JSON.

    Raises:
        NodeError: The answer reports a failure or is not a store's.
    """
    return _parse(answer, verified=False)


def parse_verified_page(answer: bytes) -> StorePage:
    """As `parse_page`, without messages whose content has another hash than the store says.

    Raises:
        NodeError: The answer reports a failure or is not a store's.
    """
    return _parse(answer, verified=True)


def _parse(answer: bytes, *, verified: bool) -> StorePage:
    try:
        status, described, entries, cursor = decode_store_json(answer)
    except ValueError as error:
        raise NodeError(f"a store's answer cannot be read: {error}") from None
    if status not in (None, 200):
        raise NodeError(f"the store reports {status}: {str(described)[:TEXT_SHOWN_MAX]!r}")
    messages: list[StoredMessage] = []
    for name, pubsub_topic, message in entries:
        if message is None:
            messages.append(StoredMessage(name))
            continue
        payload, content_topic, timestamp_ns, meta, ephemeral = message
        if verified and pubsub_topic is not None:
            found = message_hash(
                pubsub_topic=pubsub_topic,
                payload=payload,
                content_topic=content_topic,
                meta=meta or None,
                timestamp_ns=timestamp_ns,
            )
            if found != name:
                continue
        envelope = MessageEnvelope(content_topic, payload, ephemeral, meta)
        messages.append(StoredMessage(name, timestamp_ns, envelope))
    return StorePage(tuple(messages), cursor)


def _hex_hash(value: bytes) -> str:
    return "0x" + value.hex()


def _base64_hash(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii")


def _autosharded(content_topics: tuple[str, ...], cluster_id: int, num_shards_in_cluster: int) -> str:
    shards = {shard_of(topic, num_shards_in_cluster) for topic in content_topics}
    if len(shards) != 1:
        raise ConfigError(
            f"a query of go-waku must name content topics of one shard, and {len(content_topics)} topics lie on "
            f"{len(shards)}: ask for them apart, or name the pubsub topic"
        )
    return f"/waku/2/rs/{cluster_id}/{shards.pop()}"


def _word(value: bool) -> str:
    return "true" if value else "false"
