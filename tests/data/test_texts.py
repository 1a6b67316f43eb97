"""Texts by id: every form reads the same, and what is wrong is named with file, line and remedy."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.data.bm25 import BM25
from clickprism.data.texts import Texts, read_qrel, read_texts
from clickprism.errors import DataError, SettingError
from reproduce.common.nfcorpus import best_rows, nfcorpus
from tests.shared_data import shared_data

ROWS = [("b", 'Grape, "red"'), ("a", "kidney stones")]


def write(path: Path, form: str) -> Path:
    if form == "tsv":
        path.write_text("".join(f"{name}\t{text}\n" for name, text in ROWS))
    elif form == "headed.tsv":
        path.write_text("text\tdocument_id\tprice\r\n" + "".join(f"{text}\t{name}\t3\r\n" for name, text in ROWS))
    elif form == "tsv.gz":
        path.write_bytes(gzip.compress("".join(f"{name}\t{text}\n" for name, text in ROWS).encode()))
    elif form == "csv":
        path.write_text('id,text\nb,"Grape, ""red"""\na,kidney stones\n')
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in ROWS))
    else:
        pq.write_table(pa.table({"id": [row[0] for row in ROWS], "text": [row[1] for row in ROWS]}), path)
    return path


@pytest.mark.parametrize("form", ["tsv", "headed.tsv", "tsv.gz", "csv", "jsonl", "parquet"])
def test_every_form_reads_the_same(form: str, tmp_path: Path) -> None:
    texts = read_texts(write(tmp_path / f"texts.{form}", form))
    assert texts.ids.tolist() == ["a", "b"]
    assert texts.texts == ["kidney stones", 'Grape, "red"']


def test_title_and_text_are_joined(tmp_path: Path) -> None:
    file = tmp_path / "beir.jsonl"
    rows = [{"_id": 7, "title": "Grapes", "text": "are red"}, {"_id": 8, "title": None, "text": ""}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_texts(file).texts == ["Grapes are red", ""]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "texts.tsv: is empty. One text a line"),
        ("a\tone\na\ttwo\n", "texts.tsv:2: gives the id 'a' another text than before. Give each text a different id"),
        ("a\tone\nb\n", "texts.tsv:2: has 1 fields, expected 2. Look for a stray line break"),
        ("\tone\n", "texts.tsv:1: has no id. Give each text an id"),
        ("just one column\n", "texts.tsv:1: has one column only"),
        ("id\tprice\na\t3\n", "texts.tsv:2: has no column for the texts. It has id, price; rename one to title"),
        ("id\ttext\na\t3\t4\n", "texts.tsv:2: has 3 fields, expected 2"),
        ('id,text\na,"open\n', "texts.tsv:2: is not CSV"),
        ('{"id": "a"}\n', "texts.tsv:1: has no column for the texts. It has id; rename"),
        ('{"text": "a"}\n', "texts.tsv:1: has no column for the ids. It has text; rename one to id"),
        ('{"id": 1.5, "text": "a"}\n', "texts.tsv:1: has the id 1.5. Ids are texts or whole numbers"),
        ('{"id": 1, "text": 2}\n', r"texts.tsv:1: has a text that is not a string \(2\)"),
        ('{"id": 1, "text": "a"}\n{\n', "texts.tsv:2: is not one JSON object"),
        ('[{"id": 1}]', "texts.tsv:1: is one JSON array"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_text(text)
    with pytest.raises(DataError, match=words):
        read_texts(file)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_bytes(b"a\tone\nb\t\xff\n")
    with pytest.raises(DataError, match=r"texts\.tsv:2: is not UTF-8 text"):
        read_texts(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_texts(tmp_path / "nowhere.tsv")


def test_ids_without_a_text_are_counted() -> None:
    texts = Texts.of(["b", "a"], ["two", "one"])
    assert texts.has(["a", "c", "b"]).tolist() == [True, False, True]
    with pytest.raises(DataError, match="2 of 3 rows name a query without a text, first 'c'"):
        texts.rows(["a", "c", "zz"], what="query")
    assert not Texts.of([], []).has(["a"]).any()
    with pytest.raises(DataError, match="an id is given twice"):
        Texts.of(["a", "a"], ["one", "two"])


def test_bm25_equals_a_calculation_by_hand() -> None:
    documents = Texts.of(["a", "b"], ["red red apple", "green pear"])
    corpus = BM25(k1=1.2, b=0.75, plurals=False).corpus(documents)
    queries = ["red pear unknown", "red red"]
    scores = corpus.scores(queries, documents.texts).toarray()
    idf = np.log(1 + 1.5 / 1.5)
    red = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2.5))
    pear = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 2.5))
    np.testing.assert_allclose(scores, [[red, pear], [2 * red, 0]], rtol=1e-12)
    pairs, _ = corpus.score_texts(queries, documents.texts, np.array([0, 1, 1]), np.array([1, 0, 1]))
    np.testing.assert_allclose(pairs, [pear, 2 * red, 0], rtol=1e-12)
    found = best_rows(corpus.scores(["pear red"], documents.texts), 3)
    assert found.tolist() == [[0, 1, -1]] if red > pear else [[1, 0, -1]]
    with pytest.raises(SettingError, match="b must be from 0 to 1"):
        BM25(b=2)


def test_a_line_that_is_not_a_judgement_is_named(tmp_path: Path) -> None:
    file = tmp_path / "some.qrel"
    file.write_text("q 0 d 2\nq 0 d\n")
    with pytest.raises(DataError, match=r"some\.qrel:2: is not a judgement\. Each line is"):
        read_qrel(file)


def test_nfcorpus_is_whole_and_bm25_ranks_it_as_published() -> None:
    """BM25 on NFCorpus: nDCG(lin)@10 about .32 (Thakur et al. 2021, with another stemmer .325)."""
    found = nfcorpus(shared_data("nfcorpus"), "test")
    assert (len(found.queries), len(found.documents), len(found.judgements)) == (325, 3394, 15820)
    scores = BM25().corpus(found.documents).scores(found.queries.texts, found.documents.texts)
    rows = best_rows(scores, 10)
    ids = np.where(rows >= 0, found.documents.ids[rows], "")
    grades = found.judgements.grades_of(np.repeat(found.queries.ids, 10), ids.ravel()).reshape(rows.shape)
    discount = 1 / np.log2(np.arange(2, 12))
    values = []
    for query, mine in zip(found.queries.ids, grades, strict=True):
        best = np.sort(found.judgements.grades[found.judgements.query_ids == query])[::-1][:10]
        if len(best):
            values.append(mine @ discount / (best @ discount[: len(best)]))
    assert np.mean(values) == pytest.approx(0.32, abs=0.01)


def test_one_long_id_costs_no_more_than_itself() -> None:
    """As numpy's text, 20,000 ids with one of 900 characters would take 72 MB."""
    names = [f"d{i:05}" for i in range(20_000)]
    tracemalloc.start()
    texts = Texts.of([*names, "x" * 900], ["a"] * 20_001)
    assert texts.rows(["x" * 900, "d00003", "d00003"]).tolist() == [20_000, 3, 3]
    assert texts.has(["d00003", "d"]).tolist() == [True, False]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8e6
