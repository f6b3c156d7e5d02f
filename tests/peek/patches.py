"""Names of modules and classes replaced for the time of one step of a walk, wherever it runs."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def patched(patches: Mapping[str, object]) -> Iterator[None]:
    """Have each name (`package.module.name` or `package.module.Class.name`) stand for its value."""
    before = []
    try:
        for name, value in patches.items():
            place, _, attribute = name.rpartition(".")
            owner = pkgutil.resolve_name(place)
            before.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in reversed(before):
            setattr(owner, attribute, value)
