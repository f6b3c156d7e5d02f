"""Type names: what PostgreSQL's spellings of types mean here, and how types are called in messages."""

from __future__ import annotations

from typing import Final

from layby.errors import SqlError
from layby.sql.parse import Node
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
    SqlType,
)

BY_NAME: Final[dict[str, SqlType]] = {
    "bool": BOOLEAN,
    "boolean": BOOLEAN,
    "int2": SMALLINT,
    "smallint": SMALLINT,
    "int4": INTEGER,
    "int": INTEGER,
    "integer": INTEGER,
    "int8": BIGINT,
    "bigint": BIGINT,
    "float4": REAL,
    "real": REAL,
    "float8": DOUBLE_PRECISION,
    "double precision": DOUBLE_PRECISION,
    "text": TEXT,
    "varchar": TEXT,
    "character varying": TEXT,
    "bpchar": TEXT,
    "character": TEXT,
    "name": TEXT,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp without time zone": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "timestamp with time zone": TIMESTAMPTZ,
    "oid": BIGINT,
}

INTERNAL_NAME: Final[dict[SqlType, str]] = {
    BOOLEAN: "bool",
    SMALLINT: "int2",
    INTEGER: "int4",
    BIGINT: "int8",
    REAL: "float4",
    DOUBLE_PRECISION: "float8",
    TEXT: "text",
    DATE: "date",
    TIMESTAMP: "timestamp",
    TIMESTAMPTZ: "timestamptz",
}
"""The names of pg_type.typname."""

_UNSUPPORTED: Final = frozenset(
    {
        "numeric",
        "json",
        "jsonb",
        "uuid",
        "bytea",
        "interval",
        "time",
        "timetz",
        "inet",
        "cidr",
        "macaddr",
        "money",
        "bit",
        "varbit",
        "xml",
        "point",
        "line",
        "lseg",
        "box",
        "path",
        "polygon",
        "circle",
        "tsvector",
        "tsquery",
        "int4range",
        "int8range",
        "numrange",
        "tsrange",
        "tstzrange",
        "daterange",
        "oidvector",
        "int2vector",
        "regclass",
        "regproc",
        "regtype",
        "regrole",
        "regnamespace",
        "xid",
        "xid8",
        "cid",
        "tid",
        "pg_lsn",
        "jsonpath",
        "char",
        "serial",
        "bigserial",
        "smallserial",
        "serial2",
        "serial4",
        "serial8",
        "record",
        "anyelement",
        "void",
        "cstring",
    }
)

_ARRAYS: Final = {
    1000: "boolean", 1005: "smallint", 1007: "integer", 1016: "bigint", 1021: "real",
    1022: "double precision", 1231: "numeric", 1009: "text", 1015: "character varying", 1182: "date",
    1115: "timestamp without time zone", 1185: "timestamp with time zone", 1001: "bytea",
    2951: "uuid", 199: "json", 3807: "jsonb",
}  # fmt: skip
_OTHERS: Final = {
    1700: "numeric", 17: "bytea", 2950: "uuid", 114: "json", 3802: "jsonb", 1186: "interval",
    1083: "time without time zone", 1266: "time with time zone", 26: "oid", 869: "inet", 650: "cidr",
}  # fmt: skip
"""Types that drivers give parameters, by their oids in pg_type; of arrays those of their elements."""


def no_parameter_type(oid: int) -> SqlError:
    """Return the error of a parameter whose type is not there: 0A000 where its name is known, else 42704."""
    hint: str | None
    if oid in _ARRAYS:
        shown, hint = f"{_ARRAYS[oid]}[]", "Pass the elements as parameters of their own: IN ($1, $2)."
    elif oid in _OTHERS:
        shown, hint = _OTHERS[oid], "Pass a double precision." if oid == 1700 else None
    else:
        return SqlError("42704", f"type with OID {oid} does not exist")
    return SqlError("0A000", f"parameters of type {shown} are not supported", hint=hint)


MAX_LENGTH: Final = 10_485_760
"""The largest n of varchar(n)."""


def display_name(type_: SqlType) -> str:
    """Return what PostgreSQL's messages call a type."""
    if type_ is TIMESTAMP:
        return "timestamp without time zone"
    if type_ is TIMESTAMPTZ:
        return "timestamp with time zone"
    return type_.name


def type_by_name(name: str) -> SqlType | None:
    """Find a type by one of its names; None where there is none or layby does not have it."""
    return BY_NAME.get(name.strip().lower())


def resolve_type(node: Node, position: int | None) -> tuple[SqlType, int | None]:
    """Return the type that a TypeName node names, and the length of varchar(n) or char(n).

    Raises SqlError 42704 where there is no such type in PostgreSQL, 0A000 where layby does not have it, and
    22023 for a length that is out of range.
    """
    names = [part.string.sval for part in node.names]
    schema, name = (names[0], names[1]) if len(names) == 2 else (None, names[-1])
    full = ".".join(names) if schema not in (None, "pg_catalog") else name
    if node.pct_type or node.setof:
        raise SqlError("0A000", f"type reference {full}%TYPE is not supported", position=position)
    if node.array_bounds:
        raise SqlError("0A000", f"type {full}[] is not supported", position=position)
    type_ = BY_NAME.get(name) if schema in (None, "pg_catalog") else None
    if type_ is None:
        if name in _UNSUPPORTED and schema in (None, "pg_catalog"):
            raise SqlError("0A000", f"type {name} is not supported", position=position)
        raise SqlError("42704", f'type "{full}" does not exist', position=position)
    return type_, _length(node, name, type_, position)


def _length(node: Node, name: str, type_: SqlType, position: int | None) -> int | None:
    if not node.typmods:
        return None
    numbers = [m.a_const.ival.ival for m in node.typmods if m.WhichOneof("node") == "a_const"]
    if name in ("varchar", "bpchar") and len(numbers) == 1:
        shown = "char" if name == "bpchar" else "varchar"
        if numbers[0] < 1:
            raise SqlError("22023", f"length for type {shown} must be at least 1", position=position)
        if numbers[0] > MAX_LENGTH:
            raise SqlError("22023", f"length for type {shown} cannot exceed {MAX_LENGTH}", position=position)
        return int(numbers[0])
    if type_ in (TIMESTAMP, TIMESTAMPTZ) and len(numbers) == 1:
        if numbers[0] >= 6:
            return None
        raise SqlError("0A000", f"{name}({numbers[0]}) is not supported", position=position)
    raise SqlError(
        "42601", f'type modifier is not allowed for type "{display_name(type_)}"', position=position
    )
