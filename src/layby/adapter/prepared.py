"""Prepared statements and portals of a session, by the names that its client gave them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from layby.adapter.execution import Execution
from layby.adapter.long_texts import LONGEST_AT_ONCE, LongStatement, known_plan, plan_apart
from layby.adapter.outcome import ResultDesc
from layby.adapter.runner import StatementRunner
from layby.adapter.transaction_block import TransactionBlock
from layby.compute.runtime import Job
from layby.errors import SqlError
from layby.sql.context import TooLongError
from layby.sql.params import MANY, BoundParams, PackedParams
from layby.sql.parse import ParsedStatement
from layby.sql.plan import PlannedStatement, TransactionPlan
from layby.sql.statement_text import StatementText
from layby.sql.typenames import no_parameter_type
from layby.types.scalar import BY_OID, TEXT, UNKNOWN, SqlType
from layby.types.type_list import TypeList

_VARYING_CHARACTER: Final = frozenset({1043, 1042, 19})
"""Types that clients may name for a parameter and that are text here: varchar, char(n), name."""


class ReadBind(NamedTuple):
    """What a Bind that is read apart comes to: its parameters and its result formats."""

    params: PackedParams
    formats: tuple[int, ...]


@dataclass(slots=True)
class Prepared:
    """A prepared statement, None and None of an empty text. The plan may be of an older catalog."""

    parsed: ParsedStatement | LongStatement | None
    planned: PlannedStatement | None


@dataclass(slots=True)
class Portal:
    """A prepared statement with values for its parameters."""

    prepared: Prepared
    params: BoundParams


class PreparedStatements:
    """One session's prepared statements and portals. The one without a name gives way to the next.

    Portals end with the transaction.
    """

    __slots__ = ("_block", "_runner", "_statements", "portals")

    def __init__(self, block: TransactionBlock, runner: StatementRunner, portals: dict[str, Portal]) -> None:
        self._block = block
        self._runner = runner
        self._statements: dict[str, Prepared] = {}
        self.portals = portals

    def prepare(
        self,
        name: str,
        sql: StatementText,
        param_oids: Sequence[int] | NDArray[np.uint32],
        on_prepared: Callable[[SqlError | None], None],
    ) -> bool:
        """Make a prepared statement of one statement's text; raises what parsing and planning raise.

        Returns False for a long text or many types, and calls back later, with what was raised.
        """
        if name and name in self._statements:
            raise SqlError("42P05", f'prepared statement "{name}" already exists')
        self._statements.pop(name, None)
        types = _parameter_types(param_oids)
        block = self._block
        if not isinstance(sql, str) or len(sql) > LONGEST_AT_ONCE or len(types) > MANY:
            known = known_plan(block, sql, types)
            if known is None:
                self._prepare_apart(name, sql, types, on_prepared)
                return False
            self._statements[name] = Prepared(LongStatement(sql, _kind(known)), known)
            return True
        cache = block.coordinator.statements
        statements = cache.parse(sql)
        if len(statements) > 1:
            raise SqlError("42601", "cannot insert multiple commands into a prepared statement")
        if not statements:
            self._statements[name] = Prepared(None, None)
            return True
        (parsed,) = statements
        block.refuse_if_failed(parsed.kind)
        try:
            self._statements[name] = Prepared(parsed, cache.plan(parsed, block.catalog, types))
        except TooLongError:
            self._prepare_apart(name, parsed.text, types, on_prepared, parsed.offset)
            return False
        return True

    def describe_statement(self, name: str) -> tuple[Sequence[SqlType], ResultDesc | None]:
        """Return a statement's parameter types and result columns; raises SqlError 26000."""
        prepared = self._statement(name)
        planned = self.plan(prepared) or prepared.planned
        return ((), None) if planned is None else (planned.params, planned.columns)

    def bind(self, portal: str, statement: str, params: BoundParams) -> None:
        """Make a portal; raises SqlError 26000, 42P03, or 08P01 for a wrong number of parameters."""
        prepared = self._statement(statement)
        expected = 0 if prepared.planned is None else len(prepared.planned.params)
        if len(params) != expected:
            raise SqlError(
                "08P01",
                f"bind message supplies {len(params)} parameters, but prepared statement "
                f'"{statement}" requires {expected}',
            )
        if portal and portal in self.portals:
            raise SqlError("42P03", f'cursor "{portal}" already exists')
        self.portals[portal] = Portal(prepared, params)

    def bind_apart(
        self, portal: str, statement: str, job: Job, on_bound: Callable[[tuple[int, ...] | SqlError], None]
    ) -> None:
        """Make a portal of parameters that are read apart: `job` comes to a `ReadBind`, or raises.

        Calls back later, once, with the Bind's result formats, or what was raised there or by `bind`.
        """

        def begin(execution: Execution, answer: Callable[[tuple[int, ...]], None]) -> None:
            def read(result: ReadBind) -> None:
                self.bind(portal, statement, result.params)
                answer(result.formats)

            self._block.coordinator.run_part(execution, job, read)

        self._runner.ask(begin, on_bound)

    def describe_portal(self, portal: str) -> ResultDesc | None:
        """Return a portal's result columns; raises SqlError 34000."""
        prepared = self.portal(portal).prepared
        planned = self.plan(prepared) or prepared.planned
        return None if planned is None else planned.columns

    def portal(self, name: str) -> Portal:
        """Return a portal; raises SqlError 34000 where there is none of that name."""
        found = self.portals.get(name)
        if found is None:
            raise SqlError("34000", f'portal "{name}" does not exist')
        return found

    def plan(self, prepared: Prepared) -> PlannedStatement | None:
        """Return the plan under the catalog in force; raises SqlError 0A000 where the result changed.

        Returns None where it is to be made apart, and for an empty text.
        """
        block, planned, parsed = self._block, prepared.planned, prepared.parsed
        catalog = block.coordinator.catalog_for(block.transaction)
        if planned is None or planned.catalog_version == catalog.version:
            return planned
        if not isinstance(parsed, ParsedStatement):
            return None
        # The types of the parameters stay those that the client was told.
        try:
            fresh = block.coordinator.statements.plan(parsed, catalog, planned.params)
        except TooLongError:
            prepared.parsed = LongStatement(parsed.text, parsed.kind)
            return None
        return _renew(prepared, fresh)

    def plan_apart(
        self, prepared: Prepared, execution: Execution, then: Callable[[PlannedStatement], None]
    ) -> None:
        """Make the plan apart that `plan` has not, and hand it to `then` in an attempt of `execution`."""
        block, old, parsed = self._block, prepared.planned, prepared.parsed
        assert isinstance(parsed, LongStatement)
        assert old is not None

        def planned(_kind: str, fresh: PlannedStatement | None) -> None:
            assert fresh is not None
            then(_renew(prepared, fresh))

        known = known_plan(block, parsed.source, old.params)
        if known is None:
            plan_apart(block, parsed.source, old.params, execution, planned)
        else:
            planned("", known)

    def close_statement(self, name: str) -> None:
        """Drop a prepared statement, if there is one of that name."""
        self._statements.pop(name, None)

    def close_portal(self, name: str) -> None:
        """Drop a portal, if there is one of that name."""
        self.portals.pop(name, None)

    def discard_statements(self, name: str | None = None) -> None:
        """Drop one prepared statement (26000 where there is none of that name), or all."""
        if name is None:
            self._statements.clear()
        else:
            self._statement(name)
            self.close_statement(name)

    def _prepare_apart(
        self,
        name: str,
        sql: StatementText,
        types: Sequence[SqlType | None],
        on_prepared: Callable[[SqlError | None], None],
        offset: int = 0,
    ) -> None:
        def begin(execution: Execution, answer: Callable[[None], None]) -> None:
            def planned(kind: str, found: PlannedStatement | None) -> None:
                statement = None if found is None else LongStatement(sql, kind)
                self._statements[name] = Prepared(statement, found)
                answer(None)

            plan_apart(self._block, sql, types, execution, planned, offset)

        self._runner.ask(begin, on_prepared)

    def _statement(self, name: str) -> Prepared:
        found = self._statements.get(name)
        if found is None:
            message = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise SqlError("26000", f"{message} does not exist")
        return found


