"""DDL: CREATE and DROP of tables and indexes.

A change of the catalog takes effect at once, for everybody. In a transaction block it is remembered how to
take it back; what a DROP drops is kept, out of sight, until the block commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from layby.adapter.execution import Execution
from layby.adapter.locks import LockMode
from layby.adapter.outcome import CommandOutcome
from layby.adapter.transaction import Transaction
from layby.adapter.unique import duplicate
from layby.compute.arrangement import ArrangementDesc, shard
from layby.compute.maintenance import CreateArrangement, DropArrangement
from layby.errors import SqlError
from layby.expr.scalar import ColumnRef
from layby.sql.catalog import Index, IndexKey, Table, make_index
from layby.sql.plan import CreateIndexPlan, CreateTablePlan, DropPlan
from layby.trace.batch import Batch
from layby.types.ordering import ASCENDING

if TYPE_CHECKING:
    from layby.adapter.coordinator import Coordinator
    from layby.adapter.session import Session


def create_table(session: Session, plan: CreateTablePlan, execution: Execution) -> None:
    """Create a table, its shard, and the indexes of its constraints; then it is in the catalog."""
    coordinator = session.coordinator
    if plan.schema != "public":
        if plan.schema == "pg_catalog":
            raise SqlError("42501", 'permission denied to create "pg_catalog.' + plan.name + '"')
        raise SqlError("3F000", f'schema "{plan.schema}" does not exist')
    if _relation_exists(coordinator, plan.name):
        if plan.if_not_exists:
            session.notice(f'relation "{plan.name}" already exists, skipping', "42P07")
            execution.finish(CommandOutcome("CREATE TABLE"))
            return
        raise SqlError("42P07", f'relation "{plan.name}" already exists')
    transaction = session.open_transaction()
    table = Table(coordinator.new_id(), plan.schema, plan.name, plan.desc, plan.defaults)
    for constraint in plan.unique:
        if _relation_exists(coordinator, constraint.name):
            raise SqlError("42P07", f'relation "{constraint.name}" already exists')
        keys = tuple(IndexKey(ColumnRef(c, plan.desc.columns[c].type), ASCENDING) for c in constraint.columns)
        index = make_index(
            coordinator.new_id(), constraint.name, table, keys, unique=True, primary=constraint.primary
        )
        table = replace(table, indexes=(*table.indexes, index))
    descs = [shard(coordinator.new_id(), table.id, table.name, plan.desc.types)]
    descs += [_desc(index) for index in table.indexes]
    coordinator.arrangements[table.id] = tuple(descs)
    names = {plan.name, *(constraint.name for constraint in plan.unique)}
    coordinator.reserved_names |= names
    waiting = len(descs)

    def created(error: SqlError | None) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            coordinator.reserved_names -= names
        if error is not None:
            execution.fail(error)
        elif not waiting:
            coordinator.change_catalog(put=(table,))
            transaction.undo.append(lambda: _take_away(coordinator, table))
            execution.finish(CommandOutcome("CREATE TABLE"))

    for desc in descs:
        coordinator.maintenance.submit(
            CreateArrangement(desc, lambda error: coordinator.deliver(lambda: created(error)))
        )


def create_index(session: Session, plan: CreateIndexPlan, execution: Execution) -> None:
    """Build an index away from the loop; it is in the catalog once it can be read.

    A unique one keeps writes of the table out while it is built, as PostgreSQL does.
    """
    coordinator, table = session.coordinator, plan.table
    if _relation_exists(coordinator, plan.name):
        if plan.if_not_exists:
            session.notice(f'relation "{plan.name}" already exists, skipping', "42P07")
            execution.finish(CommandOutcome("CREATE INDEX"))
            return
        raise SqlError("42P07", f'relation "{plan.name}" already exists')
    transaction = session.open_transaction()
    if table.id in transaction.writes:
        # The build reads what is committed; rows of this block would be missing from it until the commit,
        # and its uniqueness unproven.
        raise SqlError(
            "55006",
            f'cannot CREATE INDEX "{table.name}" because it has uncommitted changes in this session',
            hint="Commit the transaction first.",
        )
    index = make_index(coordinator.new_id(), plan.name, table, plan.keys, unique=plan.unique)
    if not plan.unique:
        _build(session, transaction, table, index, execution)
        return
    locks = coordinator.locks

    def granted() -> None:
        try:
            _build(session, transaction, table, index, execution)
        except SqlError as error:
            execution.fail(error)

    if locks.acquire(transaction.owner, table.id, LockMode.EXCLUSIVE, granted):
        granted()
    else:
        execution.cancel = execution.fail


def _build(
    session: Session, transaction: Transaction, table: Table, index: Index, execution: Execution
) -> None:
    coordinator = session.coordinator
    if table.id not in coordinator.arrangements:
        raise SqlError("42P01", f'relation "{table.name}" does not exist')
    desc = _desc(index)
    coordinator.arrangements[table.id] = (*coordinator.arrangements[table.id], desc)
    coordinator.reserved_names.add(index.name)
    verify: Callable[[Batch], SqlError | None] | None = None
    if index.unique:
        from layby.adapter.coordinator import key_names

        names = key_names(table, index)

        def verify(batch: Batch) -> SqlError | None:
            return duplicate(index, batch, names)

    def created(error: SqlError | None) -> None:
        coordinator.reserved_names.discard(index.name)
        current = coordinator.table_by_id(table.id)
        if error is None and (current is None or execution.ended):
            coordinator.maintenance.submit(DropArrangement(desc.id))
            error = SqlError("42P01", f'relation "{table.name}" does not exist')
        if error is not None or current is None:
            _forget_arrangement(coordinator, table.id, desc.id)
            execution.fail(error or SqlError("42P01", f'relation "{table.name}" does not exist'))
            return
        coordinator.change_catalog(put=(replace(current, indexes=(*current.indexes, index)),))
        transaction.undo.append(lambda: _drop_index(coordinator, table.id, index))
        execution.finish(CommandOutcome("CREATE INDEX"))

    execution.cancel = execution.fail
    coordinator.maintenance.submit(
        CreateArrangement(desc, lambda error: coordinator.deliver(lambda: created(error)), verify)
    )


def drop(session: Session, plan: DropPlan, execution: Execution) -> None:
    """Drop tables or indexes: all that are named, or none."""
    coordinator = session.coordinator
    transaction = session.open_transaction()
    missing = "42P01" if plan.kind == "table" else "42704"
    found: list[tuple[Table, Index | None]] = []
    for schema, name in plan.names:
        table = coordinator.catalog.table(name, schema)
        owned = coordinator.catalog.index(name, schema)
        wanted = (table, None) if table is not None else owned
        if wanted is None:
            if not plan.if_exists:
                raise SqlError(missing, f'{plan.kind} "{name}" does not exist')
            session.notice(f'{plan.kind} "{name}" does not exist, skipping')
            continue
        found.append(_droppable(plan.kind, name, *wanted))
    for table, index in found:
        current = coordinator.table_by_id(table.id)
        if current is None:
            continue  # named twice
        if index is None:
            _drop_table(coordinator, transaction, current)
        else:
            _drop_index_in(coordinator, transaction, current, index)
    execution.finish(CommandOutcome(f"DROP {plan.kind.upper()}"))


def _droppable(kind: str, name: str, table: Table, index: Index | None) -> tuple[Table, Index | None]:
    """Return what is to be dropped; raises SqlError 42809 or 2BP01 where it may not be."""
    if kind == "table" and index is not None:
        raise SqlError("42809", f'"{name}" is not a table', hint="Use DROP INDEX to remove an index.")
    if kind == "index" and index is None:
        raise SqlError("42809", f'"{name}" is not an index', hint="Use DROP TABLE to remove a table.")
    if table.rows is not None:
        raise SqlError("42501", f'permission denied: "{name}" is a system catalog')
    if index is not None and index.primary:
        raise SqlError(
            "2BP01",
            f"cannot drop index {name} because constraint {name} on table {table.name} requires it",
            hint=f"You can drop constraint {name} on table {table.name} instead.",
        )
    return table, index


def _drop_table(coordinator: Coordinator, transaction: Transaction, table: Table) -> None:
    coordinator.change_catalog(remove=(table,))
    gone = SqlError("57014", f'canceling statement because table "{table.name}" was dropped')
    kept = transaction.writes.pop(table.id, None)
    for desc in coordinator.arrangements[table.id]:
        coordinator.worker.cancel_reads_of(desc.id, gone)

    def undo() -> None:
        coordinator.change_catalog(put=(table,))
        if kept is not None:
            transaction.writes[table.id] = kept

    transaction.undo.append(undo)
    transaction.at_commit.append(lambda: _release_table(coordinator, table))


def _drop_index_in(coordinator: Coordinator, transaction: Transaction, table: Table, index: Index) -> None:
    rest = tuple(i for i in table.indexes if i.id != index.id)
    coordinator.change_catalog(put=(replace(table, indexes=rest),))
    coordinator.worker.cancel_reads_of(
        index.id, SqlError("57014", f'canceling statement because index "{index.name}" was dropped')
    )

    def undo() -> None:
        current = coordinator.table_by_id(table.id)
        if current is not None:
            coordinator.change_catalog(put=(replace(current, indexes=(*current.indexes, index)),))

    transaction.undo.append(undo)
    transaction.at_commit.append(lambda: _release_index(coordinator, table.id, index))


def _take_away(coordinator: Coordinator, table: Table) -> None:
    """Undo the creation of a table."""
    current = coordinator.table_by_id(table.id)
    if current is not None:
        coordinator.change_catalog(remove=(current,))
    _release_table(coordinator, table)


def _release_table(coordinator: Coordinator, table: Table) -> None:
    for desc in reversed(coordinator.arrangements.pop(table.id, ())):
        coordinator.maintenance.submit(DropArrangement(desc.id))
    coordinator.last_write.pop(table.id, None)


def _drop_index(coordinator: Coordinator, table_id: int, index: Index) -> None:
    """Undo the creation of an index."""
    current = coordinator.table_by_id(table_id)
    if current is not None:
        rest = tuple(i for i in current.indexes if i.id != index.id)
        coordinator.change_catalog(put=(replace(current, indexes=rest),))
    _release_index(coordinator, table_id, index)


def _release_index(coordinator: Coordinator, table_id: int, index: Index) -> None:
    _forget_arrangement(coordinator, table_id, index.id)
    coordinator.maintenance.submit(DropArrangement(index.id))


def _forget_arrangement(coordinator: Coordinator, table_id: int, id_: int) -> None:
    known = coordinator.arrangements.get(table_id)
    if known is not None:
        coordinator.arrangements[table_id] = tuple(d for d in known if d.id != id_)


def _desc(index: Index) -> ArrangementDesc:
    return ArrangementDesc(index.id, index.table_id, index.name, index.stored, index.layout)


def _relation_exists(coordinator: Coordinator, name: str) -> bool:
    catalog = coordinator.catalog
    return (
        name in coordinator.reserved_names
        or catalog.table(name, "public") is not None
        or catalog.index(name, "public") is not None
    )
