"""What a client and its session say to each other once the session is open. No IO.

Messages are taken strictly in order: the next waits while the session owes an outcome or takes no more COPY
data. What can be answered at once is answered within the call,
without a task or a future.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from layby.adapter.outcome import (
    CommandOutcome,
    CopyInOutcome,
    CopyInSink,
    CopyOutOutcome,
    FailureOutcome,
    Outcome,
    RowsOutcome,
)
from layby.errors import InternalError, SqlError
from layby.pgwire import backend, codec
from layby.pgwire.codec import Body, ProtocolError
from layby.pgwire.output import Output
from layby.pgwire.parameters import LONGEST_AT_ONCE, ReadLongBind, read_parameters
from layby.pgwire.portal import Portal, fetch_tag
from layby.pgwire.session import Script, Session
from layby.pgwire.shape import EncoderChoice, Shapes, column_formats
from layby.pgwire.stream import AnswerStream

_logger: Final = logging.getLogger(__name__)

_Owed = TypeVar("_Owed")


class Conversation:
    """Runs a session's messages and adds the answers to its output.

    While `pending` or `sink_full` nothing may be given to `message` or `step`. A `script` without a `sink`
    wants `step` before the next message. (They are plain attributes as the connection asks for each message.)
    """

    __slots__ = (
        "_executing",
        "_on_broken",
        "_on_ready",
        "_output",
        "_portals",
        "_session",
        "_shapes",
        "_skipping",
        "_stream_over",
        "_text",
        "pending",
        "script",
        "sink",
        "sink_full",
        "stream",
    )

    def __init__(
        self,
        session: Session,
        output: Output,
        on_ready: Callable[[], None],
        on_broken: Callable[[SqlError], None],
    ) -> None:
        """`on_ready` is called when there is no more need to wait, `on_broken` when the session must end."""
        self._session = session
        self._output = output
        self._on_ready = on_ready
        self._on_broken = on_broken
        self._shapes = Shapes()
        self._text = EncoderChoice(self._shapes, ())
        self._portals: dict[str, Portal] = {}
        self._executing: Portal
        """The portal whose outcome the session owes."""
        self.script: Script | None = None
        """The statements of the simple query under way that have not been run; empty once only its Sync is
        left to do."""
        self.sink: CopyInSink | None = None
        """Set while COPY data is taken from the client."""
        self.pending = False
        """The session owes an outcome."""
        self.stream: AnswerStream | None = None
        """Set while an answer comes from the stash: `pending` is too, and `stream_on` is to be called
        whenever the output is not blocked."""
        self._stream_over: Callable[[AnswerStream], None] = _ignore
        """What to do when its draw is over."""
        self._skipping = False
        """An extended message failed: all up to the next Sync is ignored."""
        self.sink_full = False
        """The COPY under way takes no more data for now."""

    @property
    def process_id(self) -> int:
        """The session's number."""
        return self._session.process_id

    @property
    def busy(self) -> bool:
        """Whether a statement, a script or a copy is under way."""
        return self.pending or self.script is not None or self.sink is not None

    @property
    def idle(self) -> bool:
        """Whether the client may go without leaving anything undone."""
        return not self.busy and self._session.status == b"I"

    def begin(self) -> None:
        """Greet the client."""
        output, session = self._output, self._session
        output.add(backend.AUTHENTICATION_OK)
        for name, value in session.reported_parameters().items():
            output.add(backend.parameter_status(name, value))
        output.add(backend.backend_key_data(session.process_id, session.secret_key))
        self._tell_notices()
        self._ready()

    def close(self) -> None:
        """End the session; outcomes it still owes are no longer taken."""
        self._on_ready = _nothing
        self._on_broken = _ignore
        self.pending = True
        self.script = self.sink = None
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        self._stream_over = _ignore
        self._drop_portals()
        self._session.on_terminated = None
        self._session.close()

    def step(self) -> None:
        """Run the next statement of the script, or end it."""
        script = self.script
        assert script is not None
        if not script:
            self.script = None
            self._sync()
            return
        self.pending = True
        try:
            outcome = self._session.execute_statement(script.popleft(), self._text, self._on_statement)
        except SqlError as error:
            outcome = FailureOutcome(error)
        if outcome is not None:
            self.pending = False
            self._statement_done(outcome)

    def stream_on(self) -> bool:
        """Send what the output takes of the answer under way; True when that is over, whatever its end."""
        stream = self.stream
        assert stream is not None
        if not stream.advance(self._output):
            return False
        self.stream = None
        self.pending = False
        # A method of this object: kept, it would be a cycle, and what a session holds would stay in memory.
        over, self._stream_over = self._stream_over, _ignore
        over(stream)
        return True

    def message(self, kind: int, body: Any) -> None:
        """Run one message, other than Terminate; its body is bytes, or that of a large one.

        Raises `ProtocolError` where the connection must end.
        """
        if self.sink is not None:
            self._copy_message(self.sink, kind, body)
        elif kind == codec.SYNC:
            self._skipping = False
            self._sync()
        elif self._skipping:
            return
        elif kind == codec.QUERY:
            self._query(body)
        elif kind == codec.FUNCTION_CALL:
            self.script = deque()
            self._script_failed(SqlError("0A000", "function calls are not supported"))
        else:
            try:
                self._extended(kind, body)
            except ProtocolError:
                raise
            except SqlError as error:
                self._extended_failed(error)

    # -- simple query

    def _query(self, body: Body) -> None:
        try:
            script = self._session.parse_script(codec.read_query(body), self._on_parsed)
        except ProtocolError:
            raise
        except SqlError as error:
            self.script = deque()
            self._script_failed(error)
            return
        if script is None:
            self.script = deque()
            self.pending = True
        else:
            self._parsed(script)

    def _on_parsed(self, script: Script | SqlError) -> None:
        self._arrived(self._parsed, script)

    def _parsed(self, script: Script | SqlError) -> None:
        if isinstance(script, SqlError):
            self._script_failed(script)
            return
        self.script = script
        if not script:
            self._output.add(backend.EMPTY_QUERY)

    def _on_statement(self, outcome: Outcome) -> None:
        self._arrived(self._statement_done, outcome)

    def _statement_done(self, outcome: Outcome) -> None:
        self._tell_notices()
        if isinstance(outcome, FailureOutcome):
            self._script_failed(outcome.error)
        elif isinstance(outcome, RowsOutcome):
            shape = self._shapes.get(outcome.desc, ())
            if outcome.stash is not None:
                self._output.add(shape.description)
                self._begin_stream(AnswerStream(outcome.stash, outcome.tag), 0, self._statement_streamed)
                return
            rows = outcome.encoded
            if rows is None:
                rows = shape.encoder(outcome.columns, outcome.count)
            self._output.add(shape.description)
            self._output.add_rows(rows.data)
            self._output.complete(backend.command_complete(outcome.tag))
        else:
            self._plain_outcome(outcome)

    def _statement_streamed(self, stream: AnswerStream) -> None:
        if stream.error is not None:
            self._script_failed(stream.error)
        else:
            self._output.complete(backend.command_complete(stream.tag))

    def _script_failed(self, error: SqlError) -> None:
        """Tell the error and give the rest of the script up."""
        self.sink = None
        self.sink_full = False
        self._session.fail()
        self._report(error)
        if self.script is not None:
            self.script.clear()

    # -- extended query

    def _extended(self, kind: int, body: Any) -> None:
        """Run one message of the extended protocol; a `SqlError` fails it and all up to the next Sync."""
        output, prepared = self._output, self._session.prepared
        if kind == codec.BIND:
            if len(body) > LONGEST_AT_ONCE:
                self._bind_apart(body)
                return
            name, statement, formats, values, result_formats = codec.read_bind(body)
            types, desc = prepared.describe_statement(statement)
            params = read_parameters(name, statement, types, formats, values)
            if desc is not None and result_formats:
                column_formats(result_formats, len(desc))
            prepared.bind(name, statement, params)
            self._drop_portal(name)
            self._portals[name] = Portal(self._shapes, result_formats)
            output.add(backend.BIND_COMPLETE)
        elif kind == codec.EXECUTE:
            name, limit = codec.read_execute(body)
            self._execute(name, limit)
        elif kind == codec.DESCRIBE:
            self._describe(*codec.read_target(body))
        elif kind == codec.PARSE:
            name, sql, oids = codec.read_parse(body)
            if prepared.prepare(name, sql, oids, self._on_prepared):
                output.add(backend.PARSE_COMPLETE)
            else:
                self.pending = True
        elif kind == codec.CLOSE:
            which, name = codec.read_target(body)
            if which == ord("S"):
                prepared.close_statement(name)
            else:
                self._drop_portal(name)
                prepared.close_portal(name)
            output.add(backend.CLOSE_COMPLETE)
        elif kind == codec.FLUSH:
            output.confirm()
            output.flush()
        # What is left is COPY data on its way when its copy failed; as in PostgreSQL it is ignored.

    def _bind_apart(self, body: Body) -> None:
        """Have a long Bind read away from the serving loop."""
        prepared = self._session.prepared
        name, statement = codec.read_bind_target(body)
        types, desc = prepared.describe_statement(statement)
        data = body if isinstance(body, bytes) else body.data
        job = ReadLongBind(data, types, None if desc is None else len(desc))
        self.pending = True
        try:
            prepared.bind_apart(name, statement, job, partial(self._on_bound, name))
        except SqlError:
            self.pending = False
            raise

    def _on_bound(self, name: str, formats: tuple[int, ...] | SqlError) -> None:
        self._arrived(partial(self._bound, name), formats)

    def _bound(self, name: str, formats: tuple[int, ...] | SqlError) -> None:
        if isinstance(formats, ProtocolError):
            self._on_broken(formats)
        elif isinstance(formats, SqlError):
            self._extended_failed(formats)
        else:
            self._drop_portal(name)
            self._portals[name] = Portal(self._shapes, formats)
            self._output.add(backend.BIND_COMPLETE)

    def _on_prepared(self, error: SqlError | None) -> None:
        self._arrived(self._prepared, error)

    def _prepared(self, error: SqlError | None) -> None:
        if error is not None:
            self._extended_failed(error)
        else:
            self._output.add(backend.PARSE_COMPLETE)

    def _describe(self, which: int, name: str) -> None:
        output, prepared = self._output, self._session.prepared
        formats: tuple[int, ...] = ()
        if which == ord("S"):
            types, desc = prepared.describe_statement(name)
            output.add(backend.parameter_description(types))
        else:
            desc = prepared.describe_portal(name)
            portal = self._portals.get(name)
            if portal is not None:
                formats = portal.formats
        output.add(backend.NO_DATA if desc is None else self._shapes.get(desc, formats).description)

    def _execute(self, name: str, limit: int) -> None:
        """Run a portal, or go on with one that its row limit suspended."""
        session = self._session
        portal = self._portals.get(name)
        if portal is None:
            portal = Portal(self._shapes, ())
        elif portal.rows is not None:
            session.prepared.describe_portal(name)
            self._portal_rows(portal, limit)
            return
        elif portal.stream is not None:
            session.prepared.describe_portal(name)
            self._executing = portal
            self._begin_stream(portal.stream, limit, self._portal_streamed)
            return
        portal.check_runnable(name)
        portal.limit = limit
        self._executing = portal
        self.pending = True
        try:
            outcome = session.execute_portal(name, portal, self._on_portal)
        except SqlError:
            self.pending = False
            raise
        if outcome is not None:
            self.pending = False
            self._portal_done(outcome)

    def _on_portal(self, outcome: Outcome) -> None:
        self._arrived(self._portal_done, outcome)

    def _portal_done(self, outcome: Outcome) -> None:
        portal = self._executing
        self._tell_notices()
        if isinstance(outcome, FailureOutcome):
            self._extended_failed(outcome.error)
        elif isinstance(outcome, RowsOutcome):
            if outcome.stash is not None:
                portal.stream = AnswerStream(outcome.stash, outcome.tag)
                self._begin_stream(portal.stream, portal.limit, self._portal_streamed)
                return
            rows = outcome.encoded
            if rows is None:
                rows = self._shapes.get(outcome.desc, portal.formats).encoder(outcome.columns, outcome.count)
            if portal.limit == 0:
                self._output.add_rows(rows.data)
                self._output.complete(backend.command_complete(outcome.tag))
                portal.exhaust(outcome.tag)
            else:
                portal.hold(rows, outcome.tag)
                self._portal_rows(portal, portal.limit)
        else:
            portal.finished = True
            self._plain_outcome(outcome)

    def _portal_rows(self, portal: Portal, limit: int) -> None:
        """Send the next rows of a portal that has them ready."""
        data, tag = portal.fetch(limit)
        self._output.add_rows(data)
        if tag is None:
            self._output.add(backend.PORTAL_SUSPENDED)
        else:
            self._output.complete(backend.command_complete(tag))

    def _portal_streamed(self, stream: AnswerStream) -> None:
        portal = self._executing
        if stream.error is None and stream.suspended:
            self._output.add(backend.PORTAL_SUSPENDED)
            return
        portal.stream = None
        portal.exhaust(stream.tag)
        if stream.error is not None:
            self._extended_failed(stream.error)
        else:
            self._output.complete(backend.command_complete(fetch_tag(stream.tag, stream.sent)))

    def _extended_failed(self, error: SqlError) -> None:
        self.sink = None
        self.sink_full = False
        self._session.fail()
        self._report(error)
        self._skipping = True

    # -- COPY

    def _plain_outcome(self, outcome: CommandOutcome | CopyInOutcome | CopyOutOutcome) -> None:
        """Answer with what looks the same in both protocols."""
        output = self._output
        if isinstance(outcome, CommandOutcome):
            if outcome.tag:
                output.complete(backend.command_complete(outcome.tag))
            else:
                output.add(backend.EMPTY_QUERY)
        elif isinstance(outcome, CopyOutOutcome):
            output.add(backend.copy_response(b"H", outcome.column_count))
            if outcome.header:
                output.add(backend.message(b"d", outcome.header))
            if outcome.stash is not None:
                failed = self._extended_failed if self.script is None else self._script_failed
                self._begin_stream(
                    AnswerStream(outcome.stash, outcome.tag), 0, partial(self._copy_streamed, failed)
                )
                return
            output.add_rows(outcome.rows.data)
            self._copy_done(outcome.tag)
        else:
            self.sink = outcome.sink
            self.sink.on_ready = self._sink_ready
            output.add(backend.copy_response(b"G", outcome.column_count))
            output.flush()

    def _copy_streamed(self, failed: Callable[[SqlError], None], stream: AnswerStream) -> None:
        if stream.error is not None:
            failed(stream.error)
        else:
            self._copy_done(stream.tag)

    def _copy_done(self, tag: str) -> None:
        self._output.add(backend.COPY_DONE)
        self._output.complete(backend.command_complete(tag))

    def _copy_message(self, sink: CopyInSink, kind: int, body: bytes) -> None:
        """Run one message while COPY data is awaited."""
        if kind == codec.COPY_DATA:
            self.sink_full = not sink.feed(body)
        elif kind == codec.COPY_DONE:
            self._end_copy()
            sink.finish()
        elif kind in (codec.FLUSH, codec.SYNC):
            return
        elif kind == codec.COPY_FAIL:
            reason = codec.read_string(body)
            self._end_copy()
            sink.abort(SqlError("57014", f"COPY from stdin failed: {reason}"))
        else:
            self._end_copy()
            sink.abort(SqlError("08P01", f"unexpected message type 0x{kind:02X} during COPY from stdin"))

    def _end_copy(self) -> None:
        """Take no more data; the session owes the outcome."""
        self.sink = None
        self.pending = True

    def _sink_ready(self) -> None:
        self.sink_full = False
        self._on_ready()

    # -- the ends of transactions, and what is told beside answers

    def _sync(self) -> None:
        """Commit what the implicit transaction wrote, then tell that the next query may come."""
        self.pending = True
        try:
            outcome = self._session.sync(self._on_sync)
        except SqlError as error:
            outcome = FailureOutcome(error)
        if outcome is not None:
            self.pending = False
            self._sync_done(outcome)

    def _on_sync(self, outcome: Outcome) -> None:
        self._arrived(self._sync_done, outcome)

    def _sync_done(self, outcome: Outcome) -> None:
        self._tell_notices()
        if isinstance(outcome, FailureOutcome):
            self._output.retract()
            self._report(outcome.error)
        self._ready()

    def _ready(self) -> None:
        """Tell changed parameters and the status of the transaction."""
        output, session = self._output, self._session
        for name, value in session.take_parameter_changes():
            output.add(backend.parameter_status(name, value))
        status = session.status
        if status == b"I" and self._portals:
            self._drop_portals()
        output.add(backend.READY[status])
        output.confirm()
        output.flush()

    def _begin_stream(self, stream: AnswerStream, limit: int, over: Callable[[AnswerStream], None]) -> None:
        """Have the next rows of a stashed answer sent; the connection drives it by `stream_on`."""
        self.stream = stream
        self._stream_over = over
        self.pending = True
        stream.draw(limit, self._on_ready)

    def _drop_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            portal.close()

    def _drop_portals(self) -> None:
        for portal in self._portals.values():
            portal.close()
        self._portals.clear()

    def _tell_notices(self) -> None:
        for notice in self._session.take_notices():
            error = SqlError(notice.sqlstate, notice.message, detail=notice.detail, hint=notice.hint)
            self._output.add(backend.notice_response(error, notice.severity))

    def _report(self, error: SqlError) -> None:
        self._output.add(backend.error_response(error))
        self._output.flush()

    def _arrived(self, done: Callable[[_Owed], None], outcome: _Owed) -> None:
        """Take what the session owed, and go on."""
        if self._on_ready is _nothing:
            return
        self.pending = False
        try:
            done(outcome)
        except Exception as error:
            _logger.exception("an answer could not be given")
            self._on_broken(InternalError(f"unexpected {type(error).__name__}"))
        self._on_ready()


def _nothing() -> None:
    """Stand in for the connection of a session that has ended."""


def _ignore(_: object) -> None:
    """Stand in for it likewise."""
