"""Every public name has a docstring that a newcomer can read alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import shardwire

# What names a document or a thing in it, and so says nothing by itself.
CITATION = re.compile(
    r"`[^`]*`|\b(Logos|Waku|segmentation|specifications?)?\s*00\d\b|\bLIP-\d+|\bMESSAGING-API\b|\b\d+/WAKU2-\w+"
    r"|\b[a-z]+[A-Z]\w*|\b[\w-]+:[\w:-]+"
)
WORDS_MIN = 4
# Documents of which only a number is known: their names stand before it (docs/guide/specifications.md).
BARE_NUMBER = re.compile(r"(?<!Logos )\b003\b|(?<!Waku )\b004\b")


def stub_docstrings() -> dict[str, str]:
    """What editors and the reference show of the native module, by name."""
    found = {}
    for node in ast.parse((Path(shardwire.__file__).parent / "_native.pyi").read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    found[f"{node.name}.{member.name}"] = ast.get_docstring(member) or ""
    return found


STUBS = stub_docstrings()


def public_modules() -> Iterator[types.ModuleType]:
    yield shardwire
    for found in pkgutil.walk_packages(shardwire.__path__, "shardwire."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            module = importlib.import_module(found.name)
            if hasattr(module, "__all__"):
                yield module


def public_objects() -> dict[str, Any]:
    """Classes and functions of every `__all__` once each, and the public members that the classes define."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module in public_modules():
        for name in module.__all__:
            value = getattr(module, name)
            if id(value) in seen or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            if isinstance(value, types.GenericAlias) or value.__module__ == "builtins":
                continue
            seen.add(id(value))
            found[f"{module.__name__}.{name}"] = value
            if inspect.isclass(value):
                for member, definition in vars(value).items():
                    if not member.startswith("_") and _is_documented_by_itself(value, member, definition):
                        found[f"{module.__name__}.{name}.{member}"] = definition
    return found


def _is_documented_by_itself(owner: type, member: str, definition: object) -> bool:
    if STUBS.get(f"{owner.__name__}.{member}"):
        return False
    # The attributes of a class stand in its docstring, those that the native module makes too.
    if isinstance(definition, types.GetSetDescriptorType | types.MemberDescriptorType):
        text = f"{owner.__doc__} {STUBS.get(owner.__name__, '')}"
        return re.search(rf"\b{member}\b", text) is None and not is_dataclass(owner)
    return isinstance(definition, property | classmethod | staticmethod) or inspect.isroutine(definition)


OBJECTS = public_objects()


def docstring(value: Any) -> str:
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if inspect.isclass(value) and is_dataclass(value) and text is not None and text.startswith(f"{value.__name__}("):
        return ""  # what `dataclass` writes where there is none
    return text or STUBS.get(getattr(value, "__name__", ""), "")


def is_enough(text: str) -> bool:
    first = text.split("\n\n")[0]
    return len(re.findall(r"[A-Za-z]{2,}", CITATION.sub(" ", first))) + first.count("`") // 2 >= WORDS_MIN


@pytest.mark.parametrize("name", OBJECTS)
def test_public_name_has_a_docstring_that_stands_alone(name: str) -> None:
    text = docstring(OBJECTS[name])
    assert text.strip(), f"{name} has no docstring"
    assert is_enough(text), f"{name}: {text.strip()!r} says too little to somebody who reads nothing else"
    assert not BARE_NUMBER.search(text), f"{name}: 003 is called Logos 003, 004 Waku 004"


@pytest.mark.parametrize(
    "name", [name for name, value in OBJECTS.items() if inspect.isclass(value) and is_dataclass(value)]
)
def test_docstring_names_every_field(name: str) -> None:
    value = OBJECTS[name]
    text = "\n".join(docstring(base) for base in value.__mro__[:-1])
    missing = [field.name for field in fields(value) if not re.search(rf"\b{field.name}\b", text)]
    assert [field for field in missing if not field.startswith("_")] == []


@pytest.mark.parametrize("text", ["003 onMessageReceived.", "Logos 003 closeChannel.", "004.", "All of them."])
def test_citation_alone_is_too_little(text: str) -> None:
    assert not is_enough(text)


def test_walk_sees_the_api() -> None:
    expected = {
        "shardwire.ReliableChannel.send",
        "shardwire.ReliableChannel.config",
        "shardwire.ChannelConfig.logos",
        "shardwire.keccak256",
        "shardwire.node.MemoryNetwork.partition",
        "shardwire.spark.reconstruct",
    }
    assert expected <= OBJECTS.keys()
    assert len(OBJECTS) > 300
