"""The replica: commands, their answers, and what is left of it over a reconnection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from layby.compute.controller import Controller
from layby.compute.protocol import (
    AllowCompaction,
    CancelPeek,
    CreateInstance,
    InitializationComplete,
    UpdateConfiguration,
)
from layby.errors import SqlError
from layby.peek.pending import PeekState
from layby.peek.walk import Walk
from tests.compute.replicas import START, Site, index, peek, table
from tests.peek.harness import error_of, rows_of, spec

GRANULARITY = "compute_index_peek_yield_granularity"
ROWS = [(k, k) for k in range(40)]


class Pair:
    """A controller and the replica that it commands."""

    def __init__(self) -> None:
        self.site = Site()
        self.controller = Controller(self.site.told.append)
        self.link = self.controller.connect(self.site.replica)
        self.controller.send(CreateInstance("a"))
        self.controller.send(InitializationComplete())

    def with_table(self) -> Pair:
        """Make table 1 (shard 1) of forty rows, and its index 2."""
        self.controller.send(table(1, 1))
        self.site.settle()
        self.site.write(1, *ROWS)
        self.controller.send(index(2, 1))
        self.site.settle()
        return self

    def reconnect(self) -> None:
        self.link = self.controller.connect(self.site.replica)


# Commands


def test_a_dataflow_is_told_ready_once_it_can_be_read() -> None:
    pair = Pair()
    pair.controller.send(table(1, 1))
    pair.controller.send(index(2, 1))
    pair.site.turn()
    assert pair.site.statuses() == []
    pair.site.settle()
    assert pair.site.statuses() == [(1, None), (2, None)]


def test_commands_wait_for_the_activation_and_are_all_taken_before_its_sweep() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START + 5))
    pair.site.turn()
    assert pair.site.worker.waiting == 1
    pair.site.state.publish({}, START + 10)
    pair.controller.send(CancelPeek(1))
    assert pair.site.worker.waiting == 1
    pair.site.turn()
    # Had the sweep come first, the peek, which is ready, would have had its slice.
    assert pair.site.metrics.total_seconds.count == 0
    assert (pair.site.worker.waiting, pair.site.replica.peeks) == (0, {})
    pair.site.settle()
    assert pair.site.answers() == {}


def test_a_peek_is_answered_by_its_number() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(7, 2, START))
    pair.site.settle()
    assert rows_of(pair.site.answers()[7].response) == ROWS
    assert pair.site.replica.peeks == {}
    assert pair.controller.history.peeks == {}


def test_a_peek_of_a_dataflow_that_is_being_built_waits_for_it() -> None:
    pair = Pair().with_table()
    pair.controller.send(index(3, 1, 1))
    pair.controller.send(peek(1, 3, START))
    pair.site.turn()
    assert pair.site.answers() == {}
    pair.site.settle()
    assert rows_of(pair.site.answers()[1].response) == ROWS


def test_a_peek_of_what_does_not_exist_is_answered_with_an_error() -> None:
    pair = Pair()
    pair.controller.send(peek(1, 9))
    pair.site.settle()
    assert error_of(pair.site.answers()[1].response)[0] == "57014"


def test_dropping_a_dataflow_answers_its_peeks_in_every_state() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START))
    pair.controller.send(peek(2, 2, START + 5))
    pair.controller.send(index(3, 1))
    pair.controller.send(peek(3, 3, START))
    pair.site.turn()
    states = [pending.state for _, pending in pair.site.replica.peeks.values()]
    assert states == [PeekState.WALKING, PeekState.WAITING, PeekState.NEW]
    pair.controller.send(AllowCompaction(3, None))
    pair.controller.send(AllowCompaction(2, None))
    pair.site.settle()
    answers = pair.site.answers()
    assert {n: error_of(a.response) for n, a in answers.items()} == {
        1: ("57014", 'canceling statement because "i2" was dropped'),
        2: ("57014", 'canceling statement because "i2" was dropped'),
        3: ("57014", 'canceling statement because "i3" was dropped'),
    }
    assert set(pair.site.runtime.maintenance._by_id) == {1}
    assert pair.site.metrics.permits_in_use == 0


def test_a_dataflow_that_cannot_be_built_is_told_and_its_peeks_are_answered() -> None:
    pair = Pair().with_table()
    refused = replace(index(3, 1), verify=lambda _: SqlError("23505", "no"))
    pair.controller.send(refused)
    pair.controller.send(peek(1, 3, START))
    pair.site.settle()
    assert pair.site.statuses()[-1] == (3, "23505")
    assert error_of(pair.site.answers()[1].response)[0] == "23505"
    assert 3 not in pair.site.replica.dataflows


def test_a_configuration_is_in_force_from_its_activation_on() -> None:
    pair = Pair()
    pair.controller.send(UpdateConfiguration(((GRANULARITY, "77"), ("from_the_future", "1"))))
    pair.site.turn()
    assert pair.site.parameters.peek.yield_granularity == 77


def test_a_peek_pins_what_may_be_compacted_at_its_time_until_it_is_answered() -> None:
    pair = Pair().with_table()
    for collection in (1, 2):
        pair.controller.send(AllowCompaction(collection, START))
    pair.controller.send(peek(1, 2, START))
    pair.site.turn()
    for collection in (1, 2):
        pair.controller.send(AllowCompaction(collection, START + 50))
    pair.site.turn()
    assert pair.site.replica.compaction_frontier() == START
    pair.site.settle()
    assert len(rows_of(pair.site.answers()[1].response)) == 40
    assert pair.site.replica.compaction_frontier() == START + 50


def test_what_was_allowed_once_is_not_taken_back() -> None:
    pair = Pair().with_table()
    for frontier in (START + 50, START + 20):
        for collection in (1, 2):
            pair.controller.send(AllowCompaction(collection, frontier))
    pair.site.settle()
    assert pair.site.replica.compaction_frontier() == START + 50


def test_nothing_is_compacted_before_the_controller_has_allowed_it() -> None:
    pair = Pair().with_table()
    pair.controller.send(AllowCompaction(1, START))
    pair.site.settle()
    assert pair.site.replica.compaction_frontier() < 0
    pair.controller.send(AllowCompaction(2, START))
    pair.site.settle()
    assert pair.site.replica.compaction_frontier() == START


def test_frontiers_are_told_when_they_move_and_not_again() -> None:
    pair = Pair().with_table()
    for collection in (1, 2):
        pair.controller.send(AllowCompaction(collection, START))
    pair.site.settle()
    assert pair.site.frontiers()[-1] == (START + 1, START)
    told = len(pair.site.frontiers())
    pair.site.worker.request_activation()
    pair.site.settle()
    assert len(pair.site.frontiers()) == told
    pair.site.write(1, (50, 50))
    pair.site.settle()
    assert pair.site.frontiers()[told:] == [(START + 2, START)]


# Reconnection


def test_a_dataflow_that_is_still_wanted_is_kept_as_it_is() -> None:
    pair = Pair().with_table()
    before = dict(pair.site.runtime.maintenance._by_id)
    snapshot = pair.site.state.snapshot(2)
    pair.site.told.clear()
    pair.reconnect()
    pair.site.settle()
    after = pair.site.runtime.maintenance._by_id
    assert set(after) == {1, 2}
    assert all(after[id_] is arrangement for id_, arrangement in before.items())
    assert pair.site.state.snapshot(2) is snapshot
    assert pair.site.runtime.created == [1, 2]
    assert pair.site.statuses() == [(1, None), (2, None)]


def test_a_dataflow_that_was_dropped_meanwhile_is_dropped() -> None:
    pair = Pair().with_table()
    pair.link.close()
    pair.controller.send(AllowCompaction(2, None))
    assert set(pair.site.replica.dataflows) == {1, 2}
    pair.reconnect()
    pair.site.settle()
    assert set(pair.site.runtime.maintenance._by_id) == {1}


def test_a_dataflow_that_is_another_under_its_number_is_made_again() -> None:
    pair = Pair().with_table()
    other = Controller(pair.site.told.append)
    for command in (CreateInstance("a"), table(1, 1), index(2, 1, 1), InitializationComplete()):
        other.send(command)
    before = dict(pair.site.runtime.maintenance._by_id)
    other.connect(pair.site.replica)
    pair.site.settle()
    after = pair.site.runtime.maintenance._by_id
    assert after[1] is before[1]
    assert after[2] is not before[2]
    assert after[2].desc == index(2, 1, 1).desc


def test_with_its_shard_a_table_loses_its_indexes() -> None:
    pair = Pair().with_table()
    other = Controller(pair.site.told.append)
    for command in (CreateInstance("a"), table(5, 1), index(2, 1), InitializationComplete()):
        other.send(command)
    other.connect(pair.site.replica)
    pair.site.settle()
    assert list(pair.site.runtime.maintenance._by_id) == [5, 2]
    assert pair.site.runtime.created == [1, 2, 5, 2]


def test_another_instance_keeps_nothing() -> None:
    pair = Pair().with_table()
    pair.controller.send(UpdateConfiguration(((GRANULARITY, "77"),)))
    pair.controller.send(peek(1, 2, START + 50))
    pair.site.settle()
    other = Controller(pair.site.told.append)
    other.send(CreateInstance("b"))
    other.send(InitializationComplete())
    other.connect(pair.site.replica)
    pair.site.settle()
    assert pair.site.replica.dataflows == {}
    assert pair.site.runtime.maintenance._by_id == {}
    assert pair.site.worker.waiting == 0
    assert pair.site.parameters.peek.yield_granularity == 10


def test_what_may_be_compacted_is_what_the_new_history_says() -> None:
    pair = Pair().with_table()
    for collection in (1, 2):
        pair.controller.send(AllowCompaction(collection, START + 50))
    pair.site.settle()
    other = Controller(pair.site.told.append)
    for command in (CreateInstance("a"), table(1, 1), index(2, 1)):
        other.send(command)
    other.send(AllowCompaction(1, START + 9))
    other.send(AllowCompaction(2, START + 7))
    other.send(InitializationComplete())
    other.connect(pair.site.replica)
    pair.site.settle()
    assert pair.site.replica.compaction_frontier() == START + 7


def test_a_parameter_that_the_new_history_does_not_name_is_reset() -> None:
    pair = Pair()
    pair.controller.send(UpdateConfiguration(((GRANULARITY, "77"), ("max_result_size", "5MB"))))
    pair.site.settle()
    other = Controller(pair.site.told.append)
    for command in (CreateInstance("a"), UpdateConfiguration((("max_result_size", "6MB"),))):
        other.send(command)
    other.send(InitializationComplete())
    other.connect(pair.site.replica)
    pair.site.settle()
    assert pair.site.parameters.show(GRANULARITY) == "10"
    assert pair.site.parameters.show("max_result_size") == "6MB"


def test_a_walk_under_way_goes_on_and_answers_the_new_connection() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START))
    pair.site.turn()
    pair.site.pool.step()
    walk = pair.site.pool.walk()
    assert isinstance(walk, Walk)
    pair.reconnect()
    pair.site.turn()
    assert [w for w, _ in pair.site.pool.walks] == [walk]
    assert not walk.cancelled
    pair.site.settle()
    assert rows_of(pair.site.answers()[1].response) == ROWS
    assert walk.scan.positions == 40
    assert pair.site.metrics.walks_offloaded == 1


def test_a_peek_whose_answer_was_lost_is_walked_again() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START))
    pair.site.turn()
    pair.link.close()
    pair.site.settle()
    assert pair.site.answers() == {}
    pair.reconnect()
    pair.site.settle()
    assert rows_of(pair.site.answers()[1].response) == ROWS
    assert pair.site.metrics.walks_offloaded == 2


def test_a_peek_that_was_cancelled_meanwhile_ends_without_an_answer() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START))
    pair.site.turn()
    walk = pair.site.pool.walk()
    assert isinstance(walk, Walk)
    pair.link.close()
    pair.controller.send(CancelPeek(1))
    pair.reconnect()
    pair.site.turn()
    assert walk.cancelled
    pair.site.settle()
    assert pair.site.answers() == {}
    assert pair.site.metrics.permits_in_use == 0


def test_another_peek_of_the_same_number_does_not_get_the_old_ones_answer() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START))
    pair.site.turn()
    replica = pair.site.replica
    replica.connect(pair.site.told.append)
    replica.receive(CreateInstance("a"))
    pair.site.settle()  # the old one is answered before it is known what the new connection wants
    assert pair.site.answers() == {}
    for command in (table(1, 1), index(2, 1), peek(1, 1, START), InitializationComplete()):
        replica.receive(command)
    pair.site.settle()
    [answer] = pair.site.answers().values()
    assert sorted(rows_of(answer.response)) == ROWS
    assert pair.site.metrics.walks_offloaded == 2


def test_a_peek_of_a_dataflow_that_is_made_again_is_answered_once_from_the_new_one() -> None:
    pair = Pair().with_table()
    pair.controller.send(peek(1, 2, START))
    pair.controller.send(peek(2, 2, START + 5))
    pair.site.turn()
    replica, told = pair.site.replica, pair.site.told
    assert [p.state for _, p in replica.peeks.values()] == [PeekState.WALKING, PeekState.WAITING]
    replica.connect(told.append)
    wanted = (table(1, 1), index(2, 1, 1), peek(1, 2, START), peek(2, 2, START + 5))
    for command in (CreateInstance("a"), *wanted, InitializationComplete()):
        replica.receive(command)
    pair.site.settle()
    assert {n: rows_of(a.response) for n, a in pair.site.answers().items()} == {1: ROWS}
    assert list(replica.peeks) == [2]
    pair.site.state.publish({}, START + 10)
    pair.site.worker.request_activation()
    pair.site.settle()
    assert rows_of(pair.site.answers()[2].response) == ROWS
    assert replica.peeks == {}


def test_a_peek_of_a_dataflow_that_was_dropped_meanwhile_is_answered_once() -> None:
    pair = Pair()
    pair.controller.send(table(1, 1))
    pair.controller.send(peek(1, 1, START + 5))
    pair.site.turn()
    replica, told = pair.site.replica, pair.site.told
    assert [p.state for _, p in replica.peeks.values()] == [PeekState.NEW]
    replica.connect(told.append)
    for command in (CreateInstance("a"), peek(1, 1, START + 5), InitializationComplete()):
        replica.receive(command)
    pair.site.settle()
    pair.site.state.publish({}, START + 10)
    pair.site.worker.request_activation()
    pair.site.settle()
    assert error_of(pair.site.answers()[1].response)[0] == "57014"
    assert replica.peeks == {}


def test_a_connection_that_breaks_before_its_history_is_whole_changes_nothing() -> None:
    pair = Pair().with_table()
    other = Controller(pair.site.told.append)
    other.send(CreateInstance("b"))
    link = other.connect(pair.site.replica)
    pair.site.turn()
    link.close()
    pair.site.settle()
    assert set(pair.site.replica.dataflows) == {1, 2}
    pair.reconnect()
    pair.site.settle()
    assert pair.site.runtime.created == [1, 2]


# Random histories

_STEPS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2**16)), min_size=10, max_size=80)


@settings(max_examples=400, deadline=None)
@given(_STEPS)
@example([(0, 0), (6, 0), (11, 0), (3, 0)]).via("a peek not begun, whose dataflow is dropped unseen")
def test_after_any_history_and_any_reconnections_it_is_what_a_fresh_replica_becomes(
    steps: list[tuple[int, int]],
) -> None:
    pair = Pair()
    run(pair, steps)
    site, history = pair.site, pair.controller.history
    before = {
        id_: site.runtime.maintenance._by_id[id_]
        for id_, dataflow in site.replica.dataflows.items()
        if history.dataflows.get(id_) == dataflow.command and id_ in site.runtime.maintenance._by_id
    }
    pair.reconnect()
    fresh = Site(upper=site.state.upper)
    fresh.replica.connect(fresh.told.append)
    for command in history.commands():
        fresh.replica.receive(command)
    waiting = {n for n, p in history.peeks.items() if p.spec.timestamp >= site.state.upper}
    asked = set(history.peeks)
    answered = set(site.answers())
    site.settle()
    fresh.settle()
    assert state_of(site) == state_of(fresh)
    assert set(history.peeks) == set(site.replica.peeks)
    assert waiting - set(history.peeks) == missing(site, waiting)
    assert set(site.answers()) - answered == asked - set(history.peeks)
    assert set(fresh.answers()) == asked - set(fresh.replica.peeks)
    after = site.runtime.maintenance._by_id
    assert all(after[id_] is arrangement for id_, arrangement in before.items())
    assert set(after) == set(history.dataflows)
    assert (site.metrics.permits_in_use, site.metrics.pinned_bytes) == (0, 0)


def state_of(site: Site) -> object:
    """Return all that commands have made of a replica."""
    replica = site.replica
    return (
        replica.instance,
        {id_: (d.command, d.ready, d.allowed) for id_, d in replica.dataflows.items()},
        {number: command for number, (command, _) in replica.peeks.items()},
        site.parameters.peek,
        replica.compaction_frontier(),
        set(site.runtime.maintenance._by_id),
    )


def missing(site: Site, numbers: set[int]) -> set[int]:
    """Return the peeks that were answered for want of their dataflow."""
    answers = site.answers()
    return {n for n in numbers if n in answers and "dropped" in error_of(answers[n].response)[1]}


def run(pair: Pair, steps: list[tuple[int, int]]) -> None:
    """Let a controller, a replica and the link between them do what the numbers say."""
    shards: dict[int, int] = {}
    indexes: dict[int, list[int]] = {}
    next_id = next_peek = 1
    send, site = pair.controller.send, pair.site

    def pick(values: list[int], number: int) -> int | None:
        return values[number % len(values)] if values else None

    for kind, number in steps:
        tables = sorted(shards)
        chosen = pick(tables, number)
        every = sorted([*shards.values(), *(i for owned in indexes.values() for i in owned)])
        collection = pick(every, number // 7)
        match kind:
            case 0 if len(tables) < 3:
                made = next_id
                shards[made], indexes[made] = made + 1, []
                send(table(made + 1, made))
                next_id += 2
            case 1 if chosen is not None:
                indexes[chosen].append(next_id)
                send(index(next_id, chosen, number % 2))
                next_id += 1
            case 2 if chosen is not None:
                gone = pick(indexes[chosen], number)
                if gone is not None:
                    indexes[chosen].remove(gone)
                    send(AllowCompaction(gone, None))
            case 3 if chosen is not None and number % 3 == 0:
                for gone in (*indexes.pop(chosen), shards.pop(chosen)):
                    send(AllowCompaction(gone, None))
            case 4 if collection is not None:
                send(AllowCompaction(collection, site.state.upper - 1 - number % 3))
            case 5:
                send(UpdateConfiguration(((GRANULARITY, str(1 + number % 50)),)))
            case 6:
                later = number % 5 if number % 4 == 0 else -1
                send(peek(next_peek, collection or 999, site.state.upper + later))
                next_peek += 1
            case 7 if next_peek > 1:
                send(CancelPeek(1 + number % (next_peek - 1)))
            case 8:
                pair.link.close()
            case 9:
                pair.reconnect()
            case 10 if chosen is not None and site.state.snapshot(shards[chosen]) is not None:
                site.write(chosen, *((number + k, k) for k in range(number % 30)))
            case _:
                step: Callable[[], object] = (site.turn, site.runtime.step, _walked(site))[number % 3]
                step()


def _walked(site: Site) -> Callable[[], object]:
    return lambda: bool(site.pool.walks) and site.pool.step()


def test_the_specs_of_peeks_are_values() -> None:
    assert spec(5) == spec(5)
    assert peek(1, 2, 5) != peek(1, 2, 6)
