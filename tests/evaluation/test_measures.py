"""Measures: arithmetic by hand, and agreement with pytrec_eval and ir_measures."""

from __future__ import annotations

import shutil
from math import log2

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import Evaluation, Measure, evaluate
from clickprism.types import JudgedLists, Lists


def judged(*grades: list[int], ids: list[str] | None = None) -> JudgedLists:
    lengths = [len(one) for one in grades]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    names = np.array(ids if ids is not None else [str(i) for i in range(len(grades))], dtype=np.str_)
    lists = Lists(np.zeros((sum(lengths), 1), np.float32), offsets, names)
    return JudgedLists(lists, np.array([grade for one in grades for grade in one], dtype=np.int32))


def in_order(data: JudgedLists) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return -np.arange(data.lists.documents, dtype=np.float64)


def value(data: JudgedLists, name: str) -> float:
    return evaluate(data, in_order(data), name).mean(name)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("nDCG@10", "nDCG(exp)@10"),
        ("ndcg(lin)@5", "nDCG(lin)@5"),
        ("DCG", "DCG(exp)"),
        ("ERR@10", "ERR@10"),
        ("ERR( max = 4 )@10", "ERR(max=4)@10"),
        ("MAP", "MAP(rel=1)"),
        ("MRR(rel=2)@3", "MRR(rel=2)@3"),
        ("P@1", "P(rel=1)@1"),
        (" ARP ", "ARP"),
    ],
)
def test_a_name_prints_and_parses_back(name: str, printed: str) -> None:
    assert str(Measure.parse(name)) == printed
    assert Measure.parse(printed) == Measure.parse(name)


kinds = st.one_of(
    st.builds(Measure, st.sampled_from(["nDCG", "DCG"]), gain=st.sampled_from(["exp", "lin"])),
    st.builds(Measure, st.sampled_from(["MAP", "MRR", "P"]), relevant=st.integers(1, 9), cutoff=st.integers(1, 99)),
    st.builds(Measure, st.just("ERR"), max_grade=st.none() | st.integers(1, 9), cutoff=st.none() | st.integers(1, 99)),
    st.builds(Measure, st.just("ARP"), cutoff=st.none() | st.integers(1, 99)),
)


@given(kinds)
def test_every_measure_round_trips(measure: Measure) -> None:
    assert Measure.parse(str(measure)) == measure


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nDGC@10", "did you mean 'nDCG'"),
        ("AP@10", "did you mean 'MAP'"),
        ("recall@10", "known: ARP"),
        ("nDCG@", "look like"),
        ("nDCG@0", "at least 1"),
        ("nDCG(cubic)@10", "'exp'"),
        ("MAP(exp)", "MAP(rel=4)"),
        ("ARP(rel=1)", "look like ARP"),
        ("ERR(max=x)", "ERR(max=4)"),
        ("", "look like"),
    ],
)
def test_an_error_suggests_the_right_name(name: str, told: str) -> None:
    with pytest.raises(SettingError, match=told.replace("(", r"\(").replace(")", r"\)")):
        Measure.parse(name)


def test_the_gain_must_be_named() -> None:
    with pytest.raises(SettingError, match=r"nDCG\.gain"):
        Measure("nDCG", cutoff=10)
    with pytest.raises(SettingError, match=r"ARP\.gain"):
        Measure("ARP", gain="exp")
    with pytest.raises(SettingError, match="did you mean 'MRR'"):
        Measure("MMRR")


def test_only_a_position_is_better_when_lower() -> None:
    assert not Measure.parse("ARP").higher_is_better
    assert Measure.parse("nDCG@10").higher_is_better


