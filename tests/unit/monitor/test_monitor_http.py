"""What the page's server answers and refuses, and that browsers, however many and slow, hold up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from live_nodes import real_time, until

from shardwire import ChannelConfig, ConfigError, ReliableChannel, create_reliable_channel
from shardwire.monitor import Monitor, server
from shardwire.monitor.server import CONNECTIONS_MAX, VIEWERS_MAX
from shardwire.node import MemoryNetwork

ASSETS = ("/", "/monitor.js", "/monitor.css", "/snapshot")


@asynccontextmanager
async def a_channel() -> AsyncIterator[ReliableChannel]:
    async with MemoryNetwork().create_node("one") as node:
        channel = await create_reliable_channel(
            node, "lobby", "/chat/1/lobby/proto", "one", config=ChannelConfig.logos()
        )
        yield channel
        # Nobody is there to whom it could deliver.
        await channel.close()


@asynccontextmanager
async def served(*names: str) -> AsyncIterator[tuple[httpx.AsyncClient, Monitor, ReliableChannel]]:
    async with (
        a_channel() as channel,
        Monitor(channel, allow_hosts=names) as monitor,
        httpx.AsyncClient(base_url=monitor.url, trust_env=False, timeout=30) as client,
    ):
        yield client, monitor, channel


@real_time
async def test_it_is_read_only_and_its_headers_allow_nothing_of_others() -> None:
    async with served() as (client, monitor, _):
        assert monitor.url.startswith("http://127.0.0.1:")
        for path in ASSETS:
            answer = await client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in answer.headers
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
                refused = await client.request(method, path, content=b"x" if method == "POST" else None)
                assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
                assert "content-security-policy" in refused.headers
            assert (await client.head(path)).status_code == 200
        for path in ("/nothing", "/../server.py", "/%2e%2e/server.py", "/page/index.html"):
            assert (await client.get(path)).status_code == 404


HOSTS = {
    "127.0.0.1:1": 200,
    "localhost": 200,
    "LocalHost:8086": 200,
    "[::1]:8086": 200,
    "192.168.1.5": 200,
    "watch.example": 200,
    "Watch.Example:80": 200,
    "attacker.example": 421,
    "attacker.example:8086": 421,
    "localhost.attacker.example": 421,
    "127.0.0.1.attacker.example": 421,
    "localhost:80@attacker.example": 421,
    "[::1": 421,
    "[::1]attacker.example": 421,
    "2130706433": 421,
    "0x7f000001": 421,
    "": 421,
}


@real_time
async def test_hosts_that_could_be_rebound_are_refused() -> None:
    async with served("watch.example") as (client, _, _):
        for host, status in HOSTS.items():
            for path in (*ASSETS, "/events" if status != 200 else "/"):
                assert (await client.get(path, headers={"host": host})).status_code == status, host


@real_time
async def test_a_request_that_names_no_host_is_refused() -> None:
    async with served() as (_, monitor, _):
        address = httpx.URL(monitor.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"421"
        writer.close()


@real_time
@pytest.mark.parametrize(("path", "is_late"), [("/", False), ("/", True), ("/events", True)])
async def test_a_body_that_is_none_ends_the_connection_and_raises_nothing(
    path: str, is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (client, monitor, _):
        address = httpx.URL(monitor.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        if is_late:
            await asyncio.wait_for(reader.readline(), 10)
        writer.write(b"no length\r\n")
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert (await client.get("/")).status_code == 200
    assert [record for record in caplog.records if record.exc_info] == []


@real_time
async def test_other_sites_may_link_to_the_page_and_read_nothing() -> None:
    async with served() as (client, _, _):
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            assert (await client.get("/", headers={"sec-fetch-site": site})).status_code == 200
            for path in ASSETS[1:]:
                assert (await client.get(path, headers={"sec-fetch-site": site})).status_code == status, site


@real_time
async def test_browsers_are_told_what_changes_and_are_so_many() -> None:
    async with served() as (client, monitor, channel):
        request = client.build_request("GET", "/events")
        answers = [await client.send(request, stream=True) for _ in range(VIEWERS_MAX)]
        lines = [answer.aiter_lines() for answer in answers]
        for line in lines:
            first = await anext(line)
            assert json.loads(first.removeprefix("data: "))["messages"] == []
        assert (await client.get("/events")).status_code == 503
        await channel.send(b"hello")
        told = ""
        async with asyncio.timeout(30):
            while '"cells": "' not in told:
                told = await anext(lines[0])
        # A place is free again when a browser leaves.
        await answers[1].aclose()
        await until(lambda: monitor._viewers == VIEWERS_MAX - 1)
        again = await client.send(request, stream=True)
        assert again.status_code == 200
        for answer in (*answers, again):
            await answer.aclose()


@real_time
async def test_a_browser_that_reads_nothing_holds_up_nobody() -> None:
    """It asks and never reads: the channel goes on, others are told, and what waits for it does not grow."""
    async with served() as (client, monitor, channel):
        port = int(monitor.url.rstrip("/").rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: monitor._viewers == 1)
        made = 0
        view = monitor._view
        assert view is not None
        snapshot = view.snapshot

        def large() -> dict[str, object]:
            nonlocal made
            made += 1
            return {**snapshot(), "filler": "x" * 4_000_000}

        view.snapshot = large  # type: ignore[method-assign]
        for number in range(12):
            view.version += 1
            await channel.send(b"%d" % number)
            await asyncio.sleep(0.25)
        # One for the browser, which still has not taken it; nothing more is made for it.
        assert 1 <= made <= 3
        answer = await client.get("/snapshot")
        assert len(answer.json()["messages"]) == 12
        writer.close()
        await until(lambda: monitor._viewers == 0)


@real_time
async def test_a_port_that_is_taken_or_none_is_told() -> None:
    async with a_channel() as channel, Monitor(channel) as monitor:
        port = int(monitor.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(
            OSError, match=rf"127.0.0.1:{port} cannot be listened on: Address already in use: name another port"
        ):
            async with Monitor(channel, port=port):
                pass
        with pytest.raises(OSError, match=r"no host:0 cannot be listened on: "):
            async with Monitor(channel, "no host"):
                pass
        with pytest.raises(OSError, match=r"a\.\.b:0 cannot be listened on: it is no host: name an address"):
            async with Monitor(channel, "a..b"):
                pass
        for wrong in (-1, 65_536, "80", True):
            with pytest.raises(ConfigError, match="it must be 0 to 65535"):
                Monitor(channel, port=wrong)  # type: ignore[arg-type]


@real_time
async def test_it_ends_with_browsers_that_look_and_takes_its_observers_with_it() -> None:
    async with a_channel() as channel, httpx.AsyncClient(trust_env=False) as client:
        async with asyncio.timeout(20), Monitor(channel) as monitor:
            looking = await client.send(client.build_request("GET", f"{monitor.url}events"), stream=True)
            assert channel._session.engine.timeline
        assert monitor.url == ""
        assert not channel._session.engine.timeline
        await looking.aclose()


async def frames_of(client: httpx.AsyncClient, monitor: Monitor, count: int) -> list[dict[str, Any]]:
    """What a browser is told first."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(20), client.stream("GET", f"{monitor.url}events") as looking:
        async for line in looking.aiter_lines():
            if line:
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == count:
                break
    return found


