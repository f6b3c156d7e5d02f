from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clients.server import SLOW, TIMEOUT, Server, table


class _Base(DeclarativeBase):
    pass


class _Item(_Base):
    __tablename__ = "items"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None]
    price: Mapped[float | None] = mapped_column(sa.Double)
    added: Mapped[date | None]


_ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, price double precision, added date)"


@pytest.fixture
def engine(server: Server) -> Iterator[sa.Engine]:
    engine = sa.create_engine(server.url)
    yield engine
    engine.dispose()


def test_core_writes_and_reads(server: Server, engine: sa.Engine) -> None:
    items = sa.Table("items", sa.MetaData(), sa.Column("id", sa.Integer), sa.Column("name", sa.Text))
    with table(server, "items", _ITEMS):
        with engine.begin() as connection:
            connection.execute(items.insert(), [{"id": n, "name": f"name {n}"} for n in range(10)])
            connection.execute(items.update().where(items.c.id == 3).values(name="three"))
            connection.execute(items.delete().where(items.c.id.in_([4, 5])))
        with engine.connect() as connection:
            query = sa.select(items.c.id, items.c.name).where(items.c.id.between(2, 6)).order_by(items.c.id)
            assert [tuple(row) for row in connection.execute(query)] == [
                (2, "name 2"),
                (3, "three"),
                (6, "name 6"),
            ]


def test_a_transaction_that_raises_is_rolled_back(server: Server, engine: sa.Engine) -> None:
    with table(server, "items", _ITEMS):
        with pytest.raises(sa.exc.DataError, match="division by zero"), engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO items (id) VALUES (1)"))
            connection.execute(sa.text("SELECT 1 / :n"), {"n": 0})
        with engine.connect() as connection:
            assert connection.execute(sa.text("SELECT id FROM items")).all() == []


def test_the_orm_keeps_objects(server: Server, engine: sa.Engine) -> None:
    with table(server, "items", _ITEMS):
        with Session(engine) as session:
            session.add_all(
                [
                    _Item(id=1, name="one", price=0.5, added=date(2024, 2, 29)),
                    _Item(id=2, name=None, price=None, added=None),
                ]
            )
            session.commit()
        with Session(engine) as session:
            one = session.get(_Item, 1)
            assert one is not None
            assert (one.name, one.price, one.added) == ("one", 0.5, date(2024, 2, 29))
            one.name = "uno"
            two = session.scalars(sa.select(_Item).where(_Item.name.is_(None))).one()
            session.delete(two)
            session.commit()
        with Session(engine) as session:
            names = session.scalars(sa.select(_Item.name).order_by(_Item.id)).all()
            assert names == ["uno"]


def test_a_duplicate_key_is_an_integrity_error(server: Server, engine: sa.Engine) -> None:
    with table(server, "items", _ITEMS, "INSERT INTO items (id) VALUES (1)"), Session(engine) as session:
        session.add(_Item(id=1, name="again", price=None, added=None))
        with pytest.raises(sa.exc.IntegrityError):
            session.commit()


def test_a_long_statement_is_cancelled(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        timer = threading.Timer(0.2, driver.cancel_safe)
        timer.start()
        with pytest.raises(sa.exc.OperationalError, match="canceling statement due to user request"):
            connection.execute(sa.text(SLOW))
        timer.join(TIMEOUT)
        connection.rollback()
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1