def test_measures_agree_with_a_calculation_by_hand() -> None:
    data = judged([1, 0, 3, 2])
    dcg_exp = 1 + 7 / log2(4) + 3 / log2(5)
    ideal_exp = 7 + 3 / log2(3) + 1 / log2(4)
    assert value(data, "DCG(exp)") == pytest.approx(dcg_exp, rel=1e-14)
    assert value(data, "DCG(lin)@3") == pytest.approx(1 + 3 / 2, rel=1e-14)
    assert value(data, "nDCG(exp)") == pytest.approx(dcg_exp / ideal_exp, rel=1e-14)
    assert value(data, "nDCG(exp)@1") == pytest.approx(1 / 7, rel=1e-14)
    assert value(data, "nDCG(lin)@2") == pytest.approx(1 / (3 + 2 / log2(3)), rel=1e-14)
    assert value(data, "MAP") == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 3, rel=1e-14)
    assert value(data, "MAP@3") == pytest.approx((1 / 1 + 2 / 3) / 3, rel=1e-14)
    assert value(data, "MAP(rel=2)") == pytest.approx((1 / 3 + 2 / 4) / 2, rel=1e-14)
    assert value(data, "MRR(rel=2)") == pytest.approx(1 / 3, rel=1e-14)
    assert value(data, "MRR(rel=2)@2") == 0
    assert value(data, "P@2") == 0.5
    assert value(data, "P@10") == pytest.approx(0.3, rel=1e-14)
    assert value(data, "P") == 0.75
    assert value(data, "ARP") == pytest.approx((1 * 1 + 3 * 3 + 2 * 4) / 6, rel=1e-14)
    assert value(data, "ARP@2") == pytest.approx((1 * 1 + 3 * 3 + 2 * 3) / 6, rel=1e-14)
    stops = [1 / 8, 0, 7 / 8, 3 / 8]
    err = stops[0] + (1 - stops[0]) * stops[2] / 3 + (1 - stops[0]) * (1 - stops[2]) * stops[3] / 4
    assert value(data, "ERR") == pytest.approx(err, rel=1e-14)
    assert value(data, "ERR@1") == pytest.approx(1 / 8, rel=1e-14)
    assert value(data, "ERR(max=4)@1") == pytest.approx(1 / 16, rel=1e-14)


def test_the_scale_of_err_is_written_into_the_name() -> None:
    data = judged([1, 0, 3, 2])
    result = evaluate(data, in_order(data), ["ERR@10", "ARP"])
    assert [str(measure) for measure in result.measures] == ["ERR(max=3)@10", "ARP"]
    assert result.mean("ERR@10") == result.mean("ERR(max=3)@10")
    with pytest.raises(SettingError, match=r"ERR\(max=3\)@10"):
        result.mean("ERR(max=4)@10")
    with pytest.raises(DataError, match="above the scale"):
        evaluate(data, in_order(data), "ERR(max=2)")


def test_what_queries_without_a_relevant_document_count() -> None:
    data = judged([0, 0], [1, 0], [], [2, 1])
    scores = in_order(data)
    dropped = evaluate(data, scores, ["nDCG@10", "MAP(rel=2)"])
    assert np.isnan(dropped["nDCG@10"]).tolist() == [True, False, True, False]
    assert np.isnan(dropped["MAP(rel=2)"]).tolist() == [True, True, True, False]
    assert dropped.queries("nDCG@10") == 2
    assert dropped.queries("MAP(rel=2)") == 1
    assert dropped.mean("nDCG@10") == 1.0
    assert evaluate(data, scores, "nDCG@10", empty="zero").mean("nDCG@10") == 0.5
    assert evaluate(data, scores, "nDCG@10", empty="one")["nDCG@10"].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert evaluate(data, scores, "nDCG@10", empty="zero").empty == "zero"
    with pytest.raises(SettingError, match="drop, zero, one"):
        evaluate(data, scores, "nDCG@10", empty="skip")  # type: ignore[arg-type]


def test_nothing_to_count_is_nan_without_a_warning() -> None:
    none = judged([0, 0])
    assert np.isnan(evaluate(none, in_order(none), "ERR").mean("ERR"))
    empty = judged()
    assert np.isnan(evaluate(empty, in_order(empty), "nDCG").mean("nDCG"))


def test_scores_must_fit_and_be_numbers() -> None:
    data = judged([1, 0, 2])
    with pytest.raises(DataError, match="3 documents"):
        evaluate(data, np.zeros(2), "nDCG")
    with pytest.raises(DataError, match="the first at row 1"):
        evaluate(data, np.array([0.0, np.nan, 1.0]), "nDCG")
    with pytest.raises(SettingError, match="at least one measure"):
        evaluate(data, np.zeros(3), [])


def test_infinite_scores_rank_and_minus_infinity_is_above_padding() -> None:
    data = judged([1, 0, 2], [1, 2, 0, 0, 1])
    scores = np.array([-np.inf, np.inf, 0.0, 1, 2, 3, 4, 5])
    ranks = np.array([0.0, 2.0, 1.0, 1, 2, 3, 4, 5])
    for name in ("nDCG", "MAP", "ARP", "P"):
        assert evaluate(data, scores, name)[name].tolist() == evaluate(data, ranks, name)[name].tolist()


