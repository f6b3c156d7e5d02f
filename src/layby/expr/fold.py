"""Constant folding: what depends on no row is computed once, when a statement is planned or instantiated."""

from __future__ import annotations

from layby.expr.evaluate import evaluate
from layby.expr.function import EXPANSIVE
from layby.expr.scalar import (
    And,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Expr,
    Literal,
    Or,
    Param,
    SessionValue,
    children,
    transform,
)


def fold(expr: Expr) -> Expr:
    """Return an equal expression with its constant parts computed.

    A part that raises stays as it is: its error counts only if a row reaches it. Calls of volatile functions,
    and of those whose result may be of any size, stay too. Arguments that cannot matter (those after the one
    that decides an AND, say) are left out.
    """
    return transform(expr, _fold_node)


def _fold_node(expr: Expr) -> Expr:
    simpler = _simplified(expr)
    if type(simpler) is not type(expr):
        return simpler  # one of its parts, which has been folded
    match simpler:
        case Literal() | ColumnRef() | Param() | SessionValue():
            return simpler
        case Call(function=function) if function.volatile or function.name in EXPANSIVE:
            return simpler
        case _ if not all(isinstance(child, Literal) for child in children(simpler)):
            return simpler
    vector = evaluate(simpler, (), 1)
    if vector.errors is not None and vector.errors.codes.any():
        return simpler
    return Literal(vector.column.value(0), simpler.type)


def _simplified(expr: Expr) -> Expr:
    match expr:
        case And(args=args):
            return _fold_logic(expr, args, decisive=False)
        case Or(args=args):
            return _fold_logic(expr, args, decisive=True)
        case Case():
            return _fold_case(expr)
        case Coalesce():
            return _fold_coalesce(expr)
        case _:
            return expr


def _fold_logic(expr: And | Or, args: tuple[Expr, ...], *, decisive: bool) -> Expr:
    kept: list[Expr] = []
    for arg in args:
        if isinstance(arg, Literal) and arg.value is not None:
            if arg.value is not decisive:
                continue
            kept.append(arg)
            break
        kept.append(arg)
    if not kept:
        return Literal(not decisive, expr.type)
    if len(kept) == 1:
        return kept[0]
    made = tuple(kept)
    if made == args:
        return expr
    return And(made) if isinstance(expr, And) else Or(made)


def _fold_case(expr: Case) -> Expr:
    branches: list[tuple[Expr, Expr]] = []
    otherwise = expr.otherwise
    for condition, result in expr.branches:
        if isinstance(condition, Literal):
            if not condition.value:
                continue
            otherwise = result
            break
        branches.append((condition, result))
    if not branches:
        return otherwise
    return Case(tuple(branches), otherwise, expr.type)


def _fold_coalesce(expr: Coalesce) -> Expr:
    kept: list[Expr] = []
    for arg in expr.args:
        if isinstance(arg, Literal):
            if arg.value is None:
                continue
            kept.append(arg)
            break
        kept.append(arg)
    if not kept:
        return Literal(None, expr.type)
    return kept[0] if len(kept) == 1 else Coalesce(tuple(kept), expr.type)
