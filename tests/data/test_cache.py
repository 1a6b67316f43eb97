"""The cache: same content, same arrays; whatever is damaged is made anew."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from clickprism.data import cache as kept
from clickprism.data import letor
from clickprism.data.letor import read_letor, scan_letor
from clickprism.data.tables import read_bytes
from clickprism.errors import DataError

TEXT = "".join(f"{i % 3} qid:{i // 4} 1:{i} 2:{i * i} # d{i}\n" for i in range(40))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose changes all count, however recent."""
    monkeypatch.setattr(kept, "SETTLED_SECONDS", -1e9)
    path = tmp_path / "data.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were parsed, not taken from the cache."""
    seen: list[Path] = []
    parse = letor._parse

    def counted(*arguments: object, **options: object) -> object:
        seen.append(arguments[0])  # type: ignore[arg-type]
        return parse(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(letor, "_parse", counted)
    return seen


def entry(cache: Path) -> Path:
    return next(path for path in cache.iterdir() if path.is_dir())


def test_an_unchanged_file_is_parsed_once_and_not_read_again(
    file: Path, tmp_path: Path, parses: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = read_letor(file, cache=cache)
    monkeypatch.setattr(letor, "read_bytes", None)
    again = read_letor(file, cache=cache)
    assert parses == [file]
    assert np.array_equal(again.lists.features, first.lists.features)
    assert again.lists.query_ids.tolist() == first.lists.query_ids.tolist()
    assert again.lists.document_ids is not None
    assert again.lists.document_ids.tolist() == [f"d{i}" for i in range(40)]
    assert np.array_equal(again.grades, first.grades)
    assert not list(cache.glob(".*.part"))


def test_a_file_must_have_settled(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the content is set back, as `cp -p` does; that of the change of the file is now."""
    os.utime(file, (1_600_000_000, 1_600_000_000))
    monkeypatch.setattr(kept, "SETTLED_SECONDS", 2.0)
    changed = file.stat().st_ctime
    monkeypatch.setattr(time, "time", lambda: changed + 1)
    assert kept.key_of([file], []) is None
    monkeypatch.setattr(time, "time", lambda: changed + 10)
    assert kept.key_of([file], []) is not None
    assert kept.key_of([tmp_path / "none"], []) is None


def test_a_file_replaced_while_it_is_read_is_read_again_next_time(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `mv` and `rsync -t` do; whatever this reading returns, the next one returns the new content."""
    cache, other = tmp_path / "cache", tmp_path / "other.txt"
    other.write_text(TEXT.replace("1:7 ", "1:8 "))
    os.utime(other, (1_500_000_000, 1_500_000_000))

    def late(path: Path) -> bytes:
        raw = read_bytes(path)
        other.replace(file)
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(letor, "read_bytes", late)
        assert read_letor(file, cache=cache).lists.features[7, 0] == 7
    for features in (None, 5):
        assert read_letor(file, features=features, cache=cache).lists.features[7, 0] == 8


def test_list_lengths_replaced_while_they_are_read_are_read_again_next_time(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, groups = tmp_path / "cache", tmp_path / "data.query"
    file.write_text("0 1:1\n0 1:2\n0 1:3\n")
    groups.write_text("1\n2\n")

    def late(path: Path) -> bytes:
        raw = read_bytes(path)
        if path == groups:
            groups.write_text("2\n1")
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(letor, "read_bytes", late)
        assert read_letor(file, cache=cache).lists.lengths.tolist() == [1, 2]
    assert read_letor(file, cache=cache).lists.lengths.tolist() == [2, 1]
    groups.write_text("1\n2\n")
    assert read_letor(file, cache=cache).lists.lengths.tolist() == [1, 2]


def test_changed_content_and_options_are_parsed_again(file: Path, tmp_path: Path, parses: list[Path]) -> None:
    cache = tmp_path / "cache"
    read_letor(file, cache=cache)
    read_letor(file, cache=cache, features=5)
    file.write_text(TEXT.replace("1:7 ", "1:88 "))
    assert read_letor(file, cache=cache).lists.features[7, 0] == 88
    assert len(parses) == 3


@pytest.mark.parametrize("name", ["features.npy", "grades.npy", "query_ids.npy", "manifest"])
@pytest.mark.parametrize("damage", ["missing", "short", "garbled", "empty"])
def test_damaged_entries_are_rebuilt(file: Path, tmp_path: Path, parses: list[Path], name: str, damage: str) -> None:
    cache = tmp_path / "cache"
    expected = read_letor(file, cache=cache).lists.features
    victim = entry(cache) / name
    data = victim.read_bytes()
    if damage == "missing":
        victim.unlink()
    else:
        middle = len(data) // 2
        garbled = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
        victim.write_bytes({"short": data[:-9], "garbled": garbled, "empty": b""}[damage])
    assert np.array_equal(read_letor(file, cache=cache).lists.features, expected)
    assert len(parses) == 2
    assert np.array_equal(read_letor(file, cache=cache).lists.features, expected)
    assert len(parses) == 2


def test_large_arrays_are_mapped_and_safe(tmp_path: Path) -> None:
    matrix = np.arange(200_000, dtype=np.float32).reshape(-1, 100)
    assert kept.store(tmp_path, "key", {"features": matrix}, {"base": 1})
    for _ in range(2):
        found = kept.load(tmp_path, "key")
        assert found is not None
        arrays, facts = found
        assert facts == {"base": 1}
        assert isinstance(arrays["features"].base, np.memmap)
        assert np.array_equal(arrays["features"], matrix)
        arrays["features"][0, 0] = -1


def test_quarantine_is_kept_too(file: Path, tmp_path: Path, parses: list[Path]) -> None:
    file.write_bytes(b"1 qid:1 1:1\nbad \xff line\n")
    cache = tmp_path / "cache"
    first = scan_letor(file, on_error="quarantine", cache=cache)
    again = scan_letor(file, on_error="quarantine", cache=cache)
    assert len(parses) == 1
    assert again.quarantined == first.quarantined
    assert again.quarantined[0].raw == b"bad \xff line"
    with pytest.raises(DataError, match=r"data\.txt:2:1: expected a grade"):
        read_letor(file, cache=cache)


def test_a_cache_that_cannot_be_written_is_no_error(file: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    assert len(read_letor(file, cache=blocked)) == 10


def test_what_killed_writers_left_is_removed(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name, age in ((".old.part", 1_600_000_000), (".new.part", None)):
        (cache / name).mkdir(parents=True)
        if age is not None:
            os.utime(cache / name, (age, age))
    read_letor(file, cache=cache)
    assert [path.name for path in cache.glob(".*.part")] == [".new.part"]


def test_the_environment_says_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKPRISM_CACHE", str(tmp_path))
    assert kept.folder("default") == tmp_path
    monkeypatch.setenv("CLICKPRISM_CACHE", "off")
    assert kept.folder("default") is None
    monkeypatch.delenv("CLICKPRISM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kept.folder("default") == tmp_path / ".cache" / "clickprism"
    assert kept.folder(None) is None