def test_grades_too_high_for_a_power_are_refused_but_linear_gain_takes_them() -> None:
    data = judged([2000, 1000])
    with pytest.raises(DataError, match="linear gain"):
        evaluate(data, in_order(data), "nDCG(exp)")
    assert value(data, "nDCG(lin)") == 1.0


def test_constant_scores_are_worth_a_random_order_even_if_the_file_is_sorted_by_grade() -> None:
    rng = np.random.default_rng(1)
    best_first = [sorted(rng.choice(5, size=20, p=[0.5, 0.27, 0.16, 0.05, 0.02]).tolist())[::-1] for _ in range(2000)]
    tied = judged(*best_first)
    constant = evaluate(tied, np.zeros(tied.lists.documents), ["nDCG@10", "MRR(rel=2)"])
    chance = [evaluate(tied, rng.random(tied.lists.documents), ["nDCG@10", "MRR(rel=2)"]) for _ in range(5)]
    for name in ("nDCG@10", "MRR(rel=2)"):
        expected = np.mean([one.mean(name) for one in chance])
        error = np.nanstd(constant[name]) / np.sqrt(constant.queries(name))
        assert abs(constant.mean(name) - expected) < 4 * error
    assert evaluate(tied, in_order(tied), "nDCG@10").mean("nDCG@10") == 1.0


def test_ties_are_the_same_whatever_lists_stand_around() -> None:
    data = judged([3, 2, 1, 0, 0, 1], [0, 1, 0, 2], [4, 0, 0, 1, 2], ids=["a", "bb", "a longer id"])
    zeros = np.zeros(data.lists.documents)
    whole = evaluate(data, zeros, "nDCG")["nDCG"]
    for i in range(3):
        part = data.take([i])
        assert evaluate(part, np.zeros(part.lists.documents), "nDCG")["nDCG"][0] == pytest.approx(whole[i], rel=1e-12)
    fresh = judged([0, 1, 0, 2], ids=["bb"])
    assert evaluate(fresh, np.zeros(4), "nDCG")["nDCG"][0] == pytest.approx(whole[1], rel=1e-12)


def test_ties_break_only_among_the_tied() -> None:
    data = judged([0, 2, 1, 0])
    assert evaluate(data, np.array([1.0, 3.0, 2.0, 1.0]), "nDCG").mean("nDCG") == 1.0


queries = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=40), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(queries, st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 10, 1000]))
def test_agrees_with_pytrec_eval(grades: list[list[int]], seed: int, cutoff: int) -> None:
    data = judged(*grades)
    scores = np.random.default_rng(seed).permutation(data.lists.documents).astype(np.float64)
    run, linear, exponential = trec(data, scores)
    names = {
        f"nDCG(lin)@{cutoff}": f"ndcg_cut_{cutoff}",
        "nDCG(lin)": "ndcg",
        "MAP(rel=1)": "map",
        f"MAP(rel=1)@{cutoff}": f"map_cut_{cutoff}",
        "MRR(rel=1)": "recip_rank",
        f"P(rel=1)@{cutoff}": f"P_{cutoff}",
    }
    measures = {f"ndcg_cut.{cutoff}", "ndcg", "map", f"map_cut.{cutoff}", "recip_rank", f"P.{cutoff}"}
    theirs = pytrec_eval.RelevanceEvaluator(linear, measures).evaluate(run)
    agree(evaluate(data, scores, list(names), empty="zero"), theirs, names)
    theirs = pytrec_eval.RelevanceEvaluator(linear, {f"map_cut.{cutoff}"}, relevance_level=3).evaluate(run)
    agree(
        evaluate(data, scores, f"MAP(rel=3)@{cutoff}", empty="zero"),
        theirs,
        {f"MAP(rel=3)@{cutoff}": f"map_cut_{cutoff}"},
    )
    theirs = pytrec_eval.RelevanceEvaluator(exponential, {f"ndcg_cut.{cutoff}"}).evaluate(run)
    agree(evaluate(data, scores, f"nDCG@{cutoff}", empty="zero"), theirs, {f"nDCG@{cutoff}": f"ndcg_cut_{cutoff}"})


