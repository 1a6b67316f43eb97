"""Files are written completely or not at all, and are on disk before a write returns; locks exclude."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clickprism._util.files import (
    DRAFT,
    atomic_file,
    atomic_folder,
    lock,
    make_folder,
    read_json,
    sha256,
    sync,
    write_errors,
    write_file,
)
from clickprism.errors import DataError


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The syncs and renames that happen, in order, with the names of the files."""
    seen: list[tuple[str, str]] = []
    fsync, replace, rename, link = os.fsync, os.replace, os.rename, os.link

    def record_sync(handle: int) -> None:
        seen.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def recorded(move: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def record_move(old: Path, new: Path) -> None:
            seen.append(("rename", new.name))
            move(old, new)

        return record_move

    monkeypatch.setattr(os, "fsync", record_sync)
    for name, move in (("replace", replace), ("rename", rename), ("link", link)):
        monkeypatch.setattr(os, name, recorded(move))
    return seen


def drafts(folder: Path) -> list[Path]:
    return list(folder.rglob(f"*{DRAFT}"))


@pytest.mark.parametrize("content", ["größer", b"\0\xff"])
def test_a_file_is_replaced_and_no_draft_stays(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "deep" / "folder" / "a.txt"
    write_file(path, "old")
    write_file(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(path.parent.iterdir()) == [path]


def test_the_draft_is_on_disk_before_the_rename_and_the_folder_after(
    tmp_path: Path, events: list[tuple[str, str]]
) -> None:
    write_file(tmp_path / "a.txt", "new")
    assert events[0][0] == "sync"
    assert events[0][1].startswith(".a.txt.")
    assert events[1:] == [("rename", "a.txt"), ("sync", tmp_path.name)]


def test_new_folders_are_on_disk_too(tmp_path: Path, events: list[tuple[str, str]]) -> None:
    write_file(tmp_path / "b" / "c" / "a.txt", "new")
    assert events[:2] == [("sync", "b"), ("sync", tmp_path.name)]
    assert events[-1] == ("sync", "c")


def test_a_file_that_need_not_be_durable_is_not_synced(tmp_path: Path, events: list[tuple[str, str]]) -> None:
    write_file(tmp_path / "plot.svg", "<svg/>", durable=False)
    with atomic_folder(tmp_path / "cache", durable=False) as draft:
        (draft / "a").touch()
    assert [kind for kind, _ in events] == ["rename", "rename"]


def _fail(draft: Path, error: type[BaseException]) -> None:
    draft.write_text("half of the n")
    raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_while_writing_leaves_the_old_content(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    write_file(path, "old")
    with pytest.raises(error), atomic_file(path) as draft:
        _fail(draft, error)
    assert path.read_text() == "old"
    assert not drafts(tmp_path)


def test_a_full_disk_leaves_the_old_content_and_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_file(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = r"a\.txt: cannot be written \(No space left on device\)\. Free some"
    with pytest.raises(DataError, match=message), write_errors(path, remedy="Free some"):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert not drafts(tmp_path)


def test_a_process_killed_between_write_and_rename_leaves_the_old_content(tmp_path: Path) -> None:
    write_file(tmp_path / "a.txt", "old")
    code = f"""
import os, signal
from pathlib import Path
from clickprism._util.files import write_file
os.replace = lambda old, new: os.kill(os.getpid(), signal.SIGKILL)
write_file(Path({str(tmp_path / "a.txt")!r}), "new")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "a.txt").read_text() == "old"
    (left,) = drafts(tmp_path)
    assert left.read_text() == "new"
    write_file(tmp_path / "a.txt", "newer")
    assert (tmp_path / "a.txt").read_text() == "newer"


def test_errors_name_the_file_and_not_its_draft(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, atomic_file(tmp_path / "missing" / "a.txt") as draft:
        draft.write_text("x")
    assert raised.value.filename == str(tmp_path / "missing" / "a.txt")


def test_an_existing_file_stays_without_replace(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic_file(path, replace=False) as draft:
        draft.write_text("first")
    with pytest.raises(FileExistsError) as raised, atomic_file(path, replace=False) as draft:
        draft.write_text("second")
    assert raised.value.filename == str(path)
    assert path.read_text() == "first"
    assert not drafts(tmp_path)


def test_two_writers_leave_the_content_of_one(tmp_path: Path) -> None:
    path, texts = tmp_path / "a.txt", ["a" * 100_000, "b" * 200_000]

    def write(text: str) -> None:
        for _ in range(20):
            write_file(path, text, durable=False)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    write_file(path, texts[0])
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_text() in texts
    assert path.read_text() in texts
    assert not drafts(tmp_path)


def test_files_have_the_usual_permissions_and_names_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    write_file(path, "x")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def fill(folder: Path, text: str) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "a.txt").write_text(text)


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with atomic_folder(tmp_path / "b" / "model") as draft:
            fill(draft, text)
            (draft / f"{text}.txt").touch()
        assert (tmp_path / "b" / "model" / "inner" / "a.txt").read_text() == text
    assert sorted(path.name for path in (tmp_path / "b" / "model").iterdir()) == ["inner", "new.txt"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["model"]


def test_all_of_a_folder_is_on_disk_before_it_appears(tmp_path: Path, events: list[tuple[str, str]]) -> None:
    with atomic_folder(tmp_path / "model") as draft:
        fill(draft, "new")
    moved = events.index(("rename", "model"))
    synced = [name for _, name in events[:moved]]
    assert {"inner", "a.txt"} < set(synced)
    assert synced[-1].startswith(".model.")
    assert events[moved + 1 :] == [("sync", tmp_path.name)]


def test_a_folder_stays_if_the_new_one_is_not_complete(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "model") as draft:
        fill(draft, "old")
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "model") as draft:
        _fail(draft / "a.txt", RuntimeError)
    assert (tmp_path / "model" / "inner" / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_is_replaced_where_the_system_cannot_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    test_a_folder_is_replaced_as_a_whole(tmp_path)


def test_the_exchange_takes_one_step(tmp_path: Path, events: list[tuple[str, str]]) -> None:
    with atomic_folder(tmp_path / "model") as draft:
        fill(draft, "old")
    del events[:]
    with atomic_folder(tmp_path / "model") as draft:
        fill(draft, "new")
    assert "rename" not in [kind for kind, _ in events]
    assert events[-1] == ("sync", tmp_path.name)


@pytest.fixture(params=["file", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / ".lock" if request.param == "file" else tmp_path


def test_a_lock_waits_for_its_holder(place: Path) -> None:
    order: list[str] = []
    asked = threading.Event()

    def wait() -> None:
        with lock(place, waiting=asked.set):
            order.append("second")

    thread = threading.Thread(target=wait)
    with lock(place, waiting=lambda: order.append("waited")):
        thread.start()
        assert asked.wait(timeout=60)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_may_be_refused_instead(place: Path) -> None:
    def refuse() -> None:
        raise DataError("in use")

    with lock(place), pytest.raises(DataError, match="in use"), lock(place, waiting=refuse):
        pytest.fail("held twice")
    with lock(place, waiting=refuse):
        pass


def test_a_killed_process_releases_its_lock(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from clickprism._util.files import lock
with lock(Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with lock(tmp_path, waiting=child.kill):
            pass


def test_the_hash_of_a_file(tmp_path: Path) -> None:
    content = b"x" * 3_000_000
    (tmp_path / "a").write_bytes(content)
    assert sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[1]", "is not a JSON object"),
        (None, r"cannot be read \(No such file"),
    ],
)
def test_json_that_cannot_be_used_names_its_file(tmp_path: Path, text: bytes | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(DataError, match=rf"a\.json: {problem}.*\. Remove it"):
        read_json(tmp_path / "a.json", remedy="Remove it")


def test_json_is_read(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", '{"a": "ü"}')
    assert read_json(tmp_path / "a.json") == {"a": "ü"}


def test_a_folder_for_results_is_refused_at_once(tmp_path: Path) -> None:
    make_folder(tmp_path / "b" / "c")
    assert (tmp_path / "b" / "c").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="a folder is needed"):
        make_folder(tmp_path / "file")


def test_what_is_missing_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "missing")
