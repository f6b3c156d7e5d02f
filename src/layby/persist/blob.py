"""Blobs: whole objects under a key, in a folder or an object store."""

from __future__ import annotations

from typing import Protocol


class BlobError(Exception):
    """The store failed; the message says at what. Nothing is known of whether the call took effect."""


class Blob(Protocol):
    """A store of immutable objects. A plain value that can be pickled; any thread may call it.

    A key is one or more names joined by "/", none of them empty, "." or "..". Objects are put whole and
    read whole: a reader sees all of an object or none of it, and `list_keys` never shows half of one. Every
    method blocks and raises BlobError where the store fails.
    """

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Store an object, in place of one of that key; it is there for every reader once this returns."""

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes, None where there is none of that key."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens where there is none of that key."""

    def list_keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix` (which may end within a name), in order."""


def check_key(key: str) -> None:
    """Refuse what is no key (ValueError): a bug of the caller, as keys are made by us."""
    if any(name in ("", ".", "..") or "\0" in name for name in key.split("/")):
        raise ValueError(f"not a blob key: {key!r}")
