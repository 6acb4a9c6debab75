"""What a request to a Waku node costs by each HTTP client, beside the one that `WakuRestNode` uses.

    pip install httpx2 niquests httptools h11      (those that are not installed are left out)
    PYTHONPATH=.:python python -m benches.python.http_clients [--rounds 5]

A plain server in another process answers with a segment's JSON (137 KB), or with `null`. The clients take turns within
a round; a figure is the median over rounds, in milliseconds of wall time a request.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

BODY = b'[{"payload":"' + b"A" * 136_536 + b'"}]'
REQUESTS = 60
JSON = {"Content-Type": "application/json"}

# GET of a path, POST of a body.
Client = tuple[Callable[[str], Awaitable[bytes]], Callable[[bytes], Awaitable[bytes]]]


async def serve(port: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        await reader.readexactly(int(line.split(b":")[1]))
                body = BODY if head.split(b" ", 2)[1] == b"/large" else b"null"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    await server.serve_forever()


async def of_httpx(url: str, library: Any) -> Client:
    client = library.AsyncClient(base_url=url)

    async def get(path: str) -> bytes:
        return (await client.get(path)).content  # type: ignore[no-any-return]

    async def post(body: bytes) -> bytes:
        return (await client.post("/post", content=body, headers=JSON)).content  # type: ignore[no-any-return]

    return get, post


async def of_niquests(url: str, library: Any) -> Client:
    session = library.AsyncSession()

    async def get(path: str) -> bytes:
        return (await session.get(url + path)).content or b""

    async def post(body: bytes) -> bytes:
        return (await session.post(url + "/post", data=body, headers=JSON)).content or b""

    return get, post


async def of_aiohttp(url: str, library: Any) -> Client:
    session = library.ClientSession(url)

    async def get(path: str) -> bytes:
        async with session.get(path) as answer:
            return await answer.read()  # type: ignore[no-any-return]

    async def post(body: bytes) -> bytes:
        async with session.post("/post", data=body, headers=JSON) as answer:
            return await answer.read()  # type: ignore[no-any-return]

    return get, post


async def of_h11(url: str, library: Any) -> Client:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    connection = library.Connection(library.CLIENT)

    async def request(method: str, path: str, body: bytes = b"") -> bytes:
        headers = [("Host", "x"), ("Content-Length", str(len(body)))]
        data = connection.send(library.Request(method=method, target=path, headers=headers))
        if body:
            data += connection.send(library.Data(data=body))
        writer.write(data + connection.send(library.EndOfMessage()))
        pieces = []
        while True:
            event = connection.next_event()
            if event is library.NEED_DATA:
                connection.receive_data(await reader.read(1 << 18))
            elif type(event) is library.Data:
                pieces.append(bytes(event.data))
            elif type(event) is library.EndOfMessage:
                connection.start_next_cycle()
                return b"".join(pieces)

    return (lambda path: request("GET", path)), (lambda body: request("POST", "/post", body))


async def of_httptools(url: str, library: Any) -> Client:
    host, _, port = url.removeprefix("http://").partition(":")

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_body(self, body: bytes) -> None:
            self.pieces.append(body)

        def on_message_complete(self) -> None:
            self.answer.set_result(b"".join(self.pieces))

        async def request(self, method: bytes, path: bytes, body: bytes = b"") -> bytes:
            self.parser = library.HttpResponseParser(self)
            self.pieces: list[bytes] = []
            self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            head = b"%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (method, path, len(body))
            self.transport.write(head + body)
            return await self.answer

    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))
    return (
        lambda path: connection.request(b"GET", path.encode()),
        lambda body: connection.request(b"POST", b"/post", body),
    )


CLIENTS: dict[str, Callable[[str, Any], Awaitable[Client]]] = {
    "httpx": of_httpx,
    "httpx2": of_httpx,
    "niquests": of_niquests,
    "aiohttp": of_aiohttp,
    "h11": of_h11,
    "httptools": of_httptools,
}


async def measure(url: str, rounds: int) -> dict[str, dict[str, float]]:
    clients: dict[str, Client] = {}
    for name, make in CLIENTS.items():
        try:
            clients[name] = await make(url, importlib.import_module(name))
        except ImportError:
            print(f"{name} is not installed and left out")
    times: dict[str, dict[str, list[float]]] = {name: {} for name in clients}
    for _ in range(rounds):
        for name, (get, post) in clients.items():
            assert await get("/large") == BODY
            cases: dict[str, Callable[[], Awaitable[bytes]]] = {
                "GET 137 KB": lambda get=get: get("/large"),  # type: ignore[misc]
                "GET null": lambda get=get: get("/small"),  # type: ignore[misc]
                "POST 137 KB": lambda post=post: post(BODY),  # type: ignore[misc]
            }
            for case, run in cases.items():
                begun = time.perf_counter()
                for _ in range(REQUESTS):
                    await run()
                times[name].setdefault(case, []).append((time.perf_counter() - begun) / REQUESTS * 1e3)
    return {name: {case: statistics.median(values) for case, values in found.items()} for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    port = 18_999
    server = subprocess.Popen([sys.executable, "-m", "benches.python.http_clients", "--serve", str(port)])
    try:
        time.sleep(1)
        found = asyncio.run(measure(f"http://127.0.0.1:{port}", options.rounds))
    finally:
        server.kill()
    print(f"milliseconds a request, load of the machine {os.getloadavg()[0]:.1f}")
    for name, cases in found.items():
        print(f"{name:10}", "  ".join(f"{case} {value:.2f}" for case, value in cases.items()))


if __name__ == "__main__":
    main()
