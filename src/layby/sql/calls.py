"""Function calls: the registered functions, and those that the session or the grammar answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from postgast import pg_query_pb2 as pb

import layby
import layby.expr.functions  # registers the functions and operators
from layby.expr.function import CastContext, overloads, variadic
from layby.expr.scalar import Literal, SessionValue
from layby.sql import regtype
from layby.sql.coerce import coerce, resolve_unknown, to_common
from layby.sql.context import BindContext, Bound
from layby.sql.overload import Ambiguous, ambiguous_function, call, choose, no_function
from layby.sql.parse import Node
from layby.sql.typenames import BY_NAME, display_name
from layby.types.scalar import BIGINT, DATE, INTEGER, TEXT, TIMESTAMP, TIMESTAMPTZ, SqlType

if TYPE_CHECKING:
    from layby.sql.bind import Binder

SERVER_VERSION: Final = f"PostgreSQL 15.0 (layby {layby.__version__})"

_SESSION_FUNCTIONS: Final[dict[str, tuple[str, SqlType]]] = {
    "now": ("now", TIMESTAMPTZ),
    "transaction_timestamp": ("now", TIMESTAMPTZ),
    "statement_timestamp": ("statement_timestamp", TIMESTAMPTZ),
    "current_database": ("current_database", TEXT),
    "current_schema": ("current_schema", TEXT),
    "pg_backend_pid": ("pg_backend_pid", INTEGER),
}
"""Functions without arguments that the session answers: the session value's name and type."""

_FIXED_FUNCTIONS: Final = {
    "version": SERVER_VERSION,
    # There are no advisory locks to give back; drivers ask for it when they reset a session.
    "pg_advisory_unlock_all": "",
}
"""Functions without arguments whose value never changes."""

_VALUE_FUNCTIONS: Final[dict[int, tuple[str, SqlType]]] = {
    pb.SVFOP_CURRENT_DATE: ("current_date", DATE),
    pb.SVFOP_CURRENT_TIMESTAMP: ("now", TIMESTAMPTZ),
    pb.SVFOP_CURRENT_TIMESTAMP_N: ("now", TIMESTAMPTZ),
    pb.SVFOP_LOCALTIMESTAMP: ("now", TIMESTAMP),
    pb.SVFOP_LOCALTIMESTAMP_N: ("now", TIMESTAMP),
    pb.SVFOP_CURRENT_ROLE: ("current_user", TEXT),
    pb.SVFOP_CURRENT_USER: ("current_user", TEXT),
    pb.SVFOP_USER: ("current_user", TEXT),
    pb.SVFOP_SESSION_USER: ("session_user", TEXT),
    pb.SVFOP_CURRENT_CATALOG: ("current_database", TEXT),
    pb.SVFOP_CURRENT_SCHEMA: ("current_schema", TEXT),
}

SESSION_VALUES: Final = tuple(
    sorted({name for name, _ in (*_SESSION_FUNCTIONS.values(), *_VALUE_FUNCTIONS.values())})
)
"""The names that a session supplies values for, beside `setting:<name>` of current_setting."""

_AGGREGATES: Final = frozenset(
    {
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "every",
        "bool_and",
        "bool_or",
        "bit_and",
        "bit_or",
        "string_agg",
        "array_agg",
        "json_agg",
        "jsonb_agg",
        "json_object_agg",
        "jsonb_object_agg",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "variance",
        "var_pop",
        "var_samp",
        "corr",
        "covar_pop",
        "covar_samp",
        "regr_slope",
        "regr_intercept",
        "mode",
        "percentile_cont",
        "percentile_disc",
        "any_value",
    }
)
_WINDOWS: Final = frozenset(
    {
        "row_number",
        "rank",
        "dense_rank",
        "percent_rank",
        "cume_dist",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
    }
)
_SIGNALS: Final = {"pg_cancel_backend": "cancel", "pg_terminate_backend": "terminate"}
"""Functions that act on another session, for each row of the answer and once it is there."""

_VARIADIC: Final = frozenset({"concat", "concat_ws"})


def bind_call(binder: Binder, node: Node) -> Bound:
    """Bind a FuncCall; raises 42883 and 42725 as PostgreSQL does, 0A000 for what is not a scalar function."""
    context = binder.context
    path = [part.string.sval for part in node.funcname]
    name, shown, location = path[-1], ".".join(path), node.location
    _refuse_unsupported(context, node, name)
    if len(path) > 1 and path[0] != "pg_catalog":
        args = [binder.bind(a) for a in node.args]
        raise no_function(context, shown, args, location)
    if name in _SIGNALS and len(node.args) == 1:
        raise context.unsupported(f"{name} in this place, other than as a result column, is", location)
    args = [binder.bind(a) for a in node.args]
    special = _special(context, name, args, location)
    if special is not None:
        return special
    if name in _VARIADIC and args:
        return _variadic(context, name, args, location)
    try:
        function = choose(overloads(name), tuple(a.type for a in args)) if _callable(name) else None
    except Ambiguous:
        raise ambiguous_function(context, shown, args, location) from None
    if function is not None:
        return call(context, function, args, location)
    if len(args) == 1 and name in BY_NAME:
        made = coerce(context, args[0], BY_NAME[name], CastContext.EXPLICIT)
        if made is not None:
            return Bound(made.expr, location)
    raise no_function(context, shown, args, location)


