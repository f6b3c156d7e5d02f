"""What was used last: a cache bounded by how many entries it has, and by what they weigh together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key; the least recently used go first. Not thread-safe."""

    def __init__(self, most: int, heaviest: int) -> None:
        """Keep at most `most` entries that together weigh no more than `heaviest`."""
        self._most = most
        self._heaviest = heaviest
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.weight = 0
        """What the entries weigh together."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value of a key, which is the one used last from now on, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep a value, in place of the key's old one; one that is too heavy by itself is not kept."""
        old = self._entries.pop(key, None)
        if old is not None:
            self.weight -= old[1]
        self._entries[key] = value, weight
        self.weight += weight
        while len(self._entries) > self._most or self.weight > self._heaviest:
            _, (_, freed) = self._entries.popitem(last=False)
            self.weight -= freed
