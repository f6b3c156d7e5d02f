"""The table that the scenarios read."""

from __future__ import annotations

from layby.bench.server import PostgresServer, Server


def load_table(server: Server, table: str, rows: int) -> None:
    """Make `table (k int, v int)`: `k` from 1 to `rows`, indexed, `v` from 0 to 999. Raises ServerError."""
    with server.connect() as connection:
        connection.query(f"CREATE TABLE {table} (k int, v int)")
        connection.query(f"INSERT INTO {table} SELECT g, g % 1000 FROM generate_series(1, {rows}) AS g")
        connection.query(f"CREATE INDEX {table}_k ON {table} (k)")
        if isinstance(server, PostgresServer):
            connection.query(f"VACUUM ANALYZE {table}")
