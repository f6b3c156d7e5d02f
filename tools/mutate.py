"""Mutants of a package: what the tests do not notice.

Takes out or flips one line at a time in a scratch copy of the repository and runs the tests of that package:
first those that execute the line, the quickest before the others, then all. A mutant that the tests let pass
*survives*: either the line does nothing, or no test holds what it does. Which tests execute a line is found
out in one run of all of them without a mutant, in the processes that they start too.

    python tools/mutate.py [--sample N] [--seed S] [--workers W] src/layby/peek/*.py [--tests tests/peek ...]

Prints each survivor with its place, and exits 1 where there are any that `equivalent_mutants.txt` does not
name: mutants that somebody has looked at and that change nothing a test could hold. Most mutants cost a few
seconds, and one that survives twice what the tests cost.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import multiprocessing
import os
import random
import resource
import secrets
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import executed

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
TIMEOUT_S = 600.0
CPU_S = 90
"""How much of a CPU a mutant may use up before it counts as one that hangs: the tests take about 30."""

HANGS_S = 20
HANGS_TIMES = 5
"""A test hangs where it takes that much longer than so many times what it took without a mutant."""

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["hypothesis", "numpy", "pyarrow.compute", "pytest", "uvloop"])
"""Mutants are tested in forks of a process that has imported what is no mutant: half the time of most."""

_FLIPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: Path
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"

    @property
    def name(self) -> str:
        """What it is called in the list of equivalent mutants: lines move."""
        return f"{self.file}: {self.what}"


def mutants(file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file (a path from the repository's root)."""
    source = (ROOT / file).read_text()
    for number, node in enumerate(ast.walk(ast.parse(source))):
        changed = _changed(node)
        if changed is None:
            continue
        tree = ast.parse(source)
        twin = next(n for at, n in enumerate(ast.walk(tree)) if at == number)
        what = _change(tree, twin)
        if what:
            before = ast.get_source_segment(source, node) or ""
            yield Mutant(file, changed, f"{what}: {' '.join(before.split())[:100]}", ast.unparse(tree))


def _changed(node: ast.AST) -> int | None:
    """Return the line of a node that can be changed."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return None  # a docstring
    kinds = (ast.Expr, ast.Assign, ast.AugAssign, ast.Compare, ast.BoolOp, ast.BinOp, ast.If, ast.Return)
    return node.lineno if isinstance(node, kinds) else None


def _change(tree: ast.AST, node: ast.AST) -> str:
    """Change a node in place and say how; nothing where it cannot be changed."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _FLIPS:
            node.ops = [_FLIPS[type(op)]()]  # type: ignore[list-item]
            return "flipped"
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _FLIPS:
            node.op = _FLIPS[type(op)]()  # type: ignore[assignment]
            return "flipped"
        case ast.If():
            node.test = ast.UnaryOp(ast.Not(), node.test)
            ast.fix_missing_locations(tree)
            return "negated"
        case ast.Expr() | ast.AugAssign() | ast.Assign(targets=[ast.Attribute()]):
            return "taken out" if _take_out(tree, node) else ""
        case ast.Return(value=ast.Constant(value=bool(value))):
            node.value = ast.Constant(not value)
            ast.fix_missing_locations(tree)
            return "flipped"
    return ""


def _take_out(tree: ast.AST, statement: ast.AST) -> bool:
    for parent in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                block[block.index(statement)] = ast.copy_location(ast.Pass(), statement)
                return True
    return False


