"""The catalog: versions that share what did not change, and cross to other processes so."""

from __future__ import annotations

import pickle
import random
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from layby.compute.arrangement import ArrangementDesc
from layby.expr.scalar import ColumnRef, IsNull, Literal
from layby.memory.channel import Channel
from layby.sql.catalog import Catalog, IndexKey, Table, make_index
from layby.sql.system import SYSTEM_TABLES
from layby.types.column import Column
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import BIGINT, TEXT

KEY = (IndexKey(ColumnRef(0, BIGINT), ASCENDING),)


def table(id_: int, name: str, *index_names: str, schema: str = "public") -> Table:
    plain = Table(id_, schema, name, RelationDesc((ColumnDesc("a", BIGINT),)), (None,))
    indexes = tuple(make_index(1_000 * id_ + at, n, plain, KEY) for at, n in enumerate(index_names))
    return Table(id_, schema, name, plain.desc, plain.defaults, indexes)


@pytest.fixture
def channel() -> Iterator[tuple[Channel, Channel]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pair = Channel(left), Channel(right)
    yield pair
    for end in pair:
        end.close()


def test_tables_are_found_by_name_and_id_and_indexes_by_name() -> None:
    t = table(7, "t", "t_pkey", "t_idx")
    catalog = Catalog(1, (t, table(8, "u")))
    assert catalog.table("t") is t
    assert catalog.table("t", "public") is t
    assert catalog.table("t", "pg_catalog") is None
    assert catalog.table_by_id(7) is t
    assert catalog.table_by_id(9) is None
    assert (catalog.has_table(8), catalog.has_table(9)) == (True, False)
    assert catalog.index("t_idx") == (t, t.indexes[1])
    assert catalog.index("t_idx", "public") == (t, t.indexes[1])
    assert catalog.index("t_idx", "pg_catalog") is None
    assert catalog.index("t") is None


def test_the_system_schema_comes_before_the_public_one() -> None:
    ours, theirs = table(1, "t"), table(2, "t", schema="pg_catalog")
    catalog = Catalog(1, (ours, theirs))
    assert catalog.table("t") is theirs
    assert catalog.table("t", "public") is ours


def test_a_change_leaves_the_version_before_it_as_it_is() -> None:
    t, u = table(1, "t", "t_pkey"), table(2, "u")
    first = Catalog(1, (t,))
    second = first.changed(2, put=(u,), remove=(t,))
    assert (first.version, first.tables) == (1, {("public", "t"): t})
    assert (second.version, second.tables) == (2, {("public", "u"): u})
    assert (first.index("t_pkey"), second.index("t_pkey")) == ((t, t.indexes[0]), None)
    assert (first.table_by_id(1), second.table_by_id(1)) == (t, None)


def test_any_history_of_changes_comes_to_what_a_plain_dictionary_does() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    plain: dict[str, Table] = {}
    catalog = Catalog(0)
    for step in range(1, 600):
        name = f"t{rng.randrange(40)}"
        if name in plain and rng.random() < 0.4:
            catalog = catalog.changed(step, remove=(plain.pop(name),))
        else:
            indexes = [f"{name}_{rng.randrange(5)}_{at}" for at in range(rng.randrange(3))]
            id_ = plain[name].id if name in plain and rng.random() < 0.7 else step
            plain[name] = table(id_, name, *indexes)
            catalog = catalog.changed(step, put=(plain[name],))
    assert catalog.tables == {("public", name): t for name, t in plain.items()}
    assert {i for i in range(700) if catalog.has_table(i)} == {t.id for t in plain.values()}
    assert all(catalog.table_by_id(t.id) is t for t in plain.values())
    every = {f"t{t}_{n}_{at}" for t in range(40) for n in range(5) for at in range(3)}
    found = {name: catalog.index(name) for name in every if catalog.index(name) is not None}
    assert found == {i.name: (t, i) for t in plain.values() for i in t.indexes}


def test_what_did_not_change_crosses_once(channel: tuple[Channel, Channel]) -> None:
    left, right = channel
    first = Catalog(1, [table(n, f"t{n}", f"t{n}_pkey") for n in range(1_000)])
    left.send(first)
    got = right.receive()
    assert (got.version, got.tables) == (1, first.tables)
    assert got.index("t7_pkey") == first.index("t7_pkey")
    second = first.changed(2, put=(table(1_000, "u"),))
    left.send([second, second])
    then, again = right.receive()
    assert again is then
    assert (then.version, then.tables) == (2, second.tables)
    assert all(then.table(f"t{n}") is got.table(f"t{n}") for n in range(1_000))
    pairs = zip(then._buckets, got._buckets, strict=True)
    assert sum(a is not b for a, b in pairs) == 2  # that of the name, and that of the id


def test_a_system_relation_crosses_without_what_makes_its_rows(channel: tuple[Channel, Channel]) -> None:
    def rows() -> tuple[Column, ...]:
        return ()

    left, right = channel
    left.send(Catalog(1, (*SYSTEM_TABLES, Table(-9, "pg_catalog", "here", RelationDesc(()), (), (), rows))))
    found = right.receive().table("here")
    with pytest.raises(AssertionError, match="read on the serving loop"):
        found.rows()


def test_descriptions_are_the_same_where_they_arrive() -> None:
    desc = RelationDesc((ColumnDesc("a", BIGINT, nullable=False), ColumnDesc("b", TEXT, max_length=7)))
    plain = Table(1, "public", "t", desc, (None, Literal("x", TEXT)))
    keys = (IndexKey(IsNull(ColumnRef(1, TEXT)), ASCENDING), IndexKey(ColumnRef(1, TEXT), DESCENDING))
    index = make_index(2, "i", plain, keys, unique=True)
    assert index.stored == (IsNull(ColumnRef(1, TEXT)), ColumnRef(1, TEXT), ColumnRef(0, BIGINT))
    there = pickle.loads(pickle.dumps(replace(plain, indexes=(index,))))
    assert there == replace(plain, indexes=(index,))
    arrangement = ArrangementDesc(2, 1, "i", index.stored, index.layout)
    assert pickle.loads(pickle.dumps(arrangement)) == arrangement
    assert pickle.loads(pickle.dumps(RelationDesc(()))) == RelationDesc(())
