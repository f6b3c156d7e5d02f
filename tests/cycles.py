"""What is left to the garbage collector. The server's runs seldom: what it alone can free is memory kept."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_in_cycles() -> Iterator[None]:
    """Fail where code run meanwhile leaves an object of ours that only the garbage collector can free."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(filter(None, map(_ours, gc.garbage)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, f"left to the garbage collector: {dict(left)}"


def _ours(value: object) -> str | None:
    """Return the name of a function, or of the class of an object, that is of the product."""
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None) or ""
    return f"{module}.{named.__qualname__}" if module.startswith("layby.") else None
