"""DDL: CREATE and DROP of tables and indexes.

A change of the catalog takes effect at once, for everybody. In a transaction block it is remembered how to
take it back; what a DROP drops is kept, out of sight, until the block commits. A new table is held until its
block ends, so that nobody else writes or drops what may be taken back; a new index is not, and whoever drops
one that is taken back meanwhile has nothing to put back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from layby.adapter.catalog_change import CatalogChange
from layby.adapter.execution import Execution
from layby.adapter.outcome import CommandOutcome
from layby.adapter.transaction import Transaction
from layby.adapter.unique import unique_key
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

DROPS: Final = 64
"""Relations that a statement drops in one turn."""

_Gone = tuple[int, SqlError]
"""An arrangement that is dropped, and what its reads are cancelled with."""


def create_table(session: Session, plan: CreateTablePlan, execution: Execution) -> None:
    """Create a table, its shard, and the indexes of its constraints; then it is in the catalog.

    It is held until its block ends, so that a rollback takes nothing away that others have written.
    """
    coordinator = session.coordinator
    if plan.schema != "public":
        if plan.schema == "pg_catalog":
            raise SqlError("42501", 'permission denied to create "pg_catalog.' + plan.name + '"')
        raise SqlError("3F000", f'schema "{plan.schema}" does not exist')
    transaction = session.block.open()
    if _relation_exists(coordinator, transaction, plan.name):
        if plan.if_not_exists:
            session.notice(f'relation "{plan.name}" already exists, skipping', "42P07")
            execution.finish(CommandOutcome("CREATE TABLE"))
            return
        raise SqlError("42P07", f'relation "{plan.name}" already exists')
    names = {plan.name}
    table = Table(coordinator.new_id(), plan.schema, plan.name, plan.desc, plan.defaults)
    for constraint in plan.unique:
        if constraint.name in names or _relation_exists(coordinator, transaction, constraint.name):
            raise SqlError("42P07", f'relation "{constraint.name}" already exists')
        names.add(constraint.name)
        keys = tuple(IndexKey(ColumnRef(c, plan.desc.columns[c].type), ASCENDING) for c in constraint.columns)
        index = make_index(
            coordinator.new_id(), constraint.name, table, keys, unique=True, primary=constraint.primary
        )
        table = replace(table, indexes=(*table.indexes, index))
    descs = [shard(coordinator.new_id(), table.id, table.name, plan.desc.types)]
    descs += [_desc(index) for index in table.indexes]
    coordinator.arrangements[table.id] = tuple(descs)
    coordinator.reserved_names |= names
    waiting = len(descs)
    failure: SqlError | None = None

    def created(error: SqlError | None) -> None:
        nonlocal waiting, failure
        waiting -= 1
        failure = failure or error
        if waiting:
            return
        coordinator.reserved_names -= names
        if failure is not None:
            coordinator.release_table(table.id)
            execution.fail(failure)
            return
        for index in table.indexes:
            coordinator.index_built(index)
        coordinator.change_catalog(put=(table,))
        transaction.undo.append(lambda change: _take_away(coordinator, change, table))
        execution.finish(CommandOutcome("CREATE TABLE"))

    def build() -> None:
        for desc in descs:
            coordinator.maintenance.submit(
                CreateArrangement(desc, lambda error: coordinator.deliver(lambda: created(error)))
            )

    session.block.lock_tables((table.id,), execution, build)  # which nobody else can hold yet


def create_index(session: Session, plan: CreateIndexPlan, execution: Execution) -> None:
    """Build an index away from the loop; it is in the catalog once it can be read.

    A unique one keeps writes of the table out while it is built, as PostgreSQL does.
    """
    coordinator, table = session.coordinator, plan.table
    transaction = session.block.open()
    if plan.if_not_exists and _relation_exists(coordinator, transaction, plan.name):
        session.notice(f'relation "{plan.name}" already exists, skipping', "42P07")
        execution.finish(CommandOutcome("CREATE INDEX"))
        return
    _refuse_taken(coordinator, transaction, plan.name)
    if table.id in transaction.writes:
        # The build reads what is committed; rows of this block would be missing from it until the commit,
        # and its uniqueness unproven.
        raise SqlError(
            "55006",
            f'cannot CREATE INDEX "{table.name}" because it has uncommitted changes in this session',
            hint="Commit the transaction first.",
        )
    index = make_index(coordinator.new_id(), plan.name, table, plan.keys, unique=plan.unique)

    def go_on() -> None:
        _build(session, transaction, table, index, execution)

    if plan.unique:
        session.block.lock_tables((table.id,), execution, go_on)
    else:
        go_on()


def _build(
    session: Session, transaction: Transaction, table: Table, index: Index, execution: Execution
) -> None:
    coordinator = session.coordinator
    if coordinator.table_by_id(table.id) is None:
        raise SqlError("42P01", f'relation "{table.name}" does not exist')
    _refuse_taken(coordinator, transaction, index.name)
    desc = _desc(index)
    coordinator.arrangements[table.id] = (*coordinator.arrangements[table.id], desc)
    coordinator.reserved_names.add(index.name)
    verify: Callable[[Batch], SqlError | None] | None = None
    if index.unique:
        verify = unique_key(table, index)

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
        coordinator.index_built(index)
        coordinator.change_catalog(put=(replace(current, indexes=(*current.indexes, index)),))
        transaction.undo.append(lambda change: _drop_index(coordinator, change, table.id, index))
        execution.finish(CommandOutcome("CREATE INDEX"))

    execution.cancel = execution.fail
    coordinator.maintenance.submit(
        CreateArrangement(desc, lambda error: coordinator.deliver(lambda: created(error)), verify)
    )


def drop(session: Session, plan: DropPlan, execution: Execution) -> None:
    """Drop tables or indexes: all that are named, or none.

    Their tables are held from now on, so that no write comes between that a rollback would have to bear.
    """
    _drop_held(session, plan, execution, frozenset())


def _drop_held(session: Session, plan: DropPlan, execution: Execution, held: frozenset[int]) -> None:
    coordinator = session.coordinator
    transaction = session.block.open()
    found, absent = _named(coordinator, plan)
    wanted = {table.id for table, _ in found} - held
    if wanted:
        # What the names mean may have changed once the locks are there.
        go_on = partial(_drop_held, session, plan, execution, held | wanted)
        if len(wanted) > DROPS:
            go_on = partial(_later, coordinator, execution, go_on)
        session.block.lock_tables(sorted(wanted), execution, go_on)
        return
    for name in absent:
        session.notice(f'{plan.kind} "{name}" does not exist, skipping')
    step = partial(_drop_some, coordinator, transaction, deque(found), f"DROP {plan.kind.upper()}", execution)
    if len(found) > DROPS:
        _later(coordinator, execution, step)
    else:
        step()


def _drop_some(
    coordinator: Coordinator,
    transaction: Transaction,
    found: deque[tuple[Table, Index | None]],
    tag: str,
    execution: Execution,
) -> None:
    """Drop some of what has been found, and the rest in turns to come: each takes 20 µs."""
    change = CatalogChange(coordinator)
    gone: list[_Gone] = []
    for _ in range(min(len(found), DROPS)):
        table, index = found.popleft()
        current = change.table(table.id)
        if current is None:
            continue  # named twice
        if index is None:
            gone += _drop_table(coordinator, change, transaction, current)
        elif index in current.indexes:
            gone.append(_drop_index_in(coordinator, change, transaction, current, index))
    change.apply()
    # A session whose read is cancelled may run its next statement before this call returns, so all that has
    # to be true by then is.
    for id_, error in gone:
        coordinator.worker.cancel_reads_of(id_, error)
    if found:
        _later(coordinator, execution, partial(_drop_some, coordinator, transaction, found, tag, execution))
    else:
        execution.finish(CommandOutcome(tag))


def _later(coordinator: Coordinator, execution: Execution, step: Callable[[], None]) -> None:
    """Go on with a statement in the next turn, unless it is cancelled until then."""

    def go_on() -> None:
        execution.cancel = None
        step()

    execution.cancel = execution.fail
    coordinator.loop.call_soon(lambda: execution.attempt(go_on))


def _named(coordinator: Coordinator, plan: DropPlan) -> tuple[list[tuple[Table, Index | None]], list[str]]:
    """Return what is to be dropped, and the names of what does not exist though it need not."""
    missing = "42P01" if plan.kind == "table" else "42704"
    found: list[tuple[Table, Index | None]] = []
    absent: list[str] = []
    for schema, name in plan.names:
        table = coordinator.catalog.table(name, schema)
        owned = coordinator.catalog.index(name, schema)
        wanted = (table, None) if table is not None else owned
        if wanted is None:
            if not plan.if_exists:
                raise SqlError(missing, f'{plan.kind} "{name}" does not exist')
            absent.append(name)
            continue
        found.append(_droppable(plan.kind, name, *wanted))
    return found, absent


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


def _drop_table(
    coordinator: Coordinator, change: CatalogChange, transaction: Transaction, table: Table
) -> list[_Gone]:
    change.remove(table)
    transaction.writes.pop(table.id, None)

    names = [table.name, *(index.name for index in table.indexes)]
    free = _keep_names(coordinator, transaction, names)

    def undo(change: CatalogChange) -> None:
        free()
        kept = _kept(coordinator, table.id)
        change.put(replace(table, indexes=tuple(i for i in table.indexes if i.id in kept)))

    def finish() -> None:
        free()
        coordinator.release_table(table.id)

    transaction.undo.append(undo)
    transaction.at_commit.append(finish)
    error = SqlError("57014", f'canceling statement because table "{table.name}" was dropped')
    return [(desc.id, error) for desc in coordinator.arrangements[table.id]]


def _drop_index_in(
    coordinator: Coordinator, change: CatalogChange, transaction: Transaction, table: Table, index: Index
) -> _Gone:
    rest = tuple(i for i in table.indexes if i.id != index.id)
    change.put(replace(table, indexes=rest))

    free = _keep_names(coordinator, transaction, [index.name])

    def undo(change: CatalogChange) -> None:
        free()
        current = change.table(table.id)
        if current is not None and index.id in _kept(coordinator, table.id):
            change.put(replace(current, indexes=(*current.indexes, index)))

    def finish() -> None:
        free()
        _release_index(coordinator, table.id, index)

    transaction.undo.append(undo)
    transaction.at_commit.append(finish)
    return index.id, SqlError("57014", f'canceling statement because index "{index.name}" was dropped')


def _kept(coordinator: Coordinator, table_id: int) -> set[int]:
    """Return which indexes of a table can be put back; a block that created one may have rolled back."""
    return {desc.id for desc in coordinator.arrangements[table_id]}


def _keep_names(coordinator: Coordinator, transaction: Transaction, names: list[str]) -> Callable[[], None]:
    """Keep the names of what is dropped from other transactions, until what is returned is called."""
    dropped, owner = coordinator.dropped_names, transaction.owner
    for name in names:
        dropped.setdefault(name, []).append(owner)

    def free() -> None:
        for name in names:
            dropped[name].remove(owner)
            if not dropped[name]:
                del dropped[name]

    return free


def _take_away(coordinator: Coordinator, change: CatalogChange, table: Table) -> None:
    """Undo the creation of a table."""
    current = change.table(table.id)
    if current is not None:
        change.remove(current)
    coordinator.release_table(table.id)


def _drop_index(coordinator: Coordinator, change: CatalogChange, table_id: int, index: Index) -> None:
    """Undo the creation of an index."""
    current = change.table(table_id)
    if current is not None:
        rest = tuple(i for i in current.indexes if i.id != index.id)
        change.put(replace(current, indexes=rest))
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


def _refuse_taken(coordinator: Coordinator, transaction: Transaction, name: str) -> None:
    if _relation_exists(coordinator, transaction, name):
        raise SqlError("42P07", f'relation "{name}" already exists')


def _relation_exists(coordinator: Coordinator, transaction: Transaction, name: str) -> bool:
    catalog = coordinator.catalog
    return (
        name in coordinator.reserved_names
        or any(dropper is not transaction.owner for dropper in coordinator.dropped_names.get(name, ()))
        or catalog.table(name, "public") is not None
        or catalog.index(name, "public") is not None
    )