def _renew(prepared: Prepared, fresh: PlannedStatement) -> PlannedStatement:
    if prepared.planned is not None and fresh.columns != prepared.planned.columns:
        raise SqlError("0A000", "cached plan must not change result type")
    prepared.planned = fresh
    return fresh


def _kind(planned: PlannedStatement) -> str:
    """Return what has to be known of a statement's kind in the grammar: whether it ends a block."""
    return "transaction_stmt" if isinstance(planned.plan, TransactionPlan) else ""


def _parameter_types(oids: Sequence[int] | NDArray[np.uint32]) -> Sequence[SqlType | None]:
    """Return the types that a client declared, None (of many: UNKNOWN) where it left one open."""
    if isinstance(oids, np.ndarray):
        return TypeList.with_oids(oids, _parameter_type)
    types: list[SqlType | None] = []
    for oid in oids:
        type_ = None if oid == 0 else BY_OID.get(oid)
        if oid and type_ is None:
            type_ = _parameter_type(oid)
        types.append(None if type_ is UNKNOWN else type_)
    return tuple(types)


def _parameter_type(oid: int) -> SqlType:
    """Return our type for a parameter of a type that is only a spelling of one; raises 0A000 or 42704."""
    if oid in _VARYING_CHARACTER:
        return TEXT
    raise no_parameter_type(oid)