def trec(
    data: JudgedLists, scores: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    run: dict[str, dict[str, float]] = {}
    linear: dict[str, dict[str, int]] = {}
    for row, owner in enumerate(data.lists.list_of):
        run.setdefault(str(owner), {})[f"d{row}"] = float(scores[row])
        linear.setdefault(str(owner), {})[f"d{row}"] = int(data.grades[row])
    exponential = {q: {d: 2**y - 1 for d, y in documents.items()} for q, documents in linear.items()}
    return run, linear, exponential


def agree(ours: Evaluation, theirs: dict[str, dict[str, float]], names: dict[str, str]) -> None:
    for name, other in names.items():
        expected = [theirs[query][other] for query in ours.query_ids]
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(queries, st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 10]))
def test_agrees_with_ir_measures(grades: list[list[int]], seed: int, cutoff: int) -> None:
    data = judged(*grades)
    scores = np.random.default_rng(seed).permutation(data.lists.documents).astype(np.float64)
    run, linear, _ = trec(data, scores)
    pairs = {
        f"MRR(rel=2)@{cutoff}": ir_measures.RR(rel=2) @ cutoff,
        f"MAP(rel=2)@{cutoff}": ir_measures.AP(rel=2) @ cutoff,
        f"P(rel=2)@{cutoff}": ir_measures.P(rel=2) @ cutoff,
        f"nDCG(exp)@{cutoff}": ir_measures.nDCG(gains={1: 1, 2: 3, 3: 7, 4: 15}) @ cutoff,
    }
    ours = evaluate(data, scores, list(pairs), empty="zero")
    found = {(m.query_id, str(m.measure)): m.value for m in ir_measures.iter_calc(list(pairs.values()), linear, run)}
    for name, theirs in pairs.items():
        expected = [found[query, str(theirs)] for query in ours.query_ids]
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-9)


@pytest.mark.skipif(shutil.which("perl") is None, reason="ir_measures computes ERR with gdeval, a Perl script")
def test_err_agrees_with_gdeval_to_its_five_digits() -> None:
    rng = np.random.default_rng(5)
    data = judged(*[rng.integers(0, 5, size=rng.integers(1, 30)).tolist() for _ in range(60)])
    scores = rng.permutation(data.lists.documents).astype(np.float64)
    run, linear, _ = trec(data, scores)
    pairs = {"ERR(max=4)@10": ir_measures.ERR @ 10, "nDCG(exp)@10": ir_measures.nDCG(dcg="exp-log2") @ 10}
    ours = evaluate(data, scores, list(pairs), empty="zero")
    found = {(m.query_id, str(m.measure)): m.value for m in ir_measures.iter_calc(list(pairs.values()), linear, run)}
    for name, theirs in pairs.items():
        expected = [found[query, str(theirs)] for query in ours.query_ids]
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=6e-6)


def slow_err(grades: list[int], top: int, cutoff: int) -> float:
    total, reached = 0.0, 1.0
    for rank, grade in enumerate(grades[:cutoff], start=1):
        stop = (2**grade - 1) / 2**top
        total += reached * stop / rank
        reached *= 1 - stop
    return total


@given(queries, st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_err_and_arp_agree_with_their_definitions(grades: list[list[int]], cutoff: int) -> None:
    data = judged(*grades)
    result = evaluate(data, in_order(data), [f"ERR(max=4)@{cutoff}", "ARP", f"ARP@{cutoff}"])
    for i, one in enumerate(grades):
        if max(one) == 0:
            assert np.isnan(result.values[:, i]).all()
            continue
        positions = range(1, len(one) + 1)
        arp = sum(y * k for y, k in zip(one, positions, strict=True)) / sum(one)
        cut = sum(y * min(k, cutoff + 1) for y, k in zip(one, positions, strict=True)) / sum(one)
        np.testing.assert_allclose(result.values[:, i], [slow_err(one, 4, cutoff), arp, cut], rtol=1e-12)


@given(queries, st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_only_the_order_of_scores_matters_and_the_ideal_is_one(grades: list[list[int]], seed: int) -> None:
    data = judged(*grades)
    scores = np.random.default_rng(seed).permutation(data.lists.documents).astype(np.float64)
    names = ["nDCG@10", "ERR(max=4)", "MAP", "ARP"]
    before = scores.copy()
    once, again = evaluate(data, scores, names), evaluate(data, np.exp(scores / 50), names)
    np.testing.assert_array_equal(once.values, again.values)
    np.testing.assert_array_equal(scores, before)
    ideal = evaluate(data, data.grades, "nDCG@10", empty="one")
    np.testing.assert_allclose(ideal["nDCG@10"], 1, rtol=1e-14)