@real_time
async def test_a_page_may_be_served_again() -> None:
    async with a_channel() as channel, httpx.AsyncClient(trust_env=False) as client:
        monitor = Monitor(channel)
        for _ in range(2):
            async with monitor:
                (frame,) = await frames_of(client, monitor, 1)
                assert frame["channel"] == "lobby"


@real_time
async def test_where_nothing_happens_a_browser_is_told_what_time_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "INTERVAL_S", 0.05)
    monkeypatch.setattr(server, "SILENCE_S", 0.1)
    async with served() as (client, monitor, _):
        first, *_, last = await frames_of(client, monitor, 3)
        assert first["now_ms"] < last["now_ms"]
        assert {**first, "now_ms": 0, "seconds": []} == {**last, "now_ms": 0, "seconds": []}


def test_without_its_libraries_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None\nimport shardwire.monitor"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "shardwire.monitor needs the library uvicorn: pip install 'shardwire[monitor]'" in answer.stderr


@real_time
async def test_connections_that_ask_for_nothing_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    monkeypatch.setattr(server, "INTERVAL_S", 0.05)
    monkeypatch.setattr(server, "SILENCE_S", 0.05)
    async with served() as (client, monitor, _), client.stream("GET", "/events") as looking:
        lines = looking.aiter_lines()
        await anext(lines)
        address = httpx.URL(monitor.url)
        idle = [await asyncio.open_connection(address.host, address.port) for _ in range(CONNECTIONS_MAX // 2)]
        assert (await client.get("/snapshot")).status_code == 200
        for reader, _ in idle:
            assert await asyncio.wait_for(reader.read(), 10) == b""
        # One that asked before goes on, for longer than what was sent until now.
        async with asyncio.timeout(20):
            for _ in range(40):
                await anext(lines)
        for _, writer in idle:
            writer.close()


@real_time
async def test_connections_that_begin_another_request_and_never_end_it_are_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    async with served() as (_, monitor, _):
        address = httpx.URL(monitor.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for _ in range(2):
            writer.write(b"GET /snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
        writer.write(b"GET /snap")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


@real_time
async def test_of_too_many_connections_the_latest_are_cut_off() -> None:
    async with served() as (client, monitor, _):
        address = httpx.URL(monitor.url)
        idle = [await asyncio.open_connection(address.host, address.port) for _ in range(2 * CONNECTIONS_MAX)]
        for _ in range(5):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        for _, writer in idle:
            writer.close()

        async def is_answered() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await client.get("/snapshot")).status_code == 200
            return False

        # Once it has seen that they are gone.
        answers = [await is_answered() or await asyncio.sleep(0.05, False) for _ in range(100)]
        assert answers[-1]
