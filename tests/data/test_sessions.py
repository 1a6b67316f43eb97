"""Session files: what is read, what is left out, what is said about it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import zstandard

from clickprism.data.logged import Logged
from clickprism.data.sessions import read_sessions
from clickprism.errors import DataError, SettingError
from clickprism.log.ingest import ingest
from clickprism.log.open_log import read_log
from clickprism.types import Clicks
from tests.shared_data import shared_data

TEXT = "query\tdocuments\tclicks\tdevice\ncat\ta,b,c\tc,a,c\tphone\ndog\tb,a\t\tdesk\ncat\tc,b\tx,b\tphone\n"


def write(folder: Path, text: str | bytes, name: str = "log.tsv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def check(log: Logged) -> None:
    clicks = log.clicks
    ids = clicks.lists.document_ids
    assert ids is not None
    assert clicks.lists.query_ids.tolist() == ["cat", "dog"]
    assert clicks.lists.offsets.tolist() == [0, 3, 5]
    assert ids[clicks.rows].tolist() == ["a", "b", "c", "b", "a", "c", "b"]
    assert clicks.rows.tolist() == [0, 1, 2, 3, 4, 2, 1]
    assert clicks.offsets.tolist() == [0, 3, 5, 7]
    assert clicks.positions.tolist() == [1, 2, 3, 1, 2, 1, 2]
    assert clicks.clicks.tolist() == [1, 0, 1, 0, 0, 0, 1]
    assert clicks.impressions.tolist() == [1, 1, 1]
    assert log.columns["device"].tolist() == ["phone", "desk", "phone"]
    assert log.account == {"sessions": 3, "clicks outside the list": 1}
    assert log.notes == ()


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n"),
        "\ufeff" + TEXT,
        gzip.compress(TEXT.encode(), mtime=0),
        zstandard.compress(TEXT.encode()),
        'query,documents,clicks,device\ncat,"a,b,c","c,a",phone\ndog,"b,a",,desk\n\ncat,"c,b","x,b",phone\n',
    ],
    ids=["tsv", "crlf", "no end", "bom", "gzip", "zstd", "csv"],
)
def test_every_form_gives_the_same(text: str | bytes, tmp_path: Path) -> None:
    check(read_sessions(write(tmp_path, text)))


BROKEN = {
    "cat\ta,b\n": "3: 2 fields where the first line has 3",
    "\ta,b\tb\n": "3: the query is missing",
    "cat\t\t\n": "3: documents are missing",
    "cat\ta,,b\t\n": "3: document 2 of the list has no id",
}


@pytest.mark.parametrize("line", BROKEN)
def test_broken_lines_are_named_or_left_out(line: str, tmp_path: Path) -> None:
    head = "query\tdocuments\tclicks\ncat\ta,b\tb\n"
    file = write(tmp_path, head + line + "dog\ta\ta\n")
    with pytest.raises(DataError, match=re.escape(f"{file}:{BROKEN[line]}. Repair it")):
        read_sessions(file)
    log = read_sessions(file, on_error="quarantine")
    assert log.account["lines quarantined"] == 1
    assert log.notes == (f"Not used: 1 line of {file}, such as line {BROKEN[line]}.",)
    assert len(log) == 2
    assert log.clicks.lists.query_ids.tolist() == ["cat", "dog"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty. The first line names the columns: query, documents, clicks"),
        ("query\tdocument\tclicks\n", r"1: has no column 'documents'.*did you mean 'document'"),
        ("query;documents;clicks\ncat;a;a\n", r"1: has one column only\. Columns are split by tabs.*not by ';'"),
        (
            "query\tdocuments\tclicks\ncat\ta,b\t1,0\n",
            "2 of 2 clicks are on documents that.*Clicks must be document ids",
        ),
        ("query\tquery\tclicks\n", "1: names a column twice"),
        ("query\tdocuments\tclicks\n", "has no usable session"),
        (b"query\tdocuments\tclicks\ncat\t\xff\t\n", "2: is not UTF-8 text"),
        ('query,documents,clicks\ncat,"a" b,\n', "2: is not CSV"),
        ("query\tdocuments\tclicks\ncat\ta,a\0\ta\n", "2: has a NUL character"),
        (TEXT.encode("utf-16"), "1: is not UTF-8 text"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-9], "is not a complete gzip file"),
    ],
)
def test_files_that_cannot_be_read_are_refused(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_sessions(write(tmp_path, text))


def test_blanks_around_ids_do_not_count(tmp_path: Path) -> None:
    spaced = TEXT.replace(",", " , ")
    check(read_sessions(write(tmp_path, spaced)))


def test_a_document_that_a_list_shows_again_counts_once_as_in_an_ingested_log(tmp_path: Path) -> None:
    text = "query\tdocuments\tclicks\ncat\ta,b, a,c\tc,a\ndog\td,d\t\ncat\ta,b\tb\n"
    file = write(tmp_path, text)
    log = read_sessions(file)
    ingest([file], tmp_path / "log")
    ingested = read_log(tmp_path / "log").clicks

    def shown(clicks: Clicks) -> list[tuple[object, ...]]:
        ids = clicks.lists.document_ids
        assert ids is not None
        rows = zip(ids[clicks.rows], clicks.positions, clicks.clicks, strict=True)
        return [(str(name), int(position), int(clicked)) for name, position, clicked in rows]

    expected = [("a", 1, 1), ("b", 2, 0), ("c", 4, 1), ("d", 1, 0), ("a", 1, 0), ("b", 2, 1)]
    assert shown(log.clicks) == expected
    assert sorted(shown(ingested)) == sorted(expected)
    assert log.account == {"sessions": 3, "results shown again in the same list": 2}
    assert log.notes == (f"In 2 lists of {file} a document is shown again: it counts once, at its first position.",)


def test_sessions_that_come_again_keep_their_clicks_and_columns(tmp_path: Path) -> None:
    lines = ["cat\ta,b\tb\t1", "cat\ta,b\tx\t2", "dog\ta,b\tb\t3", "cat\ta,b\tb\t4", "cat\ta,b\tx,b\t5"]
    log = read_sessions(write(tmp_path, "\n".join(["query\tdocuments\tclicks\tn", *lines])))
    assert log.clicks.clicks.reshape(-1, 2).tolist() == [[0, 1], [0, 0], [0, 1], [0, 1], [0, 1]]
    assert log.clicks.rows.reshape(-1, 2).tolist() == [[0, 1], [0, 1], [2, 3], [0, 1], [0, 1]]
    assert log.columns["n"].tolist() == ["1", "2", "3", "4", "5"]
    assert log.account["clicks outside the list"] == 2


@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_huge_value_does_not_fill_memory(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text vectors are as wide as their longest value."""
    monkeypatch.setattr("clickprism.data.tables.LONGEST_IDS", 1 << 16)
    huge = ["cat", "a", "", "phone"]
    huge[place] = "x" * 10_000
    lines = [f"{name}\ta{name}\t\tphone" for name in "abc"]
    file = write(tmp_path, "\n".join(["query\tdocuments\tclicks\tdevice", *lines, "\t".join(huge)]))
    with pytest.raises(DataError, match=r"too large: 4 texts, the longest of 10,000 characters\. .*shorten them"):
        read_sessions(file)


def test_settings_are_checked(tmp_path: Path) -> None:
    file = write(tmp_path, TEXT)
    with pytest.raises(SettingError, match="on_error must"):
        read_sessions(file, on_error="skip")  # type: ignore[arg-type]


def test_the_yandex_sessions_are_read_completely() -> None:
    log = read_sessions(shared_data("yandex-clicks/sessions.tsv.gz"))
    assert len(log) == 35064
    assert len(log.clicks.lists) == 20
    assert log.clicks.lists.documents == 1024
    assert log.clicks.clicks.sum() == 43072 - 369
    assert log.account["clicks outside the list"] == 369
    assert log.clicks.max_position == 10
    merged = log.clicks.merge(by="pattern")
    assert merged.sessions == 35064
    assert np.array_equal(merged.merge().impressions, log.clicks.merge().impressions)
