"""Operators and the forms of the grammar that stand for them: IN, BETWEEN, LIKE, IS DISTINCT FROM, rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from postgast import pg_query_pb2 as pb

from layby.expr.scalar import (
    And,
    Call,
    Case,
    Expr,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    columns_used,
)
from layby.sql.arrays import array_items
from layby.sql.coerce import coerce, common_type, require, resolve_unknown, to_common
from layby.sql.context import BindContext, Bound, null
from layby.sql.overload import operator
from layby.sql.parse import Node
from layby.types.scalar import BOOLEAN, TEXT, SqlType

if TYPE_CHECKING:
    from layby.sql.bind import Binder

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


def bind_operator(binder: Binder, node: Node) -> Bound:
    """Bind an A_Expr."""
    symbol = node.name[-1].string.sval
    kind = node.kind
    if kind == pb.AEXPR_OP:
        return _plain(binder, node, symbol)
    if kind == pb.AEXPR_IN:
        found = _in(binder, node)
        return Bound(Not(found.expr), found.location) if symbol == "<>" else found
    if kind in (pb.AEXPR_LIKE, pb.AEXPR_ILIKE):
        args = (binder.bind(node.lexpr), binder.bind(node.rexpr))
        return operator(binder.context, symbol, args, node.location)
    if kind in _BETWEEN:
        return _between(binder, node)
    if kind in (pb.AEXPR_DISTINCT, pb.AEXPR_NOT_DISTINCT):
        return _distinct(binder, node)
    if kind == pb.AEXPR_NULLIF:
        return _nullif(binder, node)
    if kind in (pb.AEXPR_OP_ANY, pb.AEXPR_OP_ALL):
        return _any_or_all(binder, node, symbol)
    raise binder.context.unsupported("SIMILAR TO is", node.location)


def _is_row(node: Node) -> bool:
    return bool(node.WhichOneof("node") == "row_expr")


def _plain(binder: Binder, node: Node, symbol: str) -> Bound:
    if not node.HasField("lexpr"):
        arg = binder.bind(node.rexpr)
        if symbol == "+" and arg.type.category == "N":
            return arg
        return operator(binder.context, symbol, (arg,), node.location)
    if _is_row(node.lexpr) and _is_row(node.rexpr):
        left = [binder.bind(n) for n in node.lexpr.row_expr.args]
        right = [binder.bind(n) for n in node.rexpr.row_expr.args]
        return compare_rows(binder.context, symbol, left, right, node.location)
    return operator(binder.context, symbol, (binder.bind(node.lexpr), binder.bind(node.rexpr)), node.location)


def compare_rows(
    context: BindContext, symbol: str, left: Sequence[Bound], right: Sequence[Bound], location: int
) -> Bound:
    """Compare rows item by item, the first item that differs deciding.

    An order comparison carries the same comparison of the first items beside it, which follows from it, so
    that an index on the first item can be sought.
    """
    if symbol not in _COMPARISONS:
        raise context.unsupported(f"operator {symbol} on rows is", location)
    if len(left) != len(right):
        raise context.error("42601", "unequal number of entries in row expressions", location)
    if not left:
        raise context.error("0A000", "cannot compare rows of zero length", location)
    pairs = [(_known(context, a, b), _known(context, b, a)) for a, b in zip(left, right, strict=True)]
    at = min((p[0].location for p in pairs if p[0].location >= 0), default=location)

    def test(op: str, i: int) -> Expr:
        return operator(context, op, pairs[i], location).expr

    last = len(pairs) - 1
    if symbol in ("=", "<>"):
        tests = tuple(test(symbol, i) for i in range(len(pairs)))
        if len(tests) == 1:
            return Bound(tests[0], at)
        return Bound(And(tests) if symbol == "=" else Or(tests), at)
    strict = symbol[0]
    made = test(symbol, last)
    for i in range(last - 1, -1, -1):
        made = Or((test(strict, i), And((test("=", i), made))))
    if last:
        made = And((test(strict + "=", 0), made))
    return Bound(made, at)


def _known(context: BindContext, bound: Bound, other: Bound) -> Bound:
    """Give an unknown the type of what it is compared with, once, as it will be compared several times."""
    if bound.type.category == "X":
        made = coerce(context, bound, TEXT if other.type.category == "X" else other.type)
        if made is not None:
            return made
    return bound


def _in(binder: Binder, node: Node) -> Bound:
    items = node.rexpr.list.items
    if _is_row(node.lexpr):
        return _rows_in(binder, node, items)
    context = binder.context
    return in_list(context, binder.bind(node.lexpr), [binder.bind(i) for i in items], node.location)


def in_list(context: BindContext, subject: Bound, items: Sequence[Bound], location: int) -> Bound:
    """Bind `subject IN (items)`: constants of one type become one membership test, the rest comparisons."""
    tests: list[Expr] = []
    plain = [i for i in items if not columns_used(i.expr)]
    others = [i for i in items if columns_used(i.expr)]
    common = common_type([subject, *plain]) if len(plain) > 1 else None
    if isinstance(common, SqlType):
        made = [coerce(context, i, common) for i in plain]
        if all(m is not None for m in made):
            tests.append(_member(context, subject, [m for m in made if m is not None], location))
            plain = []
    tests += [operator(context, "=", (subject, item), location).expr for item in (*plain, *others)]
    if any(t.type is not BOOLEAN for t in tests):
        raise context.error("42804", "operator must return type boolean", location)
    return Bound(tests[0] if len(tests) == 1 else Or(tuple(tests)), subject.location)


def _member(context: BindContext, subject: Bound, items: Sequence[Bound], location: int) -> Expr:
    """Test membership among items of one type."""
    first = operator(context, "=", (subject, items[0]), location)
    literals = [i.expr for i in items if isinstance(i.expr, Literal)]
    if isinstance(first.expr, Call) and len(literals) == len(items):
        type_ = items[0].type
        arg = coerce(context, subject, type_)
        if arg is not None:
            return In(arg.expr, tuple(i.value for i in literals))
    return Or(tuple(operator(context, "=", (subject, item), location).expr for item in items))


def _rows_in(binder: Binder, node: Node, items: Sequence[Node]) -> Bound:
    context = binder.context
    left = [binder.bind(n) for n in node.lexpr.row_expr.args]
    rows: list[list[Bound]] = []
    for item in items:
        if not _is_row(item):
            raise context.error("42601", "unequal number of entries in row expressions", node.location)
        row = [binder.bind(n) for n in item.row_expr.args]
        rows.append(row)
    tests = tuple(compare_rows(context, "=", left, row, node.location).expr for row in rows)
    at = min((b.location for b in left if b.location >= 0), default=node.location)
    return Bound(tests[0] if len(tests) == 1 else Or(tests), at)


_BETWEEN: Final = {
    pb.AEXPR_BETWEEN: (False, False),
    pb.AEXPR_NOT_BETWEEN: (True, False),
    pb.AEXPR_BETWEEN_SYM: (False, True),
    pb.AEXPR_NOT_BETWEEN_SYM: (True, True),
}
"""By kind: negated, symmetric."""


def _between(binder: Binder, node: Node) -> Bound:
    context = binder.context
    negated, symmetric = _BETWEEN[node.kind]
    subject = binder.bind(node.lexpr)
    low, high = (binder.bind(n) for n in node.rexpr.list.items)
    if subject.type.category == "X":
        made, _ = to_common(context, [subject, low, high], "BETWEEN")
        subject, low, high = made
    low, high = _known(context, low, subject), _known(context, high, subject)

    def within(a: Bound, b: Bound) -> Expr:
        above = operator(context, ">=", (subject, a), node.location).expr
        below = operator(context, "<=", (subject, b), node.location).expr
        return And((above, below))

    test = Or((within(low, high), within(high, low))) if symmetric else within(low, high)
    return Bound(Not(test) if negated else test, subject.location)


def _distinct(binder: Binder, node: Node) -> Bound:
    context = binder.context
    left, right = binder.bind(node.lexpr), binder.bind(node.rexpr)
    equal = operator(context, "=", (left, right), node.location)
    if not isinstance(equal.expr, Call):
        raise context.error("42804", "IS DISTINCT FROM requires = operator to yield boolean", node.location)
    a, b = equal.expr.args
    same: Expr
    if isinstance(b, Literal) and b.value is None:
        same = IsNull(a)
    elif isinstance(a, Literal) and a.value is None:
        same = IsNull(b)
    else:
        nulls: tuple[tuple[Expr, Expr], ...] = (
            (IsNull(a), IsNull(b)),
            (IsNull(b), Literal(False, BOOLEAN)),
        )
        same = Case(nulls, equal.expr, BOOLEAN)
    return Bound(Not(same) if node.kind == pb.AEXPR_DISTINCT else same, equal.location)


def _nullif(binder: Binder, node: Node) -> Bound:
    """`NULLIF(a, b)` has the type that `a` is compared as."""
    context = binder.context
    left, right = binder.bind(node.lexpr), binder.bind(node.rexpr)
    equal = operator(context, "=", (left, right), node.location)
    test = require(context, equal, BOOLEAN, "NULLIF").expr
    result = resolve_unknown(context, left)
    if left.type.category == "X" and isinstance(equal.expr, Call):
        result = Bound(equal.expr.args[0], left.location)
    return Bound(Case(((test, null(result.type)),), result.expr, result.type), node.location)


def _any_or_all(binder: Binder, node: Node, symbol: str) -> Bound:
    context = binder.context
    subject = binder.bind(node.lexpr)
    items = array_items(binder, node.rexpr)
    every = node.kind == pb.AEXPR_OP_ALL
    if not items:
        return Bound(Literal(every, BOOLEAN), subject.location)
    if symbol == "=" and not every:
        return in_list(context, subject, items, node.location)
    if symbol == "<>" and every:
        found = in_list(context, subject, items, node.location)
        return Bound(Not(found.expr), found.location)
    tests = tuple(
        require(context, operator(context, symbol, (subject, i), node.location), BOOLEAN, "ANY/ALL").expr
        for i in items
    )
    if len(tests) == 1:
        return Bound(tests[0], subject.location)
    return Bound(And(tests) if every else Or(tests), subject.location)
