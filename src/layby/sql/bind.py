"""Binding: parse-tree expressions to typed expression trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from postgast import pg_query_pb2 as pb

from layby.errors import SqlError
from layby.expr.function import CastContext, overloads
from layby.expr.scalar import And, Call, Case, Coalesce, Expr, IsNull, Literal, Not, Or
from layby.sql import calls, operators, regtype
from layby.sql.coerce import coerce, require, resolve_unknown, to_common
from layby.sql.context import BindContext, Bound, null
from layby.sql.overload import operator
from layby.sql.parse import Node
from layby.sql.scope import Scope
from layby.sql.typenames import display_name, resolve_type
from layby.types.scalar import BIGINT, BOOLEAN, DOUBLE_PRECISION, INTEGER, TEXT, UNKNOWN

_INT4_MAX: Final = 2**31 - 1
_INT8_MAX: Final = 2**63 - 1


class Binder:
    """Binds the expressions of one scope. `clause` refuses column references where it is not None.

    `clause(name)` makes the error for a column met where none may stand (DEFAULT, LIMIT).
    """

    def __init__(
        self,
        context: BindContext,
        scope: Scope,
        no_columns: Callable[[int], SqlError] | None = None,
    ) -> None:
        self.context = context
        self.scope = scope
        self._no_columns = no_columns

    def bind(self, node: Node) -> Bound:
        """Bind a Node message; the result may still be of type UNKNOWN."""
        kind = node.WhichOneof("node")
        method = _METHODS.get(kind)
        if method is None:
            raise self.context.unsupported(_describe(kind), getattr(getattr(node, kind), "location", -1))
        self.context.enter()
        bound = method(self, getattr(node, kind))
        self.context.leave()
        return bound

    def value(self, node: Node) -> Bound:
        """Bind an expression; what is still unknown becomes text."""
        return resolve_unknown(self.context, self.bind(node))

    def boolean(self, node: Node, what: str) -> Bound:
        """Bind an expression that must be boolean; `what` names the clause in the error."""
        return require(self.context, self.bind(node), BOOLEAN, what)

    def _constant(self, node: Node) -> Bound:
        return Bound(constant(self.context, node), node.location)

    def _column(self, node: Node) -> Bound:
        path = []
        for field in node.fields:
            if field.WhichOneof("node") != "string":
                raise self.context.unsupported("row expansion via * is", node.location)
            path.append(field.string.sval)
        if self._no_columns is not None:
            raise self._no_columns(node.location)
        return self.scope.column(self.context, path, node.location)

    def _param(self, node: Node) -> Bound:
        return self.context.param(node.number, node.location)

    def _boolean_expression(self, node: Node) -> Bound:
        what = {pb.AND_EXPR: "AND", pb.OR_EXPR: "OR", pb.NOT_EXPR: "NOT"}[node.boolop]
        args = [self.boolean(arg, what) for arg in node.args]
        at = min((a.location for a in args if a.location >= 0), default=node.location)
        exprs = tuple(a.expr for a in args)
        if node.boolop == pb.NOT_EXPR:
            return Bound(Not(exprs[0]), node.location)
        return Bound(And(exprs) if node.boolop == pb.AND_EXPR else Or(exprs), at)

    def _null_test(self, node: Node) -> Bound:
        if node.arg.WhichOneof("node") == "row_expr":
            args = [resolve_unknown(self.context, self.bind(a)) for a in node.arg.row_expr.args]
        else:
            args = [self._testable(node.arg)]
        tests: list[Expr] = [IsNull(a.expr) for a in args]
        if node.nulltesttype == pb.IS_NOT_NULL:
            tests = [Not(t) for t in tests]
        return Bound(tests[0] if len(tests) == 1 else And(tuple(tests)), args[0].location)

    def _testable(self, node: Node) -> Bound:
        """A parameter of no known type stays open here: another place may settle it, as in PostgreSQL."""
        bound = self.bind(node)
        return resolve_unknown(self.context, bound) if isinstance(bound.expr, Literal) else bound

    def _boolean_test(self, node: Node) -> Bound:
        name, falls_to, negated = _BOOLEAN_TESTS[node.booltesttype]
        arg = self.boolean(node.arg, name)
        test: Expr
        if falls_to is None:
            test = IsNull(arg.expr)
        else:
            inner = arg.expr if falls_to else Not(arg.expr)
            test = Coalesce((inner, Literal(False, BOOLEAN)), BOOLEAN)
        return Bound(Not(test) if negated else test, arg.location)

    def _case(self, node: Node) -> Bound:
        context = self.context
        subject = self.value(node.arg) if node.HasField("arg") else None
        conditions: list[Expr] = []
        results: list[Bound] = []
        for branch in node.args:
            when = branch.case_when
            if subject is None:
                conditions.append(self.boolean(when.expr, "CASE/WHEN").expr)
            else:
                test = operator(context, "=", (subject, self.bind(when.expr)), when.location)
                conditions.append(require(context, test, BOOLEAN, "CASE/WHEN").expr)
            results.append(self.bind(when.result))
        otherwise = self.bind(node.defresult) if node.HasField("defresult") else Bound(null(UNKNOWN), -1)
        made, type_ = to_common(context, [otherwise, *results], "CASE")
        branches = tuple(zip(conditions, (b.expr for b in made[1:]), strict=True))
        return Bound(Case(branches, made[0].expr, type_), node.location)

    def _coalesce(self, node: Node) -> Bound:
        made, type_ = to_common(self.context, [self.bind(a) for a in node.args], "COALESCE")
        return Bound(Coalesce(tuple(b.expr for b in made), type_), node.location)

    def _cast(self, node: Node) -> Bound:
        context = self.context
        if regtype.names_regtype(node.type_name):
            return regtype.bind_cast(context, self.bind(node.arg))
        place = context.statement.position(node.type_name.location)
        type_, length = resolve_type(node.type_name, place)
        arg = self.bind(node.arg)
        source = arg.type
        made = coerce(context, arg, type_, CastContext.EXPLICIT)
        if made is None:
            raise context.error(
                "42846",
                f"cannot cast type {display_name(source)} to {display_name(type_)}",
                node.location if node.location >= 0 else arg.location,
            )
        if length is not None:
            # An explicit cast to varchar(n) cuts; only assignment refuses what is too long.
            cut = next(f for f in overloads("left") if f.args == (TEXT, INTEGER))
            made = Bound(Call(cut, (made.expr, Literal(length, INTEGER))), made.location)
        places = [p for p in (node.location, made.location) if p >= 0]
        return Bound(made.expr, min(places, default=-1))

    def _collate(self, node: Node) -> Bound:
        name = node.collname[-1].string.sval
        if name not in ("C", "POSIX", "default", "ucs_basic"):
            raise self.context.error(
                "0A000", f'collation "{name}" is not supported', node.location, hint='Use the collation "C".'
            )
        arg = self.value(node.arg)
        if arg.type is not TEXT:
            raise self.context.error(
                "42804", f"collations are not supported by type {display_name(arg.type)}", node.location
            )
        return arg

    def _operator(self, node: Node) -> Bound:
        return operators.bind_operator(self, node)

    def _function(self, node: Node) -> Bound:
        return calls.bind_call(self, node)

    def _session_value(self, node: Node) -> Bound:
        return calls.bind_value_function(self.context, node)

    def _min_max(self, node: Node) -> Bound:
        return calls.bind_min_max(self, node)

    def _default(self, node: Node) -> Bound:
        raise self.context.error("42601", "DEFAULT is not allowed in this context", node.location)


def constant(context: BindContext, node: Node) -> Literal:
    """Make a literal of an A_Const: integer, bigint, double precision (there is no numeric), or unknown."""
    if node.isnull:
        return null(UNKNOWN)
    kind = node.WhichOneof("val")
    if kind == "ival":
        return Literal(node.ival.ival, INTEGER)
    if kind == "sval":
        return Literal(node.sval.sval, UNKNOWN)
    if kind == "boolval":
        return Literal(node.boolval.boolval, BOOLEAN)
    if kind == "fval":
        return _number(context, node.fval.fval, node.location)
    raise context.unsupported("bit strings are", node.location)


def _number(context: BindContext, text: str, location: int) -> Literal:
    try:
        whole = int(text, 0)
    except ValueError:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise context.error(
                "22003", f'"{text}" is out of range for type double precision', location
            ) from None
        return Literal(value, DOUBLE_PRECISION)
    if -_INT4_MAX - 1 <= whole <= _INT4_MAX:
        return Literal(whole, INTEGER)
    if -_INT8_MAX - 1 <= whole <= _INT8_MAX:
        return Literal(whole, BIGINT)
    return Literal(float(whole), DOUBLE_PRECISION)


_BOOLEAN_TESTS: Final[dict[int, tuple[str, bool | None, bool]]] = {
    pb.IS_TRUE: ("IS TRUE", True, False),
    pb.IS_NOT_TRUE: ("IS NOT TRUE", True, True),
    pb.IS_FALSE: ("IS FALSE", False, False),
    pb.IS_NOT_FALSE: ("IS NOT FALSE", False, True),
    pb.IS_UNKNOWN: ("IS UNKNOWN", None, False),
    pb.IS_NOT_UNKNOWN: ("IS NOT UNKNOWN", None, True),
}
"""By test: its name, the value tested for (None: unknown), and whether it is negated."""

_METHODS: Final[dict[str, Callable[[Binder, Node], Bound]]] = {
    "a_const": Binder._constant,
    "column_ref": Binder._column,
    "param_ref": Binder._param,
    "a_expr": Binder._operator,
    "bool_expr": Binder._boolean_expression,
    "null_test": Binder._null_test,
    "boolean_test": Binder._boolean_test,
    "case_expr": Binder._case,
    "coalesce_expr": Binder._coalesce,
    "type_cast": Binder._cast,
    "collate_clause": Binder._collate,
    "func_call": Binder._function,
    "sqlvalue_function": Binder._session_value,
    "min_max_expr": Binder._min_max,
    "set_to_default": Binder._default,
}

_DESCRIPTIONS: Final = {
    "sub_link": "subqueries are",
    "row_expr": "row values are",
    "a_array_expr": "arrays are",
    "a_indirection": "subscripts and field selection are",
    "grouping_func": "GROUPING is",
    "current_of_expr": "WHERE CURRENT OF is",
    "multi_assign_ref": "this form of multiple assignment is",
}


def _describe(kind: str) -> str:
    return _DESCRIPTIONS.get(kind, f"{kind.replace('_', ' ')} is")
