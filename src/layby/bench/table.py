"""The tables that the scenarios read."""

from __future__ import annotations

from layby.bench.server import PostgresServer, Server


def load_table(server: Server, table: str, rows: int) -> None:
    """Make `table (k int, v int)`: `k` from 1 to `rows`, indexed, `v` from 0 to 999. Raises ServerError."""
    make_table(server, table, "k int, v int", f"SELECT g, g % 1000 FROM generate_series(1, {rows}) AS g")


def make_table(server: Server, table: str, columns: str, *queries: str) -> None:
    """Make a table, insert what the queries give, and index its first column. Raises ServerError."""
    key = columns.split()[0]
    with server.connect() as connection:
        connection.query(f"CREATE TABLE {table} ({columns})")
        for query in queries:
            connection.query(f"INSERT INTO {table} {query}")
        connection.query(f"CREATE INDEX {table}_{key} ON {table} ({key})")
        if isinstance(server, PostgresServer):
            connection.query(f"VACUUM ANALYZE {table}")
