"""The study of criteria: its arithmetic, and a world small enough to run in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.click_models.pbm import Counts
from clickprism.simulation.worlds import WorldSettings
from clickprism.types import Clicks, Lists
from reproduce.choice.criteria import NAMES, Pairs, Told
from reproduce.choice.rankings import LEAST_CLICKS, held_out, likelihoods
from reproduce.choice.table import line, lines, markdown, outcome, write_expected
from reproduce.choice.worlds import row_of

NDCG = {"click/linear": 0.70, "click/blend": 0.72, "pooled/linear": 0.76, "pooled/blend": 0.74}


def test_regret_is_against_the_best_of_all_and_the_floor_is_the_same_ranker_on_clicks() -> None:
    values = {"click/linear": 3.0, "click/blend": 1.0, "pooled/linear": 2.0, "pooled/blend": 4.0}
    found = outcome(NDCG, values, "pooled/blend")
    assert found.regret == pytest.approx(0.02)
    assert found.below_click == pytest.approx(-0.02)
    # Ranks of the values 3 1 2 4, of nDCG 1 2 4 3: differences 2, -1, -2, 1, so 1 - 6 * 10 / (4 * 15) = 0.
    assert found.correlation == pytest.approx(0.0)
    assert found.defined


def test_a_criterion_that_is_silent_falls_back_to_clicks() -> None:
    found = outcome(NDCG, {}, "")
    assert (found.chosen, found.defined) == ("click/blend", False)
    assert found.regret == pytest.approx(0.04)
    assert found.below_click == 0
    assert np.isnan(found.correlation)


def test_only_candidates_with_a_value_are_correlated() -> None:
    values = {"click/linear": 1.0, "click/blend": 2.0, "pooled/linear": 3.0}
    assert outcome(NDCG, values, "pooled/linear").correlation == pytest.approx(1.0)
    assert np.isnan(outcome(NDCG, dict.fromkeys(NDCG, 1.0), "click/blend").correlation)


def test_the_table_takes_means_and_worsts_over_worlds(tmp_path: Path) -> None:
    silent = {"values": {}, "chosen": ""}
    right = {"values": NDCG, "chosen": "pooled/linear"}
    rows: list[dict[str, Any]] = [
        {"seed": 1, "world": {"coupling": 0.0}, "ndcg": NDCG, "criteria": dict.fromkeys(NAMES, silent)},
        {"seed": 2, "world": {"coupling": 0.3}, "ndcg": NDCG, "criteria": dict.fromkeys(NAMES, right)},
    ]
    found = line("tune", rows)
    assert (found.worlds, found.defined, found.worst_seed) == (2, 1, 1)
    assert (found.mean_regret, found.worst_regret, found.most_below_click) == (0.02, 0.04, 0.0)
    assert (found.mean_uncoupled, found.mean_among_tuned) == (0.04, 0.02)
    assert found.correlation == 1.0
    write_expected(lines(rows), tmp_path / "expected.csv")
    text = (tmp_path / "expected.csv").read_text(encoding="utf-8").splitlines()
    assert len(text) == 1 + len(NAMES)
    assert "always click,2,1,0.02,0.04,0.02,0.04,1,0.0,1.0" in text
    assert "| tune | 1 of 2 | 0.0200 | 0.0400 | 0.0200 | 0.0400 | 1 | 0.0000 | 1.00 |" in markdown(lines(rows))


def test_among_the_candidates_of_tune_the_next_best_is_taken() -> None:
    ndcg = NDCG | {"position/linear": 0.65}
    told = {"values": {"position/linear": 2.0, "pooled/blend": 1.0, "click/blend": 0.0}, "chosen": "position/linear"}
    row = {"seed": 1, "world": {"coupling": 0.0}, "ndcg": ndcg, "criteria": {"same position": told}}
    found = line("same position", [row])
    assert (found.mean_regret, found.mean_among_tuned) == (0.11, 0.02)


def test_a_criterion_takes_the_highest_value_that_there_is() -> None:
    assert Told.best({"click/linear": 1.0, "pooled/linear": 2.0, "pooled/blend": float("nan")}) == Told(
        {"click/linear": 1.0, "pooled/linear": 2.0}, "pooled/linear"
    )
    assert Told.best({}).chosen == ""


def test_agreement_counts_pairs_of_one_query_at_one_position() -> None:
    lists = Lists(np.zeros((5, 0), np.float32), np.array([0, 3, 5]), np.array(["q", "r"]))
    rows, positions = np.array([0, 1, 1, 2, 3]), np.array([1, 1, 2, 2, 1])
    counts = Counts(rows, positions, np.array([6.0, 2.0, 1.0, 3.0, 5.0]), np.full(5, 10.0))
    pairs = Pairs.of(counts, lists, counts.positions > 0)
    assert (pairs.ones.tolist(), pairs.others.tolist()) == ([0, 1], [1, 2])
    # n n' / (n + n') = 5; the rates differ by .4 at position 1, and by -.2 at position 2.
    assert pairs.weights == pytest.approx([2.0, -1.0])
    assert pairs.agreement(np.array([3.0, 2.0, 1.0, 0.0, 0.0])) == pytest.approx(1 / 3)
    assert pairs.agreement(np.array([3.0, 1.0, 2.0, 0.0, 0.0])) == pytest.approx(1.0)


def _log(clicks: list[int]) -> Clicks:
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    rows, positions = np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32)
    return Clicks(lists, np.array([0, 2, 4]), rows, positions, np.array(clicks), np.array([9000, 5000]))


def test_the_likelihood_of_other_rankings_is_that_of_where_their_clicks_fell() -> None:
    log = _log([3000, 1000, 1500, 500])
    assert held_out(log).tolist() == [False, True]
    # Kept, document 0 has three clicks of four: so it would have them there too, but it has one of four.
    found = likelihoods(log, {"click/linear": np.array([1.0, 0.0])})
    assert found["click/linear"] == pytest.approx(0.75 * np.log(0.25) + 0.25 * np.log(0.75), abs=1e-3)


def test_too_few_clicks_on_other_rankings_say_nothing() -> None:
    assert likelihoods(_log([3, 1, 2, int(LEAST_CLICKS) - 3]), {"click/linear": np.array([1.0, 0.0])}) == {}


def test_a_small_world_is_valued_by_every_criterion_and_kept(tmp_path: Path) -> None:
    settings = WorldSettings(queries=60, sessions=6000, features=6, days=2, seed=5)
    row = row_of(settings, tmp_path, ["pooled"])
    assert set(row["criteria"]) == set(NAMES)
    assert "click/blend" in row["ndcg"]
    for told in row["criteria"].values():
        assert not told["chosen"] or told["chosen"] in row["ndcg"]
        assert np.isfinite(list(told["values"].values())).all()
    assert all(line(name, [row]).mean_regret >= 0 for name in NAMES)
    assert row_of(settings, tmp_path) == row
