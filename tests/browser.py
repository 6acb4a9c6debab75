"""Chromium without a window, driven by its DevTools protocol: what a page really shows."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from live_servers import find_program
from websockets.asyncio.client import ClientConnection, connect

PATIENCE_S = 60.0


class Page:
    """One page of a browser that runs; an async context manager.

    Attributes:
        complaints: What the browser's console told as errors, violations of the content security policy among them.

    Args:
        directory: For the browser's profile.
        size: Of the window, in pixels.
    """

    def __init__(self, directory: Path, size: tuple[int, int] = (1100, 1500)) -> None:
        self.complaints: list[str] = []
        self._directory = directory
        self._size = size
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        program = find_program("chromium", "apt-get install chromium (Debian) or your system's package")
        width, height = self._size
        self._process = await asyncio.create_subprocess_exec(
            *[
                str(program),
                "--headless=new",
                # Tests may run as root, and load pages of ours alone.
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-port=0",
                f"--user-data-dir={self._directory}",
                f"--window-size={width},{height}",
                "about:blank",
            ],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            self._socket = await self._attach()
        except BaseException:
            await self._end()
            raise
        self._reading = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()
        await self._socket.close()
        await self._end()

    async def _end(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def _attach(self) -> ClientConnection:
        port_file = self._directory / "DevToolsActivePort"
        deadline_s = time.monotonic() + PATIENCE_S
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert self._process.returncode is None, "chromium ended at once"
            assert time.monotonic() < deadline_s, "chromium does not listen"
            await asyncio.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                targets = (await client.get(f"http://127.0.0.1:{port}/json/list")).json()
                if pages := [target for target in targets if target["type"] == "page"]:
                    return await connect(pages[0]["webSocketDebuggerUrl"], max_size=None, proxy=None)
                await asyncio.sleep(0.05)

    async def _read(self) -> None:
        async for text in self._socket:
            told = json.loads(text)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.complaints.append(told["params"]["entry"]["text"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        told = await asyncio.wait_for(answer, PATIENCE_S)
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, url: str) -> None:
        """Goes to a page, and waits until it is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        """What an expression gives on the page."""
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, script: str) -> None:
        """Waits until an expression is true on the page.

        Raises:
            AssertionError: It is not, after long.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while not await self.value(script):
            shown = await self.value("document.body?.innerText")
            assert time.monotonic() < deadline_s, f"not within {PATIENCE_S} s: {script}\n{shown}\n{self.complaints}"
            await asyncio.sleep(0.1)

    async def picture(self) -> bytes:
        """The page as a PNG, the whole of it."""
        told = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(told["data"])
