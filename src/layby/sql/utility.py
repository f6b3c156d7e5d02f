"""Statements about the session: SET, SHOW, transactions, DISCARD and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from postgast import pg_query_pb2 as pb

from layby.sql.context import BindContext
from layby.sql.parse import Node
from layby.sql.plan import DiscardPlan, SetPlan, ShowPlan, TransactionPlan
from layby.sql.relation import find_table

_TRANSACTIONS: Final = {
    pb.TRANS_STMT_BEGIN: "begin",
    pb.TRANS_STMT_START: "start transaction",
    pb.TRANS_STMT_COMMIT: "commit",
    pb.TRANS_STMT_ROLLBACK: "rollback",
}
_DISCARDS: Final = {
    pb.DISCARD_ALL: "DISCARD ALL",
    pb.DISCARD_PLANS: "DISCARD PLANS",
    pb.DISCARD_SEQUENCES: "DISCARD SEQUENCES",
    pb.DISCARD_TEMP: "DISCARD TEMP",
}


def plan_set(context: BindContext, node: Node, *, system: bool = False) -> SetPlan:
    """Plan SET, RESET, SET TRANSACTION, SET SESSION CHARACTERISTICS and their ALTER SYSTEM forms."""
    kind = node.kind
    if kind == pb.VAR_RESET_ALL:
        return SetPlan(None, None, False, system)
    if kind in (pb.VAR_SET_DEFAULT, pb.VAR_RESET):
        return SetPlan(node.name.lower(), None, node.is_local, system)
    if kind == pb.VAR_SET_VALUE:
        return SetPlan(node.name.lower(), _values(context, node.args), node.is_local, system)
    if kind == pb.VAR_SET_MULTI and node.name in ("TRANSACTION", "SESSION CHARACTERISTICS"):
        return _set_transaction(context, node)
    raise context.unsupported("SET FROM CURRENT is")


def _set_transaction(context: BindContext, node: Node) -> SetPlan:
    modes = _modes(node.args)
    if not modes:
        raise context.unsupported("SET TRANSACTION SNAPSHOT is")
    if len(modes) > 1:
        raise context.unsupported("several modes in one SET TRANSACTION are")
    ((name, value),) = modes.items()
    if node.name == "TRANSACTION":
        return SetPlan(name, value, True, False)
    return SetPlan(f"default_{name}", value, False, False)


def _modes(nodes: Sequence[Node]) -> dict[str, str]:
    """Return transaction modes as parameters (`transaction_isolation`, ...) and their values."""
    modes: dict[str, str] = {}
    for node in nodes:
        option = node.def_elem
        constant = option.arg.a_const
        if constant.WhichOneof("val") == "sval":
            modes[option.defname] = constant.sval.sval
        else:
            modes[option.defname] = "on" if constant.ival.ival else "off"
    return modes


def _values(context: BindContext, nodes: Sequence[Node]) -> str:
    return ", ".join(_value(context, n) for n in nodes)


def _value(context: BindContext, node: Node) -> str:
    if node.WhichOneof("node") != "a_const":
        raise context.unsupported("SET to an interval is")
    constant = node.a_const
    kind = constant.WhichOneof("val")
    value: str
    if kind == "sval":
        value = constant.sval.sval
    elif kind == "ival":
        value = str(constant.ival.ival)
    elif kind == "fval":
        value = constant.fval.fval
    else:
        value = "on" if constant.boolval.boolval else "off"
    return value


def plan_show(_context: BindContext, node: Node) -> ShowPlan:
    """Plan SHOW; the name is not known to exist."""
    name = node.name.lower()
    return ShowPlan(None if name == "all" else name)


_SAVEPOINTS: Final = {
    pb.TRANS_STMT_SAVEPOINT: "savepoint",
    pb.TRANS_STMT_RELEASE: "release",
    pb.TRANS_STMT_ROLLBACK_TO: "rollback to",
}


def plan_alter_system(context: BindContext, node: Node) -> SetPlan:
    """Plan ALTER SYSTEM SET and RESET."""
    return plan_set(context, node.setstmt, system=True)


def plan_transaction(context: BindContext, node: Node) -> TransactionPlan:
    """Plan BEGIN, COMMIT, ROLLBACK and savepoints in all their spellings; raises 0A000 for two-phase."""
    if node.kind in _SAVEPOINTS:
        return TransactionPlan(_SAVEPOINTS[node.kind], savepoint=node.savepoint_name)
    kind = _TRANSACTIONS.get(node.kind)
    if kind is None:
        raise context.unsupported("prepared transactions are")
    modes = _modes(node.options)
    read_only = modes.get("transaction_read_only")
    return TransactionPlan(
        kind,
        modes.get("transaction_isolation"),
        None if read_only is None else read_only == "on",
        chain=node.chain,
    )


def plan_discard(_context: BindContext, node: Node) -> DiscardPlan:
    """Plan DISCARD."""
    return DiscardPlan(_DISCARDS[node.target])


def plan_deallocate(_context: BindContext, node: Node) -> DiscardPlan:
    """Plan DEALLOCATE of one prepared statement or of all."""
    if node.name:
        return DiscardPlan("DEALLOCATE", node.name)
    return DiscardPlan("DEALLOCATE ALL")


def plan_close(context: BindContext, node: Node) -> DiscardPlan:
    """Plan CLOSE ALL; there are no cursors to close by name."""
    if node.portalname:
        raise context.error("34000", f'cursor "{node.portalname}" does not exist')
    return DiscardPlan("CLOSE CURSOR ALL")


def plan_vacuum(context: BindContext, node: Node) -> DiscardPlan:
    """Plan VACUUM and ANALYZE of tables that exist, or of all: there is nothing to do.

    Batches are merged as they come, and no plan rests on an estimate.
    """
    for target in node.rels:
        find_table(context, target.vacuum_relation.relation)
    return DiscardPlan("VACUUM" if node.is_vacuumcmd else "ANALYZE")


def plan_unlisten(_context: BindContext, _node: Node) -> DiscardPlan:
    """Plan UNLISTEN: nothing is ever listened to."""
    return DiscardPlan("UNLISTEN")
