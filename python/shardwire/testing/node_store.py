"""The check of a node's store."""

from __future__ import annotations

from dataclasses import replace

from shardwire.channel.receiving.node_events import fault_of_page
from shardwire.errors import NodeError
from shardwire.node.protocol import MessageSent, StoredMessage, StorePage, StoreQuery
from shardwire.testing.node_exchange import RESEND_MS, Exchange, Exchanged, Side
from shardwire.testing.promises import raised

STORED_MESSAGES = 5
PAGES_MAX = 100
# A store with a clock of its own may give what lies a little beside the times.
BESIDE_NS = 3_600 * 10**9
UNKNOWN_HASH = bytes(range(32))


async def check_store(exchange: Exchange, alice: Side, bob: Side, topic: str) -> None:
    """What alice sends is asked for by bob, who is subscribed."""
    await _Check(exchange, alice, bob, topic).run()


async def check_no_store(exchange: Exchange, side: Side) -> None:
    """Nobody answers, and that is said."""
    with exchange.trial.of("no-store"):
        try:
            page = await exchange.within("query_store", side.node.query_store(StoreQuery()))
        except NodeError:
            return
        exchange.trial.require(False, "NodeError, since has_store is False", page)


class _Check:
    def __init__(self, exchange: Exchange, alice: Side, bob: Side, topic: str) -> None:
        self._exchange = exchange
        self._trial = exchange.trial
        self._alice = alice
        self._bob = bob
        self._topic = topic

    async def run(self) -> None:
        trial = self._trial
        with trial.of("store-page"):
            await self._ask("any", StoreQuery(content_topics=(self._topic,), page_size=1))
        with trial.of("store-by-hash"):
            messages = [await self._stored() for _ in range(STORED_MESSAGES)]
            await self._by_hash(messages)
        with trial.of("store-by-time"):
            await self._by_time(messages[1])
        with trial.of("store-pages"):
            await self._pages(messages)
        with trial.of("store-ephemeral"):
            passing = await self._exchange.deliver(self._alice, self._bob, self._topic, ephemeral=True)
            await self._stored()
            found = await self._named(passing.arrived.message_hash)
            trial.did("an ephemeral message and another one, and a query for the hash of the first")
            trial.require(not found, "no message", "the ephemeral one")
        with trial.of("sent-is-stored"):
            for event in self._alice.readers[0].all_of(MessageSent):
                found = await self._named(event.message_hash)
                trial.did(f"MessageSent for {event.request_id!r}, and a query for its hash")
                trial.require(bool(found), "the message", "none")

    async def _by_hash(self, messages: list[Exchanged]) -> None:
        trial = self._trial
        for message in messages:
            (found, *others) = await self._named(message.arrived.message_hash)
            trial.did("a query for one hash")
            trial.require(not others, "one message", f"{1 + len(others)}")
            trial.require(found.envelope is not None, "a message with its envelope", "one without")
            assert found.envelope is not None
            trial.require(
                (found.envelope.payload, found.envelope.content_topic)
                == (message.envelope.payload, message.envelope.content_topic),
                "the message as it was sent",
                "another payload or topic",
            )
        found_unknown = await self._named(UNKNOWN_HASH, *(message.arrived.message_hash for message in messages[:2]))
        trial.did("a query for three hashes, of which the store has two")
        trial.require(len(found_unknown) == 2, "two messages", f"{len(found_unknown)}")
        page = await self._ask(
            "a hash, without data", StoreQuery((messages[0].arrived.message_hash,), include_data=False)
        )
        trial.require(len(page.messages) == 1, "one hash", f"{len(page.messages)}")

    async def _by_time(self, message: Exchanged) -> None:
        trial, at_ns = self._trial, message.arrived.timestamp_ns
        name = message.arrived.message_hash
        for start_ns, end_ns, other, is_there in (
            (at_ns, at_ns, False, True),
            (at_ns, None, False, True),
            (None, at_ns, False, True),
            (at_ns + BESIDE_NS, None, False, False),
            (None, at_ns - BESIDE_NS, False, False),
            (at_ns, at_ns, True, False),
        ):
            topic = f"{self._topic.rpartition('/')[0]}/elsewhere" if other else self._topic
            query = StoreQuery(content_topics=(topic,), start_time_ns=start_ns, end_time_ns=end_ns)
            found = [stored.message_hash for stored in await self._all("a topic and times", query)]
            begins = "" if start_ns is None else f" from {start_ns - at_ns:+} ns"
            ends = "" if end_ns is None else f" to {end_ns - at_ns:+} ns"
            what = "another topic" if other else "the topic"
            trial.did(f"a query for {what}{begins}{ends} of a message's time")
            if is_there:
                trial.require(name in found, "that message among the answers", f"{len(found)} others")
            else:
                trial.require(name not in found, "answers without that message", "it among them")

    async def _pages(self, messages: list[Exchanged]) -> None:
        trial = self._trial
        since_ns = min(message.arrived.timestamp_ns for message in messages)
        until_ns = max(message.arrived.timestamp_ns for message in messages)
        query = StoreQuery(content_topics=(self._topic,), start_time_ns=since_ns, end_time_ns=until_ns, page_size=2)
        found = await self._all("a topic in pages of 2", query)
        names = [stored.message_hash for stored in found]
        trial.did("a query in pages of 2, each with the cursor of the page before")
        trial.require(len(names) == len(set(names)), "every message once", "one of them twice")
        missing = [message for message in messages if message.arrived.message_hash not in names]
        trial.require(not missing, f"{len(messages)} messages", f"{len(missing)} of them missing")
        # Of one sender: another node's clock need not agree with that one to the last part of a millisecond.
        ours = {message.arrived.message_hash for message in messages}
        times = [stored.timestamp_ns for stored in found if stored.message_hash in ours]
        trial.require(times == sorted(times), "the oldest first", "another order")

    # --- steps ---

    async def _stored(self) -> Exchanged:
        """A message that the store has; a network may lose one on the way there, and then it is another."""
        for _ in range(self._exchange.tries):
            message = await self._exchange.deliver(self._alice, self._bob, self._topic)

            async def is_there(name: bytes = message.arrived.message_hash) -> bool:
                return bool(await self._named(name))

            if await self._exchange.eventually(is_there, RESEND_MS):
                return message
        self._trial.did(f"queries for the hashes of {self._exchange.tries} messages that {self._bob.name} got")
        self._trial.require(False, "one of them", "none")
        raise AssertionError

    async def _named(self, *hashes: bytes) -> list[StoredMessage]:
        found = list((await self._ask("hashes", StoreQuery(message_hashes=hashes))).messages)
        self._trial.require(
            all(stored.message_hash in hashes for stored in found), "messages of these hashes", "others too"
        )
        return found

    async def _all(self, what: str, query: StoreQuery) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for _ in range(PAGES_MAX):
            page = await self._ask(what, query)
            if len(page.messages) > query.page_size:
                raise self._trial.breaks("store-pages", f"{query.page_size} messages at most", f"{len(page.messages)}")
            found += page.messages
            if page.cursor is None:
                return found
            query = replace(query, cursor=page.cursor)
        raise self._trial.breaks("store-pages", f"the last page among {PAGES_MAX}", "further cursors")

    async def _ask(self, what: str, query: StoreQuery) -> StorePage:
        pages: list[object] = []

        async def answers() -> bool:
            try:
                pages.append(await self._exchange.within(f"query_store for {what}", self._bob.node.query_store(query)))
            except NodeError as error:
                failures.append(raised(error))
            except AssertionError:
                raise
            except Exception as error:
                raise self._trial.breaks("store-page", "a StorePage, or NodeError", raised(error)) from error
            return bool(pages)

        failures: list[str] = []
        answered = await self._exchange.eventually(answers, self._exchange.patience_ms)
        self._trial.require(answered, "a StorePage", failures[-1] if failures else "none")
        page = pages[0]
        fault = fault_of_page(page)
        if fault is not None:
            raise self._trial.breaks("store-page", "a well-formed StorePage", fault)
        assert isinstance(page, StorePage)
        return page
