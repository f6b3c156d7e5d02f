"""What holds for every registered function."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from itertools import product

import pytest

from layby.expr.function import Function, all_functions, is_variadic, overloads, variadic
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.types.column import column_from_values
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    PhysicalValue,
    SqlType,
)
from tests.expr.helpers import cast_function, evaluated

SAMPLES: dict[SqlType, Sequence[PhysicalValue]] = {
    BOOLEAN: (True, False, None),
    SMALLINT: (7, 0, None, -(2**15)),
    INTEGER: (7, 0, None, -(2**31)),
    BIGINT: (7, 0, None, -(2**63)),
    REAL: (1.5, 0.0, None, float("nan")),
    DOUBLE_PRECISION: (1.5, 0.0, None, float("inf")),
    TEXT: ("year", "", None, "%a\\"),
    UNKNOWN: ("year", "", None),
    DATE: (8000, 0, None, 2**31 - 1),
    TIMESTAMP: (700_000_000_000_000, 0, None, 2**63 - 1),
    TIMESTAMPTZ: (700_000_000_000_000, 0, None, -(2**63)),
}

STRICT = [f for f in all_functions() if not f.volatile and f.args]


def named(function: Function) -> str:
    return f"{function.name}({','.join(map(repr, function.args))})->{function.result}"


def references(function: Function) -> tuple[Expr, ...]:
    return tuple(ColumnRef(at, type_) for at, type_ in enumerate(function.args))


def test_every_function_is_the_same_object_after_pickling() -> None:
    made = [variadic("concat", (TEXT, INTEGER)), variadic("greatest", (INTEGER, INTEGER))]
    for function in [*all_functions(), *made]:
        assert function is not None
        assert pickle.loads(pickle.dumps(function)) is function


def test_functions_unpickle_in_a_fresh_process() -> None:
    chosen = [
        overloads("+")[0],
        overloads("date_trunc")[0],
        variadic("least", (TEXT, TEXT, TEXT)),
        cast_function(INTEGER, TEXT),
    ]
    program = (
        "import pickle, sys\n"
        "for function in pickle.load(sys.stdin.buffer):\n"
        "    print(function.name, len(function.args), callable(function.kernel))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(chosen),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().split("\n")[:-1] == [
        "+ 2 True",
        "date_trunc 2 True",
        "least 3 True",
        "cast 1 True",
    ]


def test_no_signature_is_registered_twice() -> None:
    signatures = [named(f) for f in all_functions()]
    assert len(signatures) == len(set(signatures))


def test_variadic_functions_are_known_by_name() -> None:
    assert is_variadic("concat")
    assert not is_variadic("length")
    assert not overloads("no_such_function")


@pytest.mark.parametrize("function", STRICT, ids=named)
def test_constants_give_what_columns_of_the_same_values_give(function: Function) -> None:
    rows = list(product(*[SAMPLES[t] for t in function.args]))[:48]
    columns = [column_from_values(t, [row[at] for row in rows]) for at, t in enumerate(function.args)]
    arguments = references(function)
    expected = evaluated(Call(function, arguments), columns)
    for at, type_ in enumerate(function.args):
        for value in SAMPLES[type_]:
            mixed = (*arguments[:at], Literal(value, type_), *arguments[at + 1 :])
            found = evaluated(Call(function, mixed), columns, len(rows))
            chosen = [repr(e) for e, row in zip(expected, rows, strict=True) if repr(row[at]) == repr(value)]
            assert [
                repr(f) for f, row in zip(found, rows, strict=True) if repr(row[at]) == repr(value)
            ] == chosen
    assert [
        evaluated(Call(function, tuple(map(Literal, row, function.args))), (), 1)[0] for row in rows[:3]
    ] == [pytest.approx(e, nan_ok=True) if isinstance(e, float) else e for e in expected[:3]]


@pytest.mark.parametrize("function", STRICT, ids=named)
def test_a_null_argument_gives_null_and_no_error(function: Function) -> None:
    for at, type_ in enumerate(function.args):
        columns = [column_from_values(t, list(SAMPLES[t][:2])) for t in function.args]
        columns[at] = column_from_values(type_, [None, None])
        assert evaluated(Call(function, references(function)), columns) == [None, None]


@pytest.mark.parametrize("function", STRICT, ids=named)
def test_no_rows_give_no_rows(function: Function) -> None:
    columns = [column_from_values(t, []) for t in function.args]
    assert evaluated(Call(function, references(function)), columns, 0) == []
