"""What `help()` says of the native module is what its stub says, and it says something of everything."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shardwire
from shardwire import _native

STUB = ast.parse((Path(shardwire.__file__).parent / "_native.pyi").read_text(encoding="utf-8"))


def declared(node: ast.Module | ast.ClassDef, owner: Any) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef, Any]]:
    """The name, the declaration and the object of each function, class and member but the special ones."""
    # Of overloads the last one has the docstring.
    last = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    for one in last.values():
        if not one.name.startswith("_"):
            yield one.name, one, getattr(owner, one.name)


def is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(one, ast.Name) and one.id == "property" for one in decorators)


def docstrings() -> Iterator[tuple[str, str | None, Any]]:
    """Of everything but properties that the docstring of their class tells of."""
    for name, node, found in declared(STUB, _native):
        told = ast.get_docstring(node)
        yield name, told, found
        if isinstance(node, ast.ClassDef):
            for member_name, member, found_member in declared(node, found):
                docstring = ast.get_docstring(member)
                if docstring is not None or not is_property(member) or not names(told, member_name):
                    yield f"{name}.{member_name}", docstring, found_member


def names(docstring: str | None, name: str) -> bool:
    return re.search(rf"(?m)^    {name}: |`{name}`", docstring or "") is not None


def test_everything_has_a_docstring() -> None:
    assert [name for name, docstring, _ in docstrings() if not docstring] == []


def test_help_says_what_the_stub_says() -> None:
    checked = 0
    for name, docstring, found in docstrings():
        assert inspect.getdoc(found) == docstring, name
        checked += 1
    assert checked > 300
