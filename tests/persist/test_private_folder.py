"""Private folders: nobody sweeps a living owner's, and everybody a dead one's."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from layby.persist.private_folder import PrivateFolder, temporary_place

_OWNER = """
import sys
from pathlib import Path
from layby.persist.private_folder import PrivateFolder
folder = PrivateFolder(Path(sys.argv[1]))
(folder.path / "part").write_bytes(b"x")
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_two_owners_at_one_place_have_two_folders_and_leave_each_others(tmp_path: Path) -> None:
    first = PrivateFolder(tmp_path / "place")
    (first.path / "part").write_bytes(b"x")
    second = PrivateFolder(tmp_path / "place")
    assert first.path != second.path
    assert (first.path / "part").read_bytes() == b"x"
    second.close()
    assert (first.path / "part").exists()
    first.close()
    assert list((tmp_path / "place").glob("server-*")) == []


def test_what_a_killed_owner_left_is_swept_by_the_next_and_not_before_it_died(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        ours = PrivateFolder(tmp_path)
        assert (theirs / "part").exists()
        ours.close()
        assert (theirs / "part").exists()
    finally:
        owner.kill()
        owner.communicate(timeout=30)
    next_one = PrivateFolder(tmp_path)
    assert not theirs.exists()
    assert next_one.path.exists()
    next_one.close()


def test_a_folder_whose_sweep_was_cut_short_is_swept(tmp_path: Path) -> None:
    (tmp_path / "server-half" / "peek-1").mkdir(parents=True)
    folder = PrivateFolder(tmp_path)
    assert [p for p in tmp_path.glob("server-*") if p != folder.path] == []
    folder.close()


def test_what_is_not_a_servers_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "server-notes.txt").write_text("mine")
    PrivateFolder(tmp_path).close()
    assert (tmp_path / "precious").exists()
    assert (tmp_path / "server-notes.txt").read_text() == "mine"


def test_the_temporary_place_is_the_same_each_time_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = temporary_place("layby-stash")
    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o077 == 0
    assert temporary_place("layby-stash") == place


def test_a_temporary_place_that_others_may_write_to_or_a_link_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = temporary_place("layby-stash")
    place.chmod(0o777)
    assert temporary_place("layby-stash") != place
    place.rmdir()
    (tmp_path / "target").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "target")
    assert temporary_place("layby-stash") not in (place, tmp_path / "target")
