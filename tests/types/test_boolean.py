from __future__ import annotations

import pytest

from layby.types.formats import parse, render
from layby.types.scalar import BOOLEAN
from tests.types.helpers import refusal


@pytest.mark.parametrize("text", ["t", "tr", "tru", "true", "TRUE", " True\n", "y", "ye", "yes", "on", "1"])
def test_every_spelling_of_true_is_read(text: str) -> None:
    assert parse(BOOLEAN, text) is True


@pytest.mark.parametrize("text", ["f", "fa", "fals", "false", "F", "\tno ", "n", "of", "off", "OFF", "0"])
def test_every_spelling_of_false_is_read(text: str) -> None:
    assert parse(BOOLEAN, text) is False


@pytest.mark.parametrize("text", ["", " ", "o", "truer", "10", "01", "yess", "2", "ｔ"])
def test_other_texts_are_refused(text: str) -> None:
    assert refusal(BOOLEAN, text) == ("22P02", f'invalid input syntax for type boolean: "{text}"')


def test_a_boolean_is_written_as_one_letter() -> None:
    assert (render(BOOLEAN, True), render(BOOLEAN, False)) == ("t", "f")
