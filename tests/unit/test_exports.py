"""Everything that the API promises is importable from `shardwire`, and importing it costs nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import shardwire
from shardwire import config, errors, events, node


@pytest.mark.parametrize("name", shardwire.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    if name == "erasure":
        pytest.importorskip("shardwire.erasure", reason="the erasure room has not landed")
    assert getattr(shardwire, name) is not None


def test_every_config_event_and_error_class_is_exported() -> None:
    for module, base in ((config, object), (events, events.ChannelEvent), (errors, errors.ShardwireError)):
        for name, value in vars(module).items():
            public = (
                isinstance(value, type) and issubclass(value, base) and value.__module__.startswith(module.__name__)
            )
            if public and not name.startswith("_"):
                assert name in shardwire.__all__, name


@pytest.mark.parametrize("module", [events, errors])
def test_a_module_says_what_is_public_in_it(module: ModuleType) -> None:
    taken: dict[str, object] = {}
    exec(f"from {module.__name__} import *", taken)
    del taken["__builtins__"]
    assert list(taken) == module.__all__ == sorted(module.__all__)
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__.startswith(module.__name__) and name[0] != "_":
            assert name in taken


def test_protocols_are_exported() -> None:
    assert {"Node", "Persistence", "Encryption"} <= set(shardwire.__all__)


def test_names_and_rooms_agree() -> None:
    assert set(shardwire._ROOM_OF) | {"erasure"} == set(shardwire.__all__)
    assert dir(shardwire) == sorted(shardwire.__all__)


def test_every_name_of_the_nodes_is_there() -> None:
    assert sorted(node.__all__, key=lambda name: (not name.isupper(), name)) == node.__all__
    for name in node.__all__:
        assert getattr(node, name) is not None
    assert set(node._ROOM_OF) <= set(node.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = node.nothing


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shardwire.nothing  # type: ignore[attr-defined]


def test_importing_needs_no_optional_dependency() -> None:
    optional = [
        "cryptography",
        "httpx",
        "nats",
        "nkeys",
        "paho",
        "pyspark",
        "pyarrow",
        "pandas",
        "rich",
        "typer",
        "matplotlib",
        "starlette",
        "uvicorn",
    ]
    code = (
        "import sys, shardwire, shardwire.node, shardwire.node.transport\n"
        "for name in shardwire.node.__all__: getattr(shardwire.node, name)\n"
        "for name in shardwire.__all__:\n"
        "    if name != 'erasure': getattr(shardwire, name)\n"
        f"print([name for name in {optional!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
