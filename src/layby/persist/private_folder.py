"""Private folders: one for each server within a common one, gone with the server or swept by the next."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

_GATE: Final = "gate"
_LOCK: Final = "lock"


class PrivateFolder:
    """A folder that lasts as long as the process that opened it.

    Its owner holds a lock on a file in it, which the kernel gives up when the owner dies in whatever way.
    Whoever opens another folder at the same place removes those whose lock nobody holds. Two servers so never
    touch each other's; an outer lock orders making, locking and sweeping.
    """

    def __init__(self, place: Path) -> None:
        """Open a new folder within `place`, made where it does not exist, and sweep. Raises OSError."""
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        gate = _locked(place / _GATE)
        try:
            _sweep(place)
            self.path = Path(tempfile.mkdtemp(prefix="server-", dir=place))
            self._lock = _locked(self.path / _LOCK)
        finally:
            os.close(gate)

    def close(self) -> None:
        """Remove the folder with all that is in it; what cannot be removed is left to the next sweep."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def temporary_place(name: str) -> Path:
    """Return a folder of this user in the system's temporary one (TMPDIR), the same for all its processes.

    Where somebody else has a folder of that name, a new one is made that nobody knows.
    """
    place = Path(tempfile.gettempdir()) / f"{name}-{os.geteuid()}"
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix=f"{name}-"))
    return place


def _locked(path: Path, *, wait: bool = True) -> int:
    """Return a descriptor that holds a lock on a file, made where it does not exist."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _sweep(place: Path) -> None:
    """Remove the folders whose owners are gone."""
    for folder in place.glob("server-*"):
        try:
            handle = _locked(folder / _LOCK, wait=False)
        except OSError:
            continue  # its owner lives, or it is no folder of ours
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