class Executed(NamedTuple):
    """What all tests do without a mutant."""

    tests: list[tuple[str, float]]
    """Their names and how many seconds each takes, in the order in which they run."""
    lines: dict[tuple[Path, int], set[int]]
    """By file and line the places of the tests that execute it."""

    def those_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute the line of a mutant, the quickest first."""
        found = [self.tests[at] for at in self.lines.get((mutant.file, mutant.line), ())]
        return [name for name, _ in sorted(found, key=lambda test: test[1])]


def execute(copy: Path, tests: list[str], files: list[Path]) -> Executed | None:
    """Run the tests without a mutant and note what lines of the files each executes.

    None where one fails, which is printed.
    """
    notes = copy / "notes"
    notes.mkdir()
    shutil.copy(executed.__file__, notes / "sitecustomize.py")
    if not passes(copy, tests, _Noting(copy, files)):
        failed = notes / "failed"
        print("the tests fail without any mutant", failed.read_text() if failed.exists() else "", sep="\n")
        return None
    lines = {
        (Path(file).relative_to(copy), line): {number - 1 for number in numbers if number}
        for (file, line), numbers in executed.noted(notes).items()
    }
    return Executed(json.loads((notes / "tests").read_text()), lines)


def survives(mutant: Mutant, copy: Path, tests: list[str], found: Executed) -> bool:
    """Run the tests on a mutant in a copy of the repository, which is put right again afterwards."""
    target = copy / mutant.file
    original = target.read_text()
    target.write_text(mutant.text)
    first, impatient = found.those_of(mutant), _Impatient(dict(found.tests))
    try:
        return (not first or passes(copy, first, impatient)) and passes(copy, tests, impatient)
    finally:
        target.write_text(original)


def passes(copy: Path, tests: list[str], plugin: _Noting | _Impatient) -> bool:
    """Run the tests in a copy of the repository; tests that hang have noticed something too."""
    process = _SERVER.Process(target=_run_tests, args=(copy, tests, plugin))
    process.start()
    process.join(TIMEOUT_S)
    if process.exitcode != 0 and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode == 0


def _run_tests(copy: Path, tests: list[str], plugin: _Noting | _Impatient) -> None:
    """Be a process that runs tests in a copy, from its own sources and in silence."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": f"{copy}/src", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(copy), f"{copy}/src"]
    silence = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(silence, standard)

    import pytest

    already = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins that have been imported
    status = int(pytest.main(["-x", "-q", "-W", already, *tests], [plugin]))
    sys.stdout.flush()
    os._exit(status)


class _Impatient:
    """A plugin of pytest that ends its process where a test hangs, or all take too much of a CPU."""

    def __init__(self, seconds: dict[str, float]) -> None:
        """`seconds` are what each test takes."""
        self._seconds = seconds

    def pytest_configure(self) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.alarm(HANGS_S + math.ceil(HANGS_TIMES * self._seconds.get(nodeid, 0.0)))


class _Noting:
    """A plugin of pytest that notes what lines of some files each test executes, and how long each takes."""

    def __init__(self, copy: Path, files: list[Path]) -> None:
        self._notes = copy / "notes"
        self._files = [str(copy / file) for file in files]
        self._seconds: dict[str, float] = {}

    def pytest_configure(self) -> None:
        os.environ["PYTHONPATH"] = f"{self._notes}{os.pathsep}{os.environ['PYTHONPATH']}"
        os.environ[executed.FOLDER] = str(self._notes)
        os.environ[executed.FILES] = os.pathsep.join(self._files)
        self._current = executed.note()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._seconds[nodeid] = 0.0
        self._current.number[0] = len(self._seconds)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            (self._notes / "failed").write_text(f"{report.nodeid}\n{report.longreprtext}\n")

    def pytest_sessionfinish(self) -> None:
        self._current.number[0] = 0
        (self._notes / "tests").write_text(json.dumps(list(self._seconds.items())))


def equivalents() -> frozenset[str]:
    """Return the names of the mutants that are known to change nothing."""
    lines = EQUIVALENT.read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="whose lines are changed")
    parser.add_argument("--tests", nargs="+", default=["tests/peek"], help="files or folders of tests")
    parser.add_argument("--sample", type=int, help="try this many mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of that choice")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="how many are tried at once; one that hangs waits, so there may be more than processors",
    )
    given = parser.parse_args()
    files = [file.resolve().relative_to(ROOT) for file in given.files]
    known = equivalents()
    found = [mutant for file in files for mutant in mutants(file) if mutant.name not in known]
    if given.sample is not None and given.sample < len(found):
        found = random.Random(given.seed).sample(found, given.sample)
    print(f"{len(found)} mutants, seed {given.seed}", flush=True)
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="layby-mutate-") as folder:
        for number in range(given.workers):
            copy = Path(folder) / str(number)
            for part in ("src", "tests", "docs"):
                shutil.copytree(ROOT / part, copy / part)  # with what is compiled, which has the times of it
            shutil.copy(ROOT / "pyproject.toml", copy)
            copies.put(copy)
        without = execute(copy, given.tests, files)
        if without is None:
            return 2

        def tried(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return survives(mutant, copy, given.tests, without)
            finally:
                copies.put(copy)

        survivors: Counter[Path] = Counter()
        with ThreadPoolExecutor(given.workers) as pool:
            for mutant, survived in zip(found, pool.map(tried, found), strict=True):
                if survived:
                    survivors[mutant.file] += 1
                    print(mutant, flush=True)
    for file, tried_of in Counter(mutant.file for mutant in found).items():
        print(f"{file}: {survivors[file]} of {tried_of} survived")
    print(f"{survivors.total()} of {len(found)} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
