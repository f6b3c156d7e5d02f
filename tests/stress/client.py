"""A session of the stress test: runs statements, disturbs some of them, and sorts errors from findings."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from tests.stress.model import Answer, Question
from tests.stress.server import StressedServer

RESOURCES = frozenset({"53400", "54000"})
"""What parameters that flip may bring any statement: a full queue, an answer or a walk over its bound."""

CANCELLED = "57014"

SLOW = "SELECT g FROM generate_series(1, 3000000) g WHERE g % 7 = -1"
"""Comes to no rows after a while: minutes at a granularity of one, and not long where it is walked inline,
since with the offload off nothing can end it."""


class Refused(Exception):  # noqa: N818 - an outcome that has to be reckoned with, no fault
    """A statement failed with an error that it may fail with; nothing of it has happened."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Finding(Exception):  # noqa: N818 - it is what the test looks for
    """The server did something wrong."""


class Client:
    """One session, with its connection."""

    def __init__(self, server: StressedServer, random: Random, *, kills: bool) -> None:
        self.random = random
        self.statements = 0
        self.refused = 0
        self.doing: tuple[str, float] | None = None
        """The statement under way and since when, for a verdict over a session that hangs."""
        self._server = server
        self._kills = kills
        self._connection = server.session()

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection under way."""
        return self._connection

    def run(self, sql: str, *allowed: str, disturb: bool = False, fails: str | None = None) -> Answer:
        """Run a statement and return its rows.

        Raises Refused where it failed with one of the SQLSTATEs `allowed`, for want of resources, because it
        was disturbed, or with `fails`; Finding where it failed otherwise.
        """
        cancel: threading.Timer | None = None
        if disturb:
            delay = self.random.choice((0.0, self.random.random() * 0.02))
            cancel = threading.Timer(delay, self._connection.cancel_safe)
            cancel.start()
        self.doing = (sql, time.monotonic())
        try:
            return self._answer(sql)
        except psycopg.Error as error:
            state = error.sqlstate or ""
            expected = {*RESOURCES, *allowed, *([CANCELLED] if disturb else []), *([fails] if fails else [])}
            if state in expected or self._killed(error):
                self.refused += 1
                raise Refused(state) from None
            raise Finding(f"{sql[:300]}: {state} {error}") from error
        finally:
            self.statements += 1
            self.doing = None
            if cancel is not None:
                # Once the request has been answered it cannot hit the next statement any more.
                cancel.cancel()
                cancel.join()

    def run_together(self, statements: Sequence[str], *allowed: str) -> list[Answer | str]:
        """Send statements at once, each with a Sync of its own behind it, so that one runs whatever the one
        before came to; return the integers of each, or the SQLSTATE that it failed with.

        Raises Finding where one failed with another than those `allowed`, or for want of resources.
        """
        pgconn = self._connection.pgconn
        self.doing = ("; ".join(statements), time.monotonic())
        outcomes: list[Answer | str] = []
        pgconn.enter_pipeline_mode()
        for sql in statements:
            pgconn.send_query_params(sql.encode(), None)
            pgconn.pipeline_sync()
        for sql in statements:
            outcomes.append(self._outcome(sql, self._next_result(), {*RESOURCES, *allowed}))
            while (result := self._next_result()) is None or result.status != ExecStatus.PIPELINE_SYNC:
                pass
        pgconn.exit_pipeline_mode()
        self.statements += len(statements)
        self.doing = None
        return outcomes

    def ask(self, question: Question, *allowed: str, disturb: bool = False) -> None:
        """Run a query and check its answer. Raises Refused and Finding."""
        answer = self.run(question.sql, *allowed, disturb=disturb, fails=question.fails)
        if not question.check(answer):
            raise Finding(question.wrong(answer))

    @property
    def in_block(self) -> bool:
        """Whether a transaction block is open."""
        return self._connection.info.transaction_status is not TransactionStatus.IDLE

    def copy(self, table: str, lines: list[str], *allowed: str) -> None:
        """Send lines with COPY. Raises Refused and Finding."""
        sql = f"COPY {table} FROM STDIN"
        self.doing = (sql, time.monotonic())
        try:
            with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                for line in lines:
                    copy.write(line)
        except psycopg.Error as error:
            if error.sqlstate in allowed or self._killed(error):
                raise Refused(error.sqlstate or "") from None
            raise Finding(f"{sql}: {error.sqlstate} {error}") from error
        finally:
            self.statements += 1
            self.doing = None

    @contextmanager
    def timeout(self, milliseconds: int) -> Iterator[None]:
        """Have statements end by the server's own timeout for a while."""
        self.run(f"SET statement_timeout = {milliseconds}")
        try:
            yield
        finally:
            self.run("RESET statement_timeout", CANCELLED)

    def hang_up(self, sql: str) -> None:
        """Send a statement, cut the connection without a word, and come back by another."""
        connection = self._connection
        connection.pgconn.send_query(sql.encode())
        connection.pgconn.flush()
        time.sleep(self.random.choice((0.0, 0.001, 0.01)))
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as cut:
            cut.shutdown(socket.SHUT_RDWR)
        connection.close()
        self._connection = self._server.session()

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _answer(self, sql: str) -> Answer:
        # Simple, extended with binary results, and prepared: the three ways a client asks.
        way = self.random.randrange(4)
        with self._connection.cursor(binary=way == 1) as cursor:
            cursor.execute(sql.encode(), prepare=way == 2)
            return cursor.fetchall() if cursor.description else []

    def _next_result(self) -> PGresult | None:
        """Return the next result once it is there.

        `get_result` alone waits with the interpreter's lock, maybe for another session of this process.
        """
        pgconn = self._connection.pgconn
        while pgconn.is_busy():
            select.select([pgconn.socket], [], [])
            pgconn.consume_input()
        return pgconn.get_result()

    def _outcome(self, sql: str, result: PGresult | None, expected: set[str]) -> Answer | str:
        if result is None or result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            if result is None:
                raise Finding(f"{sql}: {self._connection.pgconn.get_error_message()}")
            error = psycopg.errors.error_from_result(result)
            state = error.sqlstate or ""
            if state not in expected and not self._killed(error):
                raise Finding(f"{sql}: {state} {error}")
            self.refused += 1
            return state
        columns = range(result.nfields)
        return [tuple(int(result.get_value(row, c) or b"") for c in columns) for row in range(result.ntuples)]

    def _killed(self, error: psycopg.Error) -> bool:
        return self._kills and error.sqlstate == "XX000" and " died" in str(error)
