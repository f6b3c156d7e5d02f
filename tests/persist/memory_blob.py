"""A blob store in memory: the second implementation of the interface, and one that can be told to fail."""

from __future__ import annotations

from layby.persist.blob import BlobError, check_key


class MemoryBlob:
    """Objects in a dict. `failing` names the methods that raise; `calls` are those made, with their keys."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.failing: set[str] = set()
        self.calls: list[tuple[str, str]] = []

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
