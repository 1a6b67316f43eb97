"""Comparisons join runs by query, test against the baseline, and render without losing a fact."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest

from clickprism._util.tables import to_json, to_plain
from clickprism.errors import DataError, SettingError
from clickprism.evaluation import compare as tables
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.measures import Empty, Evaluation, Measure
from clickprism.evaluation.significance import holm, interval, paired_randomisation, paired_t

NDCG, ARP = Measure.parse("nDCG@10"), Measure.parse("ARP")


def evaluation(
    values: list[float], *more: list[float], ids: list[str] | None = None, empty: Empty = "drop"
) -> Evaluation:
    names = np.array(ids or [f"q{i}" for i in range(len(values))])
    return Evaluation((NDCG, ARP)[: 1 + len(more)], np.array([values, *more]), names, empty)


def spread(mean: float, *, seed: int, queries: int = 60) -> list[float]:
    values: list[float] = np.random.default_rng(seed).normal(mean, 0.05, size=queries).tolist()
    return values


def sample(**settings: object) -> Comparison:
    given = {
        "click": evaluation(spread(0.5, seed=1), spread(5.0, seed=5)),
        "a_b<c>": evaluation(spread(0.6, seed=2), spread(6.0, seed=6)),
        "dla": [
            evaluation(spread(0.7, seed=3), spread(4.0, seed=7)),
            evaluation(spread(0.7, seed=4), spread(4.0, seed=8)),
        ],
        "labels": evaluation(spread(0.9, seed=9), spread(2.0, seed=9)),
    }
    settings = {"baseline": "click", "reference": ["labels"], "data": "toy & co", "seeds": [1, 2]} | settings
    return compare(given, **settings)  # type: ignore[arg-type]


def test_rows_agree_with_a_calculation_by_hand() -> None:
    base = evaluation([0.1, 0.2, np.nan, 0.6])
    better = evaluation([0.3, 0.4, np.nan, 0.5])
    result = compare({"base": base, "better": better}, baseline="base")
    first, second = result.rows
    assert [first.mean, second.mean] == pytest.approx([0.3, 0.4])
    assert second.difference == pytest.approx(0.1)
    assert first.difference is first.p_value is first.p_corrected is None
    assert second.p_value == pytest.approx(paired_t(np.array([0.3, 0.4, 0.5]), np.array([0.1, 0.2, 0.6])).p_value)
    assert (first.verdict, second.verdict) == ("", "")
    assert (first.best, second.best) == (False, True)
    assert (result.queries[str(NDCG)], result.dropped[str(NDCG)]) == (3, 1)


def test_intervals_tests_and_correction_are_those_of_the_room() -> None:
    result = sample()
    click, other, dla, labels = result.of(NDCG)
    values = np.array(spread(0.5, seed=1))
    merged = (np.array(spread(0.7, seed=3)) + np.array(spread(0.7, seed=4))) / 2
    alone = interval(values)
    assert [click.low, click.high] == pytest.approx([alone.low, alone.high])
    gap = interval(merged - values)
    assert [dla.difference_low, dla.difference_high] == pytest.approx([gap.low, gap.high])
    p_values = [paired_t(np.array(spread(0.6, seed=2)), values), paired_t(merged, values)]
    p_values.append(paired_t(np.array(spread(0.9, seed=9)), values))
    expected = holm(np.array([test.p_value for test in p_values]))
    assert [other.p_corrected, dla.p_corrected, labels.p_corrected] == pytest.approx(expected.tolist(), rel=1e-6)
    randomised = sample(test="randomisation", seed=4)
    expected_p = paired_randomisation(merged, values, seed=4).p_value
    assert randomised.of(NDCG)[2].p_value == expected_p


def test_marks_follow_the_direction_of_the_measure() -> None:
    result = sample()
    assert [row.verdict for row in result.of(NDCG)] == ["", "better", "better", "better"]
    assert [row.verdict for row in result.of(ARP)] == ["", "worse", "better", "better"]
    assert [row.best for row in result.of(NDCG)] == [False, False, True, False]
    assert [row.best for row in result.of(ARP)] == [False, False, True, False]
    assert [row.best for row in sample(reference=[]).of(ARP)] == [False, False, False, True]


def test_folds_are_joined_and_seeds_averaged() -> None:
    folds = [evaluation([0.1, 0.2], ids=["a", "b"]), evaluation([0.6], ids=["c"])]
    seeds = [evaluation([0.1, 0.2, 0.6], ids=["a", "b", "c"]), evaluation([0.3, 0.4, 0.8], ids=["a", "b", "c"])]
    shuffled = evaluation([0.7, 0.2, 0.3], ids=["c", "a", "b"])
    result = compare({"folds": folds, "seeds": seeds, "shuffled": shuffled}, baseline="folds")
    assert [row.mean for row in result.rows] == pytest.approx([0.3, 0.4, 0.4])
    assert all((row.p_value or 0) < 1e-6 for row in result.rows)
    assert result.queries[str(NDCG)] == 3
    assert "runs: folds 2, seeds 2, shuffled 1" in result.notes[0]


def test_lists_that_share_a_query_id_stay_apart() -> None:
    twice = evaluation([0.1, 0.5, 0.9], ids=["a", "a", "b"])
    result = compare({"x": [twice, twice]})
    assert result.queries[str(NDCG)] == 3
    assert result.rows[0].mean == pytest.approx(0.5)


def test_what_cannot_be_compared_is_refused() -> None:
    one = evaluation([0.1, 0.2])
    with pytest.raises(DataError, match="nothing to compare"):
        compare({})
    with pytest.raises(DataError, match="dla has no evaluation"):
        compare({"dla": []})
    with pytest.raises(SettingError, match="did you mean 'click'"):
        compare({"click": one}, baseline="clik")
    with pytest.raises(SettingError, match="reference"):
        compare({"click": one}, reference=["labels"])
    with pytest.raises(SettingError, match="randomisation"):
        compare({"click": one}, test="wilcoxon")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="evaluated"):
        compare({"click": one}, measures=["MAP"])
    with pytest.raises(DataError, match="different queries: q2 and 0 more"):
        compare({"click": one, "dla": evaluation([0.1, 0.2, 0.3])})
    with pytest.raises(DataError, match="same rule"):
        compare({"click": one, "dla": evaluation([0.1, 0.2], empty="one")})


def test_one_query_or_none_has_no_interval() -> None:
    single = compare({"a": evaluation([0.5]), "b": evaluation([0.25])}, baseline="a")
    assert single.rows[1].verdict == ""
    assert to_plain(single)["rows"][1]["low"] is None
    assert "n/a" in str(single)
    nothing = compare({"a": evaluation([np.nan, np.nan])})
    assert to_plain(nothing)["rows"][0]["mean"] is None
    assert not nothing.rows[0].best


@pytest.mark.parametrize(
    "rendered",
    [str, tables.as_markdown, tables.as_html],
    ids=["text", "markdown", "html"],
)
def test_every_rendering_names_what_one_must_know(rendered: Callable[[Comparison], str]) -> None:
    text = " ".join(rendered(sample()).replace("&#x27;", "'").split())
    for fact in (
        "nDCG(exp)@10",
        "ARP",
        "toy",
        "seeds 1, 2",
        "over 60 queries",
        "Queries without a relevant document are dropped",
        "paired t-test",
        "Holm's correction over 3 comparisons",
        "BCa bootstrap",
        "2000 resamples",
        "unit of analysis is the query",
        "lower is better",
        "For reference only, as they use the grades or the true observation: labels",
    ):
        assert fact in text


def test_text_is_aligned_and_stars_the_best() -> None:
    lines = str(sample()).splitlines()
    assert lines[0].split() == [
        "method",
        "nDCG(exp)@10",
        "95%",
        "interval",
        "vs",
        "click",
        "95%",
        "interval",
        "p",
        "(Holm)",
    ]
    column = lines[0].index("95%")
    assert all(line[column] == "[" for line in lines[1:5])
    assert [line.split()[0] for line in lines[1:5] if " * ▲" in line] == ["dla"]
    assert "baseline" in lines[1]


def test_markdown_escapes_and_bolds() -> None:
    text = tables.as_markdown(sample())
    assert "| a\\_b\\<c> |" in text
    row = next(line for line in text.splitlines() if line.startswith("| dla"))
    assert row.startswith("| dla | **0.6")
    assert "** ▲ |" in row


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_well_formed_and_escaped() -> None:
    text = tables.as_html(sample())
    parser = Tags()
    parser.feed(text)
    assert parser.open == []
    assert parser.seen.count("strong") == 2
    assert parser.seen.count("caption") == 2
    assert "a_b&lt;c&gt;" in text
    assert "<c>" not in text


def test_json_has_a_row_for_each_method_and_measure() -> None:
    result = json.loads(to_json(sample()))
    rows = {(row["measure"], row["method"]): row for row in result["rows"]}
    methods = ["click", "a_b<c>", "dla", "labels"]
    assert list(rows) == [(measure, method) for measure in ("nDCG(exp)@10", "ARP") for method in methods]
    dla = rows["nDCG(exp)@10", "dla"]
    assert dla["low"] < dla["mean"] < dla["high"]
    assert dla["p_corrected"] < 0.05
    assert rows["ARP", "click"]["difference"] is None
    assert (result["empty"], result["test"], result["queries"]["ARP"]) == ("drop", "t", 60)


def test_without_a_baseline_there_is_no_test() -> None:
    result = sample(baseline=None, measures=["ARP"])
    assert result.measures == (str(ARP),)
    assert {row.p_value for row in result.rows} == {None}
    assert "Holm" not in str(result)
    assert str(result).splitlines()[0].split()[-1] == "interval"