def bind_signal(binder: Binder, node: Node) -> tuple[Bound, str] | None:
    """Bind a call that acts on another session: the process id, and what to do.

    None for any other expression. Raises 42883 where the argument is no integer.
    """
    if node.WhichOneof("node") != "func_call":
        return None
    path = [part.string.sval for part in node.func_call.funcname]
    name, args = path[-1], node.func_call.args
    if name not in _SIGNALS or len(args) != 1 or path[:-1] not in ([], ["pg_catalog"]):
        return None
    _refuse_unsupported(binder.context, node.func_call, name)
    bound = binder.bind(args[0])
    made = coerce(binder.context, bound, INTEGER)
    if made is None:
        raise no_function(binder.context, ".".join(path), [bound], node.func_call.location)
    return made, _SIGNALS[name]


def _callable(name: str) -> bool:
    """Operators and casts are registered beside the functions, and are not called by their names."""
    return (name[:1].isalpha() or name[:1] == "_") and name != "cast"


def _refuse_unsupported(context: BindContext, node: Node, name: str) -> None:
    location = node.location
    if node.HasField("over") or name in _WINDOWS:
        raise context.unsupported("window functions are", location)
    if name in _AGGREGATES or node.agg_star or node.agg_distinct or node.agg_order or node.agg_within_group:
        raise context.unsupported("aggregate functions are", location)
    if node.HasField("agg_filter"):
        raise context.unsupported("aggregate functions are", location)
    if name == "generate_series":
        raise context.unsupported("set-returning functions in expressions are", location)
    if node.func_variadic or any(a.WhichOneof("node") == "named_arg_expr" for a in node.args):
        raise context.unsupported("VARIADIC and named arguments are", location)


def _special(context: BindContext, name: str, args: list[Bound], location: int) -> Bound | None:
    """Bind what the session or the server as such answers; None where `name` is an ordinary function."""
    if not args:
        if name in _SESSION_FUNCTIONS:
            value, type_ = _SESSION_FUNCTIONS[name]
            return Bound(SessionValue(value, type_), location)
        if name in _FIXED_FUNCTIONS:
            return Bound(Literal(_FIXED_FUNCTIONS[name], TEXT), location)
        return None
    maker = _NAMED.get((name, len(args)))
    return None if maker is None else maker(context, args, location)


def _current_setting(context: BindContext, args: list[Bound], location: int) -> Bound:
    expr = args[0].expr
    if not isinstance(expr, Literal) or not isinstance(expr.value, str):
        raise context.unsupported("current_setting of a name that is not constant is", location)
    return Bound(SessionValue(f"setting:{expr.value.lower()}", TEXT), location)


def _to_regtype(context: BindContext, args: list[Bound], location: int) -> Bound:
    return Bound(regtype.to_regtype(context, args[0]).expr, location)


def _format_type(context: BindContext, args: list[Bound], location: int) -> Bound:
    number = coerce(context, args[0], BIGINT)
    if number is None:
        raise no_function(context, "format_type", args, location)
    return Bound(regtype.format_type(context, number).expr, location)


def _pg_typeof(_context: BindContext, args: list[Bound], location: int) -> Bound:
    return Bound(Literal(display_name(args[0].type), TEXT), location)


_NAMED: Final[dict[tuple[str, int], Callable[[BindContext, list[Bound], int], Bound]]] = {
    ("current_setting", 1): _current_setting,
    ("to_regtype", 1): _to_regtype,
    ("format_type", 2): _format_type,
    ("pg_typeof", 1): _pg_typeof,
}
"""Functions by name and number of arguments."""


def _variadic(context: BindContext, name: str, args: list[Bound], location: int) -> Bound:
    args = [resolve_unknown(context, a) for a in args]
    if name == "concat_ws" and args[0].type is not TEXT:
        raise no_function(context, name, args, location)
    return _call_variadic(context, name, args, location)


def _call_variadic(context: BindContext, name: str, args: list[Bound], location: int) -> Bound:
    function = variadic(name, tuple(a.type for a in args))
    if function is None:
        raise no_function(context, name, args, location)
    return call(context, function, args, location)


def bind_min_max(binder: Binder, node: Node) -> Bound:
    """Bind GREATEST or LEAST: the arguments are brought to one type."""
    greatest = node.op == pb.IS_GREATEST
    what = "GREATEST" if greatest else "LEAST"
    made, _ = to_common(binder.context, [binder.bind(a) for a in node.args], what)
    return _call_variadic(binder.context, what.lower(), made, node.location)


def bind_value_function(context: BindContext, node: Node) -> Bound:
    """Bind current_date, current_user and their like."""
    found = _VALUE_FUNCTIONS.get(node.op)
    if found is None:
        raise context.unsupported("type time is", node.location)
    if node.op in (pb.SVFOP_CURRENT_TIMESTAMP_N, pb.SVFOP_LOCALTIMESTAMP_N) and node.typmod < 6:
        raise context.unsupported(f"current timestamps of precision {node.typmod} are", node.location)
    name, type_ = found
    if type_ is TIMESTAMP:
        now = Bound(SessionValue(name, TIMESTAMPTZ), node.location)
        made = coerce(context, now, TIMESTAMP, CastContext.EXPLICIT)
        if made is not None:
            return made
    return Bound(SessionValue(name, type_), node.location)
