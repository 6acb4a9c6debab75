"""`shardwire monitor` in a terminal, over a real network, looked at with a real browser."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Page
from cli_terminals import Terminal, command, environment
from live_nodes import real_time
from live_servers import NatsServer, free_port

CHANNEL = ("--channel", "notes", "--topic", "/app/1/notes/proto")


def member(url: str, sender: str) -> tuple[str, ...]:
    return ("--node", url, *CHANNEL, "--sender", sender)


@real_time
async def test_a_browser_sees_what_others_send(tmp_path: Path) -> None:
    port = free_port()
    with (
        NatsServer(tmp_path / "nats") as server,
        Terminal(tmp_path, "monitor", *member(server.url, "watcher"), "--port", str(port)) as monitor,
    ):
        line = f"http://127.0.0.1:{port}/ shows notes; Ctrl-C ends it"
        monitor.until(lambda: line in monitor.out, "it says where")
        async with Page(tmp_path / "profile") as page:
            await page.open(f"http://127.0.0.1:{port}/")
            sent = command(tmp_path, "send", "-", *member(server.url, "alice"), given=b"a secret word")
            assert (sent.returncode, b"delivered to watcher" in sent.stdout) == (0, True), sent.stderr
            await page.until("document.querySelector('#messages .state')?.textContent === 'whole'")
            shown = await page.value("document.body.innerText")
            assert "alice" in shown
            assert "watched by watcher" in shown
            assert "secret" not in shown
        assert not any("secret" in line for line in (*monitor.out, *monitor.err))
        monitor.signal(signal.SIGINT)
        assert monitor.wait() == 0, str(monitor)


def test_scripts_are_told_the_address_and_others_what_an_open_port_means(tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    with Terminal(tmp_path, "monitor", *member(url, "one"), "--port", "0", "--json") as monitor:
        [told] = monitor.until_event("monitoring")
        assert told["url"].startswith("http://127.0.0.1:")
        taken = told["url"].rstrip("/").rpartition(":")[2]
        refused = command(tmp_path, "monitor", *member(f"udp://127.0.0.1:{free_port()}", "two"), "--port", taken)
        assert refused.returncode == 1
        assert f"127.0.0.1:{taken} cannot be listened on: Address already in use" in refused.stderr.decode()
        monitor.signal(signal.SIGTERM)
        assert monitor.wait() == 0, str(monitor)
    with Terminal(tmp_path, "monitor", *member(url, "one"), "--port", "0", "--host", "0.0.0.0") as monitor:
        said = "whoever reaches this port reads who takes part and how much is sent"
        monitor.until(lambda: said in monitor.err, "it warns")
        monitor.signal(signal.SIGINT)
        assert monitor.wait() == 0, str(monitor)


@pytest.mark.parametrize("options", [(), ("--verbose",)])
def test_requests_that_are_none_are_told_to_whoever_asks_for_more(tmp_path: Path, options: tuple[str, ...]) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    with Terminal(tmp_path, "monitor", *member(url, "one"), "--port", "0", *options) as monitor:
        monitor.until(lambda: bool(monitor.out), "it says where")
        port = int(monitor.out[0].partition("/ shows")[0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"no request\r\n\r\n")
            assert stranger.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
        monitor.signal(signal.SIGINT)
        assert monitor.wait() == 0, str(monitor)
    assert [line for line in monitor.err if "Invalid HTTP" in line] == (
        ["shardwire: Invalid HTTP request received."] if options else []
    )


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_without_its_libraries_one_line_says_what_to_install(tmp_path: Path, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None\nfrom shardwire.cli import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", program, "monitor", *member("udp://127.0.0.1:0", "one")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 1
    [line] = answer.stderr.splitlines()
    assert line.startswith(
        f"shardwire: shardwire.monitor needs the library {library}: pip install 'shardwire[monitor]'"
    )
