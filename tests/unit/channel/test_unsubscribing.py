"""A callback that was unsubscribed is called no more, also where others are still being told the same event."""

from __future__ import annotations

import asyncio

from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.events import MessageReceivedEvent, MessageSentEvent

RECEIVED = MessageReceivedEvent(b"payload", "alice", "ab")
SENT = MessageSentEvent("request", "ab")


def is_ending() -> bool:
    return True


def test_one_that_an_earlier_callback_unsubscribes_is_not_called() -> None:
    async def main() -> None:
        subscriptions = Subscriptions()
        told: list[str] = []

        async def first(event: MessageReceivedEvent) -> None:
            told.append("first")
            await asyncio.sleep(0)
            end_second()

        subscriptions.on(MessageReceivedEvent, first)
        end_second = subscriptions.on(MessageReceivedEvent, lambda event: told.append("second"))
        await subscriptions.hand_over(RECEIVED, is_ending)
        assert told == ["first"]

    asyncio.run(main())


def test_one_that_is_unsubscribed_while_a_callback_before_it_waits_is_not_called() -> None:
    async def main() -> None:
        subscriptions = Subscriptions()
        announcing = asyncio.create_task(subscriptions.run_announcements(is_ending))
        told: list[str] = []
        go_on = asyncio.Event()

        async def first(event: MessageSentEvent) -> None:
            await go_on.wait()

        subscriptions.on(MessageSentEvent, first)
        end_second = subscriptions.on(MessageSentEvent, lambda event: told.append("second"))
        subscriptions.announce(SENT)
        await asyncio.sleep(0)
        end_second()
        go_on.set()
        subscriptions.end()
        await asyncio.wait_for(announcing, 5)
        assert told == []

    asyncio.run(main())
