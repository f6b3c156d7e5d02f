"""The table from the behaviours of the specification to their tests is whole and true."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
SPEC = TESTS.parent / "docs" / "peek-spec.md"
TABLE = HERE / "README.md"

_ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([^`]+)::(\w+)`")


def rows(path: Path) -> list[tuple[str, str]]:
    """Return id and text of each row of a document's tables."""
    return [(found[1], found[2]) for found in _ROW.finditer(path.read_text())]


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Return the names of the tests that a file defines."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def file_of(name: str) -> Path:
    """Return the file that the table names: in this folder, or from `tests/` with a folder."""
    return TESTS / name if "/" in name else HERE / name


def test_every_behaviour_has_an_id_of_its_own() -> None:
    ids = [id_ for id_, _ in rows(SPEC)]
    assert len(ids) > 50
    assert sorted(ids) == sorted(set(ids))


def test_the_table_names_a_test_for_every_behaviour_and_for_no_other() -> None:
    assert [id_ for id_, _ in rows(TABLE)] == [id_ for id_, _ in rows(SPEC)]
    assert [id_ for id_, tests in rows(TABLE) if not _TEST.search(tests)] == []


def test_every_test_that_the_table_names_exists() -> None:
    named = [found.groups() for _, tests in rows(TABLE) for found in _TEST.finditer(tests)]
    assert [f"{file}::{test}" for file, test in named if test not in defined_in(file_of(file))] == []
