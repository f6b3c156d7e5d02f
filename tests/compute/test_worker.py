from __future__ import annotations

import logging

import pytest

from layby.peek.answer import PeekResponse
from tests.peek.harness import INDEX, Harness, bundle_of, pairs, rows_of


def test_an_answer_that_raises_costs_nobody_else_his(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(bundle_of(pairs((1, 10), (2, 20))), pool_size=2, inline_budget=1)
    raising = harness.pending()

    def respond(_response: PeekResponse) -> None:
        raise ValueError("broken")

    raising.respond = respond
    assert harness.worker.peek(raising) is None
    other, answer = harness.peek()
    assert answer is None
    with caplog.at_level(logging.ERROR, "layby.worker"):
        harness.settle()
    assert rows_of(harness.answers[other]) == [(1, 10), (2, 20)]
    assert "answering a peek raised" in caplog.text


def test_a_peek_of_what_is_gone_says_so() -> None:
    harness = Harness(bundle_of(pairs((1, 10))))
    harness.state.drop(INDEX)
    _, response = harness.peek()
    assert response is not None
    assert 'canceling statement because "test" was dropped' in str(getattr(response, "error", None))
