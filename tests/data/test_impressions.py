"""Impression logs: what is read and how it is coded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from clickprism.data import tables
from clickprism.data.impression_parts import load_impressions, on_lists
from clickprism.data.impressions import ImpressionLog, read_impressions
from clickprism.data.roles import ImpressionSettings
from clickprism.data.vocabulary import Vocabulary
from clickprism.errors import DataError, SettingError

HEADER = "request_id,user_id,item_id,position,clicked,seen,topic,age"
ROWS = [
    "r1,u1,b,1,0,1,war,3",
    "r1,u1,a,2,1,1,film,9.5",
    "r2,u2,b,3,1,1,war,",
    "r2,u2,c,1,0,0,sport,-1e2",
    "r3,u1,a,1,0,1,film,9.5",
]
CSV = "\n".join([HEADER, *ROWS]) + "\n"


def write(folder: Path, text: str | bytes, name: str = "log.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def json_lines() -> str:
    names = HEADER.split(",")
    lines = []
    for row in ROWS:
        record: dict[str, object] = dict(zip(names, row.split(","), strict=True))
        record |= {name: int(str(record[name])) for name in ("position", "clicked")}
        record |= {"seen": record["seen"] == "1", "age": float(str(record["age"])) if record["age"] else None}
        lines.append(json.dumps({name: value for name, value in record.items() if value is not None}))
    return "\n".join(lines)


def check(log: ImpressionLog) -> None:
    clicks, lists = log.clicks, log.lists
    assert lists.query_ids.tolist() == ["r1", "r2", "r3"]
    assert lists.document_ids is not None
    assert lists.document_ids.tolist() == ["a", "b", "b", "c", "a"]
    assert log.vocabulary.columns == {"topic": ("film", "war", "sport"), "age": None}
    wanted = [[1, 9.5], [2, 3], [2, np.nan], [3, -100], [1, 9.5]]
    np.testing.assert_array_equal(lists.features, np.array(wanted, np.float32))
    assert clicks.offsets.tolist() == [0, 2, 4, 5]
    assert clicks.rows.tolist() == [1, 0, 3, 2, 4]
    assert clicks.positions.tolist() == [1, 2, 1, 3, 1]
    assert clicks.clicks.tolist() == [0, 1, 0, 1, 0]
    assert clicks.seen is not None
    assert clicks.seen.tolist() == [1, 1, 0, 1, 1]
    assert clicks.impressions.tolist() == [1, 1, 1]
    assert log.users is not None
    assert log.users.tolist() == ["u1", "u2", "u1"]
    assert log.judged.grades.tolist() == [1, 0, 1, 0, 0]
    assert (log.account.rows, log.account.duplicates, log.account.gaps) == (5, 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        CSV.replace("\n", "\r\n"),
        CSV.rstrip("\n"),
        "\ufeff" + CSV,
        CSV.replace(",", "\t"),
        CSV.replace("film", '"film"'),
        CSV.replace(HEADER, HEADER.replace("topic", '"topic"')).replace("film", '"film"'),
        CSV.replace("\n", "\r").replace("film", '"film"'),
        CSV.replace("\n", "\n\n"),
        gzip.compress(CSV.encode(), mtime=0),
        zstandard.compress(CSV.encode()),
        json_lines(),
        "\ufeff" + json_lines() + "\n\n",
    ],
    ids=[
        "csv",
        "crlf",
        "no end",
        "bom",
        "tsv",
        "quoted",
        "quoted header",
        "cr",
        "blank lines",
        "gzip",
        "zstd",
        "json",
        "json bom",
    ],
)
@pytest.mark.parametrize("chunk", [2, 1 << 16])
def test_every_form_gives_the_same(
    text: str | bytes, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK", chunk)
    check(read_impressions(write(tmp_path, text)))


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    """Only the order of requests is that of the file; nothing else is."""
    shuffled = [ROWS[place] for place in (1, 3, 0, 4, 2)]
    check(read_impressions(write(tmp_path, "\n".join([HEADER, *shuffled]))))


def test_lists_of_users_share_their_items(tmp_path: Path) -> None:
    log = read_impressions(write(tmp_path, CSV), settings=ImpressionSettings(lists="user"))
    assert log.lists.query_ids.tolist() == ["u1", "u2"]
    assert log.lists.offsets.tolist() == [0, 2, 4]
    assert log.clicks.rows.tolist() == [1, 0, 3, 2, 0]
    assert len(log.clicks) == 3
    assert log.judged.grades.tolist() == [1, 0, 1, 0]
    changed = CSV.replace("r3,u1,a,1,0,1,film,9.5", "r3,u1,a,1,0,1,film,9")
    with pytest.raises(DataError, match=r"log.csv:6: column 'age' of item 'a' is not what it was .* in line 3"):
        read_impressions(write(tmp_path, changed), settings=ImpressionSettings(lists="user"))


def test_relevance_weight_and_ids_as_features(tmp_path: Path) -> None:
    text = "session,item,pos,click,grade,weight\ns,9007199254740993,0,true,2,0.5\ns,9007199254740992,1,false,0,1\n"
    settings = ImpressionSettings(first_position=0, categorical=("item",))
    log = read_impressions(write(tmp_path, text), settings=settings)
    assert log.lists.document_ids is not None
    assert log.lists.document_ids.tolist() == ["9007199254740992", "9007199254740993"]
    assert log.vocabulary.columns == {"item": ("9007199254740992", "9007199254740993")}
    assert log.judged.grades.tolist() == [0, 2]
    assert log.clicks.weights is not None
    assert log.clicks.weights.tolist() == [0.5, 1]
    assert log.clicks.positions.tolist() == [1, 2]


def test_held_out_data_takes_the_vocabulary(tmp_path: Path) -> None:
    train = read_impressions(write(tmp_path, CSV))
    text = "request_id,item_id,position,clicked,age,topic,more\nr,z,1,1,7,film,x\nr,y,2,0,8,opera,x\n"
    held = read_impressions(write(tmp_path, text, "held.csv"), vocabulary=train.vocabulary)
    assert held.lists.features.tolist() == [[0, 8], [1, 7]]
    assert held.account.unknown == {"topic": 1}
    with pytest.raises(DataError, match=r"held.csv:1: has no column 'topic'. The training data had it"):
        read_impressions(write(tmp_path, text.replace("topic", "subject"), "held.csv"), vocabulary=train.vocabulary)


def test_a_mixed_column_is_what_the_settings_say(tmp_path: Path) -> None:
    file = write(tmp_path, CSV.replace("war", "7").replace("r3", "r03"))
    assert read_impressions(file, settings=ImpressionSettings(categorical=("topic",))).vocabulary.columns["topic"]
    assert list(read_impressions(file, settings=ImpressionSettings(ignore=("topic",))).vocabulary.columns) == ["age"]
    with pytest.raises(DataError, match=r"column .topic. must hold a number within 3.4e38, got 'film'"):
        read_impressions(file, settings=ImpressionSettings(numeric=("topic",)))


def test_what_is_said_again_counts_once(tmp_path: Path) -> None:
    log = read_impressions(write(tmp_path, CSV + ROWS[1] + "\n" + ROWS[1] + "\n"))
    assert log.account.duplicates == 2
    assert log.clicks.clicks.tolist() == [0, 1, 0, 1, 0]


def test_parquet_reads_the_same(tmp_path: Path) -> None:
    records = [json.loads(line) for line in json_lines().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "log.parquet")
    check(read_impressions(tmp_path / "log.parquet"))


def log_text(requests: Sequence[int]) -> str:
    rows = [f"r{n},i{n % 3},1,{n % 2},t{n},{n}\nr{n},i{n % 3 + 1},2,{1 - n % 2},t0,1" for n in requests]
    return "\n".join(["request,item,position,clicked,topic,age", *rows]) + "\n"


def test_one_log_is_split_in_its_order_with_the_vocabulary_of_the_first_part(tmp_path: Path) -> None:
    parts = load_impressions(write(tmp_path, log_text(range(10))))
    assert [len(parts.clicks[part]) for part in ("train", "validation", "test")] == [8, 1, 1]
    assert parts.vocabulary.columns["topic"] == ("t0", *(f"t{n}" for n in range(1, 8)))
    held = parts.clicks["test"].lists
    assert held is parts.dataset.test.lists
    assert held.query_ids.tolist() == ["r9"]
    assert held.features.tolist() == [[0, 9], [1, 1]]
    files = [write(tmp_path, log_text(part), f"{part}.csv") for part in (range(8), range(8, 9), range(9, 10))]
    again = load_impressions(*files)
    for part in ("train", "validation", "test"):
        one, other = parts.clicks[part], again.clicks[part]
        np.testing.assert_array_equal(one.lists.features, other.lists.features)
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.clicks, other.clicks)
    with pytest.raises(DataError, match="cannot split 3 lists in three parts"):
        load_impressions(write(tmp_path, log_text(range(3))))
    with pytest.raises(SettingError, match="test must be given with the other"):
        load_impressions(files[0], files[1])


def test_clicks_on_chosen_lists_keep_their_documents(tmp_path: Path) -> None:
    log = read_impressions(write(tmp_path, CSV))
    chosen = np.array([2, 0])
    kept = on_lists(log.clicks, chosen, log.lists.take(chosen))
    assert kept.lists.query_ids.tolist() == ["r3", "r1"]
    assert kept.lists.document_ids is not None
    assert kept.lists.document_ids[kept.rows].tolist() == ["b", "a", "a"]


def test_a_vocabulary_goes_to_disk_and_back(tmp_path: Path) -> None:
    vocabulary = Vocabulary({"topic": ("æ", 'a"b', ""), "age": None})
    file = tmp_path / "vocabulary.json"
    vocabulary.save(file)
    again = Vocabulary.load(file)
    assert (again, again.hash) == (vocabulary, vocabulary.hash)
    assert again.for_ranker() == {"categorical": (0,), "categories": (4,)}
    assert vocabulary.hash != Vocabulary({"topic": ('a"b', "æ", ""), "age": None}).hash
    file.write_text(file.read_text("utf-8").replace("æ", "ø"), "utf-8")
    with pytest.raises(DataError, match="was changed after it was saved"):
        Vocabulary.load(file)
    wrong = {
        "": "is not valid JSON",
        "[1]": "is not a JSON object",
        "{}": "is not a vocabulary",
        '{"format": "clickprism vocabulary", "version": 1, "columns": [["a", [1]]]}': "is not a vocabulary",
    }
    for text, words in wrong.items():
        file.write_text(text)
        with pytest.raises(DataError, match=words):
            Vocabulary.load(file)
    with pytest.raises(DataError, match="cannot be read"):
        Vocabulary.load(tmp_path / "none.json")


def test_rare_names_are_unknown(tmp_path: Path) -> None:
    log = read_impressions(write(tmp_path, CSV), settings=ImpressionSettings(least_count=2))
    assert log.vocabulary.columns["topic"] == ("film", "war")
    assert log.lists.features[:, 0].tolist() == [1, 2, 2, 0, 1]


@pytest.mark.parametrize("seed", range(2))
def test_compiled_loops_read_what_the_csv_module_reads(seed: int, tmp_path: Path) -> None:
    """The same table read by different code, value for value; with and without quotes."""
    rng = np.random.default_rng(seed)
    texts = ["", "a", "æøå", "日本", "x y", "nan", "-", "longer than others", *map(str, range(6000))]
    numbers = ["", "0", "-0", "+7", "3.25", ".5", "5.", "1e5", "-2E-3", "nan", "NULL", " 4", "0.1", "9007199254740993"]
    numbers += [repr(value) for value in (rng.standard_normal(300) * 10.0 ** rng.integers(-30, 30, 300)).tolist()]
    numbers += [f"{value:.6f}" for value in rng.standard_normal(300).tolist()]
    chosen = zip(rng.choice(texts, 9000).tolist(), rng.choice(numbers, 9000).tolist(), strict=True)
    rows = [[f"r{row // 7}", str(row), str(row % 7 + 1), "0", *pair] for row, pair in enumerate(chosen)]
    header = ["request", "item", "position", "clicked", "text", "number"]
    settings = ImpressionSettings(categorical=("text",), numeric=("number",))

    def same(one: str, other: str) -> None:
        files = [write(tmp_path, text, name) for text, name in ((one, "one.csv"), (other, "other.csv"))]
        logs = [read_impressions(file, settings=settings) for file in files]
        assert logs[0].vocabulary == logs[1].vocabulary
        np.testing.assert_array_equal(logs[0].lists.features, logs[1].lists.features)
        np.testing.assert_array_equal(logs[0].clicks.rows, logs[1].clicks.rows)
        read = [tables.read_table(file, lambda name: "numbers" if name == "number" else "names") for file in files]
        np.testing.assert_array_equal(read[0].lines, read[1].lines)
        np.testing.assert_array_equal(read[0].columns["number"], read[1].columns["number"])

    def text(*, quoted_header: bool, quoted: bool, end: str = "\n") -> str:
        lines = [[f'"{value}"' for value in row] for row in rows] if quoted else rows
        first = [f'"{name}"' for name in header] if quoted_header else header  # which only the csv module reads
        return end.join(",".join(line) for line in [first, *lines])

    same(text(quoted_header=False, quoted=False), text(quoted_header=True, quoted=False))
    for row in rows[::3]:
        row[4] += ", and\nmore"
    same(text(quoted_header=False, quoted=True), text(quoted_header=True, quoted=True))
    same(text(quoted_header=False, quoted=True, end="\r\n"), text(quoted_header=True, quoted=True, end="\r\n"))


def test_indicators_stand_where_codes_stood(tmp_path: Path) -> None:
    log = read_impressions(write(tmp_path, CSV), settings=ImpressionSettings(least_count=2))
    vocabulary = log.vocabulary
    assert vocabulary.width == 3
    assert vocabulary.indicator_places == (0, 1)
    made = vocabulary.indicators(log.lists.features)
    np.testing.assert_array_equal(made[:, :2], [[1, 0], [0, 1], [0, 1], [0, 0], [1, 0]])
    np.testing.assert_array_equal(made[:, 2], log.lists.features[:, 1])
    many = Vocabulary({"a": tuple(map(str, range(10_001)))})
    with pytest.raises(DataError, match="10,001 features, more than 10,000"):
        many.indicators(np.zeros((1, 1), np.float32))


def test_names_that_a_part_does_not_know_are_counted_in_a_split_log(tmp_path: Path) -> None:
    parts = load_impressions(write(tmp_path, log_text(range(10))))
    unknown = [int((getattr(parts.dataset, part).lists.features[:, 0] == 0).sum()) for part in parts.clicks]
    assert unknown == [0, 1, 1]
    assert [account.unknown for account in parts.accounts] == [{"topic": 2}]
