"""Parsing: PostgreSQL's own grammar (libpg_query), its trees as protobuf messages.

A parse costs 26 µs. The grammar's C code recurses over the tree without a guard of its own, so a text that
could nest deep enough to overrun the C stack is refused before it gets there.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any, Final

import postgast

from layby.errors import SqlError

Node = Any
"""A protobuf message of the parse tree; postgast ships no usable types for them."""

_DEPTH_LIMIT: Final = 20_000
_SHORT: Final = 16_000
"""Texts up to this length cannot nest past the limit: a level takes two characters at least."""

_TOKEN: Final = re.compile(
    r"""
    (?P<skip> \s+ | --[^\n]* | /\*.*?\*/ )
  | (?P<open> [(\[] ) | (?P<close> [)\]] )
  | (?P<cut> [,;] | (?:and|or)\b )
  | (?P<atom> '[^']*' | "[^"]*" | [\w$.]+ | . )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """One statement of a script.

    `text` is its slice of the script, `node` the statement's message, `kind` its name in the grammar
    (`select_stmt`, ...). `location`, where it begins, and the locations in the tree count bytes of `source`,
    the whole script.
    """

    text: str
    kind: str
    node: Node
    source: str
    location: int

    @property
    def offset(self) -> int:
        """The characters of the script before the statement."""
        return _character(self.source, self.location) - 1

    def position(self, location: int) -> int | None:
        """Turn a byte location of the tree into a character position from 1; None where it is unknown."""
        return None if location < 0 else _character(self.source, location)


def parse_script(sql: str) -> list[ParsedStatement]:
    """Parse a script into its statements; none where it holds only white space, comments and semicolons.

    Raises SqlError 42601 for what the grammar refuses, 54001 where it nests too deep, and 22021 for
    characters that no text may hold.
    """
    if "\0" in sql:
        raise SqlError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        raw = sql.encode()
    except UnicodeEncodeError:
        raise SqlError("22021", 'invalid byte sequence for encoding "UTF8"') from None
    if len(sql) > _SHORT and _depth(sql) > _DEPTH_LIMIT:
        raise too_deep()
    try:
        tree = postgast.parse(sql)
    except postgast.PgQueryError as error:
        raise _syntax_error(error) from None
    statements = []
    for entry in tree.stmts:
        start = entry.stmt_location
        stop = start + entry.stmt_len if entry.stmt_len else len(raw)
        kind = entry.stmt.WhichOneof("node")
        text = raw[start:stop].decode()
        begun = text.lstrip()
        start += len(text[: len(text) - len(begun)].encode())
        statements.append(ParsedStatement(begun.rstrip(), kind, getattr(entry.stmt, kind), sql, start))
    return statements


def too_deep() -> SqlError:
    """Return the error for a statement that nests too deep to be handled."""
    return SqlError("54001", "stack depth limit exceeded", hint="Write the statement with less nesting.")


def _character(source: str, location: int) -> int:
    if source.isascii():
        return location + 1
    return len(source.encode()[:location].decode(errors="ignore")) + 1


def _syntax_error(error: postgast.PgQueryError) -> SqlError:
    message = error.message
    if message.startswith("memory exhausted"):
        return too_deep()
    code = "0A000" if re.search(r"not (yet )?(supported|implemented)", message) else "42601"
    # Unlike the locations in a tree, the grammar's own errors count characters.
    position = error.cursorpos if error.cursorpos > 0 else None
    return SqlError(code, message, position=position)


def _depth(sql: str) -> int:
    """Bound the depth of the tree from above: every token may nest in those before it, up to a comma.

    AND and OR chains are flat in the tree, like lists. Costs about 0.3 µs a token, paid by long texts only.
    """
    stack = [[0, 0, 0]]
    deepest = 0
    for token in _TOKEN.finditer(sql):
        kind = token.lastgroup
        top = stack[-1]
        if kind == "atom":
            top[0] += 1
        elif kind == "open":
            top[0] += 1
            stack.append([0, 0, 0])
        elif kind in ("cut", "close"):
            top[2] = max(top[2], top[0] + top[1])
            deepest = max(deepest, top[2])
            top[0] = top[1] = 0
            if kind == "close" and len(stack) > 1:
                stack.pop()
                stack[-1][1] = max(stack[-1][1], top[2])
    return max(deepest, sum(level[0] for level in stack), stack[-1][0] + stack[-1][1])


def _lift_protobuf_depth() -> None:
    """Let the protobuf runtime read trees deeper than 100 messages, which is a sum of 50 terms.

    The pure Python runtime has no such limit and no such switch.
    """
    try:
        runtime = importlib.import_module("google._upb._message")
    except ImportError:
        return
    runtime.SetAllowOversizeProtos(True)


_lift_protobuf_depth()
