"""A blob store in memory: the second implementation of the interface, and one that can be told to fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from layby.persist.blob import BlobError, check_key

_numbers = itertools.count()
_stores: WeakValueDictionary[int, MemoryBlob] = WeakValueDictionary()


class MemoryBlob:
    """Objects in a dict. `failing` names the methods that raise; `calls` are those made, with their keys.

    Pickled and back it is the same store, as one outside the process would be.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        _stores[self.number] = self
        self.objects: dict[str, bytes] = {}
        self.failing: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return store, (self.number,)

    def put(self, key: str, data: bytes | memoryview) -> None:
        check_key(key)
        self._called("put", key)
        self.objects[key] = bytes(data)

    def get(self, key: str) -> bytes | None:
        check_key(key)
        self._called("get", key)
        return self.objects.get(key)

    def delete(self, key: str) -> None:
        check_key(key)
        self._called("delete", key)
        self.objects.pop(key, None)

    def list_keys(self, prefix: str) -> list[str]:
        self._called("list_keys", prefix)
        return sorted(key for key in self.objects if key.startswith(prefix))

    def _called(self, method: str, key: str) -> None:
        self.calls.append((method, key))
        if method in self.failing:
            raise BlobError(f"the store failed at {method}")


class StoreElsewhere:
    """A `MemoryBlob` of another process, as seen from a process that has `elsewhere` to reach it by."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return store, (self._number,)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._call("put", key, bytes(data))

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self._call("get", key)
        return found

    def delete(self, key: str) -> None:
        self._call("delete", key)

    def list_keys(self, prefix: str) -> list[str]:
        found: list[str] = self._call("list_keys", prefix)
        return found

    def _call(self, method: str, *args: object) -> Any:
        assert elsewhere is not None
        return elsewhere(self._number, method, *args)


elsewhere: Callable[..., Any] | None = None
"""In a process whose stores are another's: calls a method of one, by the store's number."""


def store(number: int) -> MemoryBlob | StoreElsewhere:
    """Return the store of a number."""
    return _stores[number] if elsewhere is None else StoreElsewhere(number)
