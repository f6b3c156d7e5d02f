"""What sessions do with tables that all of them use: invariants that hold at every moment for everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.stress.client import CANCELLED, SLOW, Client, Finding
from tests.stress.model import Answer

ACCOUNTS = 40
BALANCE = 1_000
_CONFLICTS = ("40001", "40P01")

SETUP = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)",
    f"INSERT INTO accounts SELECT g, {BALANCE} FROM generate_series(0, {ACCOUNTS - 1}) g",
    "CREATE TABLE lefts (batch int, n int, pad text)",
    "CREATE TABLE rights (batch int, n int)",
    "CREATE INDEX lefts_batch ON lefts (batch)",
)


def rows_of_batch(batch: int) -> int:
    """Return how many rows a batch has in each of its two tables."""
    return 5_000 if batch % 29 == 0 else 1 + batch % 7


def check_accounts(answer: Answer, asked: str) -> None:
    """Raise Finding where money or accounts came or went."""
    if sorted(row[0] for row in answer) != list(range(ACCOUNTS)):
        raise Finding(f"{asked}: accounts {sorted(answer)[:60]}")
    total = sum(row[1] for row in answer)
    if total != ACCOUNTS * BALANCE:
        raise Finding(f"{asked}: the balances sum up to {total}")


def check_batches(answer: Answer, asked: str) -> set[int]:
    """Return the batches of an answer; raises Finding where one is not whole."""
    found: dict[int, list[int]] = {}
    for batch, n in answer:
        found.setdefault(batch, []).append(n)
    for batch, numbers in found.items():
        if sorted(numbers) != list(range(rows_of_batch(batch))):
            raise Finding(f"{asked}: batch {batch} has {len(numbers)} rows of {rows_of_batch(batch)}")
    return set(found)


def check_public(answer: Answer, asked: str) -> int | None:
    """Return which making of a table an answer holds, None for no rows; raises Finding where it is not one
    as a whole."""
    found = Counter(answer)
    made = answer[0][1] if answer else None
    if found and found != Counter((a, made) for a in range(1, 3001)):
        raise Finding(f"{asked}: {found.total()} rows of 3000")
    return made


class Sharer:
    """Transfers between accounts, writes whole batches into two tables, and looks at both."""

    def __init__(self, client: Client, number: int, sessions: int) -> None:
        self._client = client
        self._random = client.random
        self._number = number
        self._sessions = sessions
        self._made = 0
        self._batches: set[int] = set()
        self._unknown: set[int] = set()
        """Batches whose commit may have happened or not."""
        self._index: str | None = None
        self._public = False

    def step(self) -> None:
        """Do one random thing. Raises Refused, maybe within a block that has failed, and Finding."""
        actions: list[Callable[[], None]] = [
            *[self._transfer] * 5,
            *[self._audit] * 4,
            *[self._add_batch] * 4,
            *[self._remove_batch] * 2,
            *[self._look_at_batches] * 3,
            *[self._look_at_a_batch] * 4,
            self._change_index,
            self._publish,
            *[self._look_at_others] * 2,
            *[self._look_again] * 2,
            self._index_for_a_while,
            self._slow,
            self._hang_up,
        ]
        self._random.choice(actions)()

    def _transfer(self) -> None:
        client, random = self._client, self._random
        giver, taker = random.sample(range(ACCOUNTS), 2)
        amount = random.randrange(1, 100)
        client.run("BEGIN")
        if random.random() < 0.3:
            asked = "SELECT id, balance FROM accounts"
            check_accounts(client.run(asked, *_CONFLICTS), asked)
        for id_, change in ((giver, -amount), (taker, amount)):
            client.run(
                f"UPDATE accounts SET balance = balance + {change} WHERE id = {id_}",
                *_CONFLICTS,
                disturb=random.random() < 0.05,
            )
        if random.random() < 0.2:
            asked = "SELECT id, balance FROM accounts ORDER BY balance"
            check_accounts(client.run(asked, *_CONFLICTS), asked)
        client.run(random.choice(("COMMIT", "COMMIT", "ROLLBACK")), *_CONFLICTS)

    def _audit(self) -> None:
        client, random = self._client, self._random
        asked = random.choice(
            (
                "SELECT id, balance FROM accounts",
                "SELECT id, balance FROM accounts ORDER BY id",
                "SELECT id, balance FROM accounts WHERE id >= 0 AND balance > -1000000",
                "SELECT id, balance FROM accounts ORDER BY id DESC LIMIT 1000",
            )
        )
        if random.random() < 0.6:
            check_accounts(client.run(asked, CANCELLED, disturb=random.random() < 0.1), asked)
            return
        client.run("BEGIN")
        first = client.run(asked, CANCELLED)
        check_accounts(first, asked)
        for _ in range(random.randrange(1, 4)):
            again = client.run(asked, CANCELLED)
            if sorted(again) != sorted(first):
                raise Finding(f"{asked}: a block read {sorted(first)} first and {sorted(again)} later")
        client.run("COMMIT")

    def _add_batch(self) -> None:
        self._made += 1
        batch = self._made * self._sessions + self._number
        if self._random.random() < 0.1:
            self._unknown.add(batch)
            self._client.hang_up("; ".join(("BEGIN", *_batch(batch), "COMMIT")))
            return
        self._client.run("BEGIN")
        for statement in _batch(batch):
            self._client.run(statement)
        if self._random.random() < 0.15:
            self._client.run("ROLLBACK")
            return
        # It writes two tables, which somebody who deletes from both may hold in the other order.
        self._client.run("COMMIT", *_CONFLICTS, disturb=self._random.random() < 0.1)
        self._batches.add(batch)

    def _remove_batch(self) -> None:
        if len(self._batches) < 3:
            return
        batch = self._random.choice(sorted(self._batches))
        self._client.run("BEGIN")
        tables = ["lefts", "rights"]
        self._random.shuffle(tables)
        for table in tables:
            self._client.run(f"DELETE FROM {table} WHERE batch = {batch}", *_CONFLICTS, CANCELLED)
        self._client.run("COMMIT")
        self._batches.remove(batch)

    def _look_at_batches(self) -> None:
        self._client.run("BEGIN")
        asked = "SELECT batch, n FROM lefts"
        left = check_batches(self._client.run(asked, CANCELLED), asked)
        asked = "SELECT batch, n FROM rights"
        right = check_batches(self._client.run(asked, CANCELLED), asked)
        self._client.run("COMMIT")
        if left != right:
            raise Finding(f"a block saw batches {sorted(left)} and {sorted(right)}")
        mine = {batch for batch in left if batch % self._sessions == self._number} - self._unknown
        if mine != self._batches:
            raise Finding(f"own batches are {sorted(mine)}, not {sorted(self._batches)}")

    def _look_at_a_batch(self) -> None:
        if not self._batches:
            return
        batch = self._random.choice(sorted(self._batches))
        asked = f"SELECT batch, n FROM lefts WHERE batch = {batch}"
        found = self._client.run(asked, CANCELLED, disturb=self._random.random() < 0.1)
        if check_batches(found, asked) != {batch}:
            raise Finding(f"{asked}: gone")

    def _change_index(self) -> None:
        if self._index is None:
            self._made += 1
            name = f"shared{self._number}_{self._made}"
            what = self._random.choice(("lefts (batch, n)", "rights (batch)", "accounts (balance)"))
            self._client.run(f"CREATE INDEX {name} ON {what}", disturb=self._random.random() < 0.3)
            self._index = name
        else:
            self._client.run(f"DROP INDEX {self._index}", *_CONFLICTS)
            self._index = None

    def _publish(self) -> None:
        """Make or drop a table that others read at the same time."""
        name = f"public{self._number}"
        if self._public:
            self._client.run(f"DROP TABLE {name}")
        else:
            self._client.run(f"CREATE TABLE {name} (a int, made int)")
        self._public = not self._public
        if self._public:
            self._made += 1
            self._client.run(f"INSERT INTO {name} SELECT g, {self._made} FROM generate_series(1, 3000) g")

    def _look_at_others(self) -> None:
        asked = self._of_others()
        check_public(self._client.run(asked, "42P01", CANCELLED), asked)

    def _look_again(self) -> None:
        """Send three reads of one table at once: what is gone for one of them is not there for the next."""
        asked = self._of_others()
        first, second, third = (
            outcome if isinstance(outcome, str) else check_public(outcome, asked)
            for outcome in self._client.run_together([asked] * 3, "42P01", CANCELLED)
        )
        if isinstance(first, int) and second in ("42P01", CANCELLED) and third == first:
            raise Finding(f"{asked}: {second}, then the rows of before")

    def _of_others(self) -> str:
        return f"SELECT a, made FROM public{self._random.randrange(self._sessions)} WHERE a >= 0"

    def _index_for_a_while(self) -> None:
        """Take an index back right behind a read that may be over an index which somebody drops."""
        self._made += 1
        self._client.run("BEGIN")
        self._client.run(f"CREATE INDEX shared{self._number}_{self._made} ON rights (n)")
        asked = "SELECT batch, n FROM rights WHERE batch >= 0"
        found, ended = self._client.run_together((asked, "ROLLBACK"), CANCELLED)
        if not isinstance(found, str):
            check_batches(found, asked)
        if ended != []:
            raise Finding(f"ROLLBACK: {ended}")

    def _slow(self) -> None:
        if self._random.random() < 0.5:
            with self._client.timeout(self._random.choice((1, 20, 100))):
                found = self._client.run(SLOW, CANCELLED)
        else:
            found = self._client.run(SLOW, disturb=True)
        if found:
            raise Finding(f"{SLOW}: {len(found)} rows")

    def _hang_up(self) -> None:
        self._client.hang_up(
            self._random.choice((SLOW, "SELECT * FROM lefts", "SELECT pad FROM lefts ORDER BY pad"))
        )


def _batch(batch: int) -> tuple[str, str]:
    last = rows_of_batch(batch) - 1
    return (
        f"INSERT INTO lefts SELECT {batch}, g, 'pad' || g::text FROM generate_series(0, {last}) g",
        f"INSERT INTO rights SELECT {batch}, g FROM generate_series(0, {last}) g",
    )
