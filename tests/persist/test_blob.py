"""The conformance kit of blob stores, and what is particular to folders."""

from __future__ import annotations

import os
import pickle
import stat
import threading
from pathlib import Path

import pytest

from layby.persist.blob import Blob, BlobError
from layby.persist.folder import FolderBlob
from tests.persist.memory_blob import MemoryBlob


@pytest.fixture(params=["durable folder", "folder", "memory"])
def blob(request: pytest.FixtureRequest, tmp_path: Path) -> Blob:
    if request.param == "memory":
        return MemoryBlob()
    return FolderBlob(tmp_path / "blobs", durable=request.param == "durable folder")


def test_an_object_is_read_as_it_was_put(blob: Blob) -> None:
    blob.put("a/b/c", b"\x00\xffdata")
    assert blob.get("a/b/c") == b"\x00\xffdata"


def test_an_empty_object_is_an_object(blob: Blob) -> None:
    blob.put("empty", b"")
    assert blob.get("empty") == b""
    assert blob.list_keys("") == ["empty"]


def test_a_view_of_memory_can_be_put(blob: Blob) -> None:
    blob.put("a", memoryview(b"0123456789")[2:5])
    assert blob.get("a") == b"234"


def test_a_put_replaces_the_object_of_its_key(blob: Blob) -> None:
    blob.put("a", b"long before")
    blob.put("a", b"after")
    assert blob.get("a") == b"after"
    assert blob.list_keys("") == ["a"]


def test_what_was_never_put_is_none(blob: Blob) -> None:
    blob.put("a/b", b"x")
    assert [blob.get("b"), blob.get("a/c"), blob.get("a"), blob.get("a/b/c")] == [None] * 4


def test_a_deleted_object_is_gone_and_deleting_again_does_nothing(blob: Blob) -> None:
    blob.put("a/b", b"x")
    blob.put("a/c", b"y")
    blob.delete("a/b")
    blob.delete("a/b")
    assert blob.get("a/b") is None
    assert blob.get("a/c") == b"y"


def test_deleting_what_others_lie_under_does_nothing(blob: Blob) -> None:
    blob.put("a/b", b"x")
    blob.delete("a")
    blob.delete("a/b/c")
    assert blob.get("a/b") == b"x"


def test_a_key_can_be_put_again_after_it_was_deleted(blob: Blob) -> None:
    blob.put("a/b", b"x")
    blob.delete("a/b")
    blob.put("a/b", b"y")
    assert blob.get("a/b") == b"y"


def test_keys_are_listed_by_prefix_in_order(blob: Blob) -> None:
    for key in ("peek-10/2", "peek-1/10", "peek-1/2", "other", "peek-1/deep/er"):
        blob.put(key, b"")
    assert blob.list_keys("peek-1/") == ["peek-1/10", "peek-1/2", "peek-1/deep/er"]
    assert blob.list_keys("peek-1") == ["peek-1/10", "peek-1/2", "peek-1/deep/er", "peek-10/2"]
    assert blob.list_keys("peek-1/deep/e") == ["peek-1/deep/er"]
    assert len(blob.list_keys("")) == 5
    assert blob.list_keys("nothing/here/") == []
    assert blob.list_keys("other/") == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b"])
def test_what_is_no_key_is_refused(blob: Blob, key: str) -> None:
    with pytest.raises(ValueError, match="not a blob key"):
        blob.put(key, b"x")
    with pytest.raises(ValueError, match="not a blob key"):
        blob.get(key)
    with pytest.raises(ValueError, match="not a blob key"):
        blob.delete(key)


def test_puts_and_deletes_from_many_threads_leave_what_was_put_last(blob: Blob) -> None:
    finished: list[int] = []

    def work(number: int) -> None:
        for turn in range(50):
            blob.put(f"shared/{number}", b"%d" % turn)
            assert blob.get(f"shared/{number}") == b"%d" % turn
            blob.delete(f"shared/{number}")
        blob.put(f"kept/{number}", b"%d" % number)
        finished.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(finished) == [0, 1, 2, 3]
    assert blob.list_keys("") == [f"kept/{number}" for number in range(4)]


# What is particular to folders


def test_a_folder_store_travels_to_another_process(tmp_path: Path) -> None:
    here = FolderBlob(tmp_path, durable=False)
    there: FolderBlob = pickle.loads(pickle.dumps(here))
    there.put("a/b", b"x")
    assert here.get("a/b") == b"x"
    assert there == here


def test_a_folder_goes_with_its_last_object_but_the_root_stays(tmp_path: Path) -> None:
    blob = FolderBlob(tmp_path / "root")
    blob.put("a/b/c", b"x")
    blob.put("a/d", b"y")
    blob.delete("a/b/c")
    assert sorted(p.name for p in (tmp_path / "root" / "a").iterdir()) == ["d"]
    blob.delete("a/d")
    assert list((tmp_path / "root").iterdir()) == []


def test_a_write_that_failed_leaves_no_file_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = FolderBlob(tmp_path, durable=True)
    blob.put("a", b"before")

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BlobError, match="could not write blob 'a': No space left on device"):
        blob.put("a", b"after")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert blob.get("a") == b"before"


def test_only_a_durable_store_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    FolderBlob(tmp_path, durable=False).put("a", b"x")
    assert synced == []
    FolderBlob(tmp_path, durable=True).put("a", b"x")
    assert synced == [False, True]


def test_files_being_written_are_no_objects(tmp_path: Path) -> None:
    blob = FolderBlob(tmp_path)
    (tmp_path / ".tmp-0123").write_bytes(b"half")
    assert blob.list_keys("") == []
    with pytest.raises(ValueError, match="not a blob key"):
        blob.get(".tmp-0123")


def test_a_store_whose_root_is_a_file_fails_clearly(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    blob = FolderBlob(tmp_path / "root")
    with pytest.raises(BlobError, match="could not write blob 'a/b'"):
        blob.put("a/b", b"x")


def test_an_object_cannot_lie_under_another(tmp_path: Path) -> None:
    blob = FolderBlob(tmp_path)
    blob.put("a", b"x")
    with pytest.raises(BlobError, match="could not write blob 'a/b': File exists"):
        blob.put("a/b", b"y")
    assert blob.list_keys("") == ["a"]


def test_a_store_leaves_no_descriptor_open(tmp_path: Path) -> None:
    blob = FolderBlob(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(10):
        blob.put(f"a/{number}", b"x")
        blob.get(f"a/{number}")
    blob.list_keys("")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
