"""A peer in a Node process that speaks lines of JSON: one command in, one answer out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from interop.install_peers import install, node_command

HERE = Path(__file__).parent


class NodeProcess:
    """Runs a script of this directory; the peers are installed first."""

    def __init__(self, script: str) -> None:
        install()
        self._process = subprocess.Popen(
            [*node_command(), str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
        )

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Waits for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the peer ended at {op}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
