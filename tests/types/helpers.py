"""What the tests of formats share."""

from __future__ import annotations

import pytest

from layby.errors import SqlError
from layby.types.formats import parse, render
from layby.types.scalar import SqlType


def refusal(type_: SqlType, text: str) -> tuple[str, str]:
    """The SQLSTATE and message with which `parse` refuses a text."""
    with pytest.raises(SqlError) as caught:
        parse(type_, text)
    return caught.value.sqlstate, caught.value.message


def reread(type_: SqlType, text: str) -> str:
    """What a text looks like after input and output."""
    return render(type_, parse(type_, text))
