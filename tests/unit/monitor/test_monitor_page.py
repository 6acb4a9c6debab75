"""The page in a real browser: what it shows of a channel, and that names of peers stay text."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from browser import Page
from live_nodes import real_time

from shardwire import ChannelConfig, RateLimitConfig, ReliableChannel, SegmentationConfig, create_reliable_channel
from shardwire.monitor import Monitor
from shardwire.node import MemoryNetwork, NetworkConditions

TOPIC = "/chat/1/lobby/proto"
HOSTILE = "<img src=x onerror=document.title='broken'>\u202e"
# Set to a directory, the screenshot of the guide is written there.
PICTURES = "SHARDWIRE_PICTURES"
SHOWN = [
    "document.querySelectorAll('#messages tr').length === 9",
    "document.querySelectorAll('#messages .cell.acknowledged').length > 10",
    "document.querySelectorAll('#messages .cell.received').length > 30",
    "document.querySelectorAll('#messages .cell.recovered').length > 0",
    "document.querySelectorAll('#graph circle').length === 9",
    "document.querySelectorAll('#graph line[data-follows]').length >= 8",
    "[...document.querySelectorAll('#messages .state')].every(x => !/incomplete|on its/.test(x.textContent))",
]


@asynccontextmanager
async def members(*names: str, conditions: NetworkConditions | None = None) -> AsyncIterator[list[ReliableChannel]]:
    """Channels of some participants, in real time."""
    network = MemoryNetwork(conditions or NetworkConditions(), seed=11)
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(segment_size_bytes=4096, enable_reed_solomon=True, parity_rate=0.25),
        rate_limit=RateLimitConfig(enabled=True, epoch_size_ms=86_400_000, messages_per_epoch=400),
    ).without_store(members=len(names))
    config = replace(config, sds=replace(config.sds, acknowledgement_timeout_ms=2_000))
    async with AsyncExitStack() as stack:
        channels = []
        for name in names:
            node = await stack.enter_async_context(network.create_node(name))
            channel = await create_reliable_channel(node, "lobby", TOPIC, name, config=config)
            stack.push_async_callback(channel.close)
            channel.on_message_received(lambda event: None)
            channels.append(channel)
        yield channels


@real_time
async def test_the_page_shows_a_channel_as_it_goes(tmp_path: Path) -> None:
    lossy = NetworkConditions(loss=0.15)
    async with (
        members("alice", "bob", "carol", conditions=lossy) as (alice, bob, carol),
        Page(tmp_path / "profile") as page,
    ):
        async with Monitor(alice) as monitor:
            await page.open(monitor.url)
            await page.until("document.querySelector('#link').textContent === 'started'")
            payloads = random.Random(3)
            for turn in range(3):
                for number, sender in enumerate((bob, alice, carol)):
                    request = await sender.send(payloads.randbytes(20_000 + 30_000 * ((turn + number) % 3)))
                    await sender.delivered(request, 60_000)
            for condition in SHOWN:
                await page.until(condition)
            names = await page.value("[...document.querySelectorAll('#participants .name')].map(x => x.textContent)")
            assert set(names) == {"alice (this one)", "bob", "carol"}
            assert "of 400 used" in await page.value("document.querySelector('#quota-text').textContent")
            assert await page.value("document.querySelector('#used').value") >= 3
            assert "B/s sent" in await page.value("document.querySelector('#rate').textContent")
            assert await page.value("document.querySelector('#throughput path.sent').getAttribute('d').length") > 500
            assert page.complaints == []
            picture = await page.picture()
            assert picture.startswith(b"\x89PNG")
            if directory := os.environ.get(PICTURES):
                (Path(directory) / "monitor.png").write_bytes(picture)
        await page.until("document.querySelector('#link').textContent === 'not connected'")


@real_time
async def test_names_of_peers_stay_text(tmp_path: Path) -> None:
    async with (
        members("watcher", HOSTILE) as (watcher, hostile),
        Monitor(watcher) as monitor,
        Page(tmp_path / "profile") as page,
    ):
        await page.open(monitor.url)
        await hostile.delivered(await hostile.send(b"hello"), 60_000)
        await page.until("document.querySelectorAll('#participants .name').length >= 1")
        await page.until("document.querySelectorAll('#messages tr').length === 1")
        await asyncio.sleep(0.2)
        assert await page.value("document.querySelectorAll('img').length") == 0
        assert await page.value("document.title") == "lobby - shardwire monitor"
        sender = await page.value("document.querySelector('#messages .name').textContent")
        assert sender == HOSTILE.replace("\u202e", "\\u202e")
        assert page.complaints == []


@real_time
async def test_the_policy_of_the_page_runs_nothing_that_is_not_of_the_server(tmp_path: Path) -> None:
    async with (
        members("watcher", "other") as (watcher, _),
        Monitor(watcher) as monitor,
        Page(tmp_path / "profile") as page,
    ):
        await page.open(monitor.url)
        await page.until("document.querySelector('#link').textContent === 'started'")
        await page.value(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = `broken`\">')"
        )
        await page.value(
            "document.body.append(Object.assign(document.createElement('script'), "
            "{textContent: 'document.title = `broken`'}))"
        )
        deadline = asyncio.get_running_loop().time() + 20
        while len(page.complaints) < 2:
            assert asyncio.get_running_loop().time() < deadline, page.complaints
            await asyncio.sleep(0.05)
        assert all("Content Security Policy" in told for told in page.complaints)
        assert await page.value("document.title") == "lobby - shardwire monitor"
