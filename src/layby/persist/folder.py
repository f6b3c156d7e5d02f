"""Blobs in a folder of the file system."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from layby.persist.blob import BlobError, check_key

_UNFINISHED: Final = ".tmp-"
"""How the names of files begin that are being written; no key has such a name."""

_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class FolderBlob:
    """One file an object, one folder a name of the key before its last; so no key goes on where another ends.

    An object is written under a name that no key has and then moved to its own, so that readers see it whole
    or not at all. With `durable` it is on the disk once `put` returns, and not only in the system's cache,
    which costs an fsync of the file and one of its folder. A folder goes when its last object does.
    """

    root: Path
    durable: bool = True

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Store an object."""
        path = self._path(key)
        with _failing(f"could not write blob {key!r}"):
            # Whoever deletes the last object of a folder may take the folder away right after it was made.
            for left in reversed(range(_ATTEMPTS)):
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._write(path, data)
                except (FileExistsError, FileNotFoundError):
                    if not left or path.parent.is_file():
                        raise
                else:
                    return

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes."""
        with _failing(f"could not read blob {key!r}"):
            try:
                return self._path(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def delete(self, key: str) -> None:
        """Remove an object, and the folders that it leaves empty."""
        path = self._path(key)
        with _failing(f"could not delete blob {key!r}"):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return
        for folder in path.parents:
            if folder == self.root:
                return
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or somebody else was first

    def list_keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix`."""
        folder, _, _ = prefix.rpartition("/")
        found: list[str] = []
        with _failing(f"could not list blobs under {prefix!r}"):
            self._walk(folder, prefix, found)
        return sorted(found)

    def _walk(self, folder: str, prefix: str, found: list[str]) -> None:
        """Add the keys below `folder` (a key, or empty for the root) that begin with `prefix`."""
        try:
            entries = list(os.scandir(self.root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith(_UNFINISHED) or not key.startswith(prefix):
                continue
            if entry.is_dir(follow_symlinks=False):
                self._walk(key, prefix, found)
            else:
                found.append(key)

    def _path(self, key: str) -> Path:
        check_key(key)
        if any(name.startswith(_UNFINISHED) for name in key.split("/")):
            raise ValueError(f"not a blob key: {key!r}")
        return self.root / key

    def _write(self, path: Path, data: bytes | memoryview) -> None:
        unfinished = path.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                if self.durable:
                    file.flush()
                    os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        if self.durable:
            _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _failing(at: str) -> Iterator[None]:
    """Turn what the file system raises into BlobError."""
    try:
        yield
    except OSError as error:
        raise BlobError(f"{at}: {error.strerror or error}") from error
