"""Simulated clicks: query frequencies, interventions, merging, chunks, and ideal clicks."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pytest

from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.coupled import CoupledUser, coupled
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.trust import TrustUser
from clickprism.errors import DataError, SettingError
from clickprism.settings import build
from clickprism.simulation import clicks as simulated_clicks
from clickprism.simulation.clicks import SimulationSettings, frequencies, ideal_clicks, simulate
from clickprism.simulation.rankings import InitialRanker, Intervention, Kind
from clickprism.types import Clicks, Int64, JudgedLists, Lists, Simulation

UNMERGED = SimulationSettings(merge="none")


def judged_lists(*, queries: int = 20, documents: int = 12) -> JudgedLists:
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (queries * documents, 5)).astype(np.float32)
    grades = np.clip(np.floor(2 + 2 * features[:, 0] + features[:, 1]), 0, 4).astype(np.int32)
    offsets = np.arange(queries + 1, dtype=np.int64) * documents
    return JudgedLists(Lists(features, offsets, np.array([str(i) for i in range(queries)])), grades)


def file_order_scores(judged: JudgedLists) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return scores that rank every list in file order."""
    return -np.arange(judged.lists.documents, dtype=np.float64)


def same(one: Simulation, other: Simulation) -> bool:
    names = ("offsets", "rows", "positions", "clicks", "impressions")
    pairs = [(getattr(one.clicks, name), getattr(other.clicks, name)) for name in names]
    pairs += [(getattr(one.truth, name), getattr(other.truth, name)) for name in ("observed", "attracted")]
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def indices_in_list(clicks: Clicks, documents: int) -> Int64:
    """Return the index in its list, from 0, of each shown document, [sessions, length]."""
    return (clicks.rows % documents).reshape(len(clicks), -1)


def test_the_initial_ranker_orders_the_lists_and_the_top_is_shown() -> None:
    judged = judged_lists()
    simulation = simulate(judged, PositionUser(), sessions=3000, seed=1)
    clicks = simulation.clicks
    assert clicks.sessions == 3000
    assert len(clicks) == 20
    assert clicks.max_position == 10
    assert judged.grades[clicks.rows[clicks.positions <= 3]].mean() > judged.grades.mean() + 0.3
    assert (simulation.truth.observed >= clicks.clicks).all()
    assert (simulation.truth.attracted >= clicks.clicks).all()
    assert same(simulation, simulate(judged, PositionUser(), sessions=3000, seed=1))
    assert not same(simulation, simulate(judged, PositionUser(), sessions=3000, seed=2))


def test_observation_equals_the_user_model() -> None:
    simulation = simulate(judged_lists(), PositionUser(), sessions=200_000, seed=1)
    expected = PositionUser().observation(np.arange(1, 11))
    assert np.abs(simulation.observation - expected).max() < 4 * np.sqrt(0.25 / 200_000)


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("by", ["list", "pattern", "none"])
def test_chunks_do_not_change_the_result(
    kind: Kind, by: Literal["list", "pattern", "none"], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = judged_lists(queries=4)
    settings = SimulationSettings(
        frequency="zipf", rankers=2, length=4, intervention=Intervention(kind=kind, share=0.5, depth=6), merge=by
    )
    whole = simulate(judged, ClickChainUser(), sessions=300, seed=3, settings=settings)
    monkeypatch.setattr(simulated_clicks, "CHUNK", 7)
    assert same(whole, simulate(judged, ClickChainUser(), sessions=300, seed=3, settings=settings))


@pytest.mark.parametrize("by", ["list", "pattern"])
def test_merging_equals_clicks_merge_and_sums_the_truth(by: Literal["list", "pattern"]) -> None:
    judged = judged_lists(queries=5)
    settings = replace(UNMERGED, length=4, intervention=Intervention(kind="swap", share=0.3))
    unmerged = simulate(judged, PositionUser(), sessions=2000, seed=1, settings=settings)
    merged = simulate(judged, PositionUser(), sessions=2000, seed=1, settings=replace(settings, merge=by))
    assert len(unmerged.clicks) == 2000
    expected = unmerged.clicks.merge(by=by)
    for name in ("offsets", "rows", "positions", "clicks", "impressions"):
        assert np.array_equal(getattr(merged.clicks, name), getattr(expected, name)), name
    counted = replace(unmerged.clicks, clicks=unmerged.truth.observed)
    if by == "list":
        assert np.array_equal(merged.truth.observed, counted.merge().clicks)
    assert merged.truth.observed.sum() == unmerged.truth.observed.sum()
    assert merged.truth.attracted.sum() == unmerged.truth.attracted.sum()
    assert same(merged, merged.merge(by=by))


def test_sessions_merged_by_list_cannot_be_split_by_pattern() -> None:
    simulation = simulate(judged_lists(), PositionUser(), sessions=2000, seed=1)
    with pytest.raises(DataError, match="cannot be split"):
        simulation.merge(by="pattern")


def test_frequency_each_asks_every_query_equally_often() -> None:
    judged = judged_lists(queries=7)
    clicks = simulate(judged, PositionUser(), sessions=3, seed=1, settings=SimulationSettings(frequency="each")).clicks
    assert clicks.impressions.tolist() == [3] * 7


def test_zipf_frequencies_have_the_exponent() -> None:
    chances = frequencies(100, exponent=1.5, rng=np.random.default_rng(0))
    assert chances.sum() == pytest.approx(1)
    assert chances.max() / np.sort(chances)[::-1] == pytest.approx(np.arange(1, 101) ** 1.5)
    assert not np.array_equal(chances, np.sort(chances)[::-1])
    judged = judged_lists(queries=50, documents=2)
    settings = SimulationSettings(frequency="zipf", exponent=1.5)
    clicks = simulate(
        judged, PositionUser(), sessions=100_000, seed=1, settings=settings, scores=file_order_scores(judged)
    ).clicks
    counts = np.sort(clicks.impressions)[::-1] / 100_000
    weights = np.arange(1, 51) ** -1.5
    expected = weights / weights.sum()
    top = slice(0, 10)
    assert (np.abs(counts - expected)[top] < 4 * np.sqrt(expected / 100_000)[top]).all()


def test_uniform_frequencies() -> None:
    judged = judged_lists(queries=4, documents=2)
    clicks = simulate(judged, PositionUser(), sessions=40_000, seed=1, scores=file_order_scores(judged)).clicks
    assert np.abs(clicks.impressions - 10_000).max() < 4 * np.sqrt(40_000 * 0.25 * 0.75)


def shown_indices(intervention: Intervention, *, documents: int = 5, length: int = 5, sessions: int = 20_000) -> Int64:
    judged = judged_lists(queries=1, documents=documents)
    settings = replace(UNMERGED, length=length, intervention=intervention)
    log = simulate(
        judged, PositionUser(), sessions=sessions, seed=1, settings=settings, scores=file_order_scores(judged)
    )
    return indices_in_list(log.clicks, documents)


def frequencies_of_lists(shown: Int64) -> dict[tuple[int, ...], float]:
    lists, counts = np.unique(shown, axis=0, return_counts=True)
    return {tuple(row): count / len(shown) for row, count in zip(lists.tolist(), counts.tolist(), strict=True)}


def test_swap_exchanges_neighbours_in_the_given_share() -> None:
    shown = frequencies_of_lists(shown_indices(Intervention(kind="swap", share=0.4)))
    swaps = [(1, 0, 2, 3, 4), (0, 2, 1, 3, 4), (0, 1, 3, 2, 4), (0, 1, 2, 4, 3)]
    assert shown == pytest.approx({(0, 1, 2, 3, 4): 0.6} | dict.fromkeys(swaps, 0.1), abs=0.014)


def test_pivot_exchanges_a_document_with_the_pivot() -> None:
    shown = frequencies_of_lists(shown_indices(Intervention(kind="pivot", share=0.4)))
    swaps = [(1, 0, 2, 3, 4), (2, 1, 0, 3, 4), (3, 1, 2, 0, 4), (4, 1, 2, 3, 0)]
    assert shown == pytest.approx({(0, 1, 2, 3, 4): 0.6} | dict.fromkeys(swaps, 0.1), abs=0.014)
    shown = frequencies_of_lists(shown_indices(Intervention(kind="pivot", pivot=3), documents=3, length=3))
    assert shown == pytest.approx({(2, 1, 0): 0.5, (0, 2, 1): 0.5}, abs=0.015)


def test_shuffle_gives_every_order_of_the_top() -> None:
    shown = frequencies_of_lists(shown_indices(Intervention(kind="shuffle", depth=3), length=4))
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert shown == pytest.approx({(*order, 3): 1 / 6 for order in orders}, abs=0.012)


def test_first_also_moves_documents_that_would_not_be_shown() -> None:
    shown = frequencies_of_lists(shown_indices(Intervention(kind="first", depth=4), length=3))
    assert shown == pytest.approx({(0, 1, 2): 0.25, (1, 0, 2): 0.25, (2, 0, 1): 0.25, (3, 0, 1): 0.25}, abs=0.013)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_interventions_keep_all_documents_of_short_lists(kind: Kind) -> None:
    lists = Lists(np.zeros((4, 1), np.float32), np.array([0, 0, 1, 4]), np.array(["none", "one", "three"]))
    judged = JudgedLists(lists, np.array([0, 1, 0, 1], np.int32))
    settings = replace(UNMERGED, frequency="each", intervention=Intervention(kind=kind, pivot=2))
    clicks = simulate(judged, PositionUser(), sessions=50, seed=1, settings=settings, scores=np.zeros(4)).clicks
    assert np.diff(clicks.offsets).tolist() == [0, 1, 3] * 50
    assert np.sort(clicks.rows.reshape(50, 4), axis=1).tolist() == [[0, 1, 2, 3]] * 50


def test_several_rankers() -> None:
    judged = judged_lists(queries=3)
    scores = np.stack([file_order_scores(judged), -file_order_scores(judged)])
    clicks = simulate(judged, PositionUser(), sessions=6000, seed=1, scores=scores).clicks
    assert len(clicks) == 6
    assert np.abs(clicks.impressions - 1000).max() < 4 * np.sqrt(6000 / 6)
    settings = SimulationSettings(rankers=3, initial=InitialRanker(share=0.1))
    assert len(simulate(judged_lists(), PositionUser(), sessions=2000, seed=1, settings=settings).clicks) > 30


def test_attraction_settings_are_applied() -> None:
    lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    judged = JudgedLists(lists, np.array([0, 2, 4], np.int32))
    settings = SimulationSettings(gain="linear", noise=0)
    user = TrustUser("hyperbolic")
    log = simulate(judged, user, sessions=100_000, seed=1, settings=settings, scores=file_order_scores(judged))
    plus, minus = user.trust(np.arange(1, 4))
    expected = plus * np.array([0, 0.5, 1]) + minus * np.array([1, 0.5, 0])
    assert log.truth.attracted / 100_000 == pytest.approx(expected, abs=0.007)


def test_a_coupled_user_is_adapted_to_the_lists() -> None:
    judged = judged_lists()
    plan, ready = CoupledUser(eta=0.3, count=3), coupled(judged, eta=0.3, count=3, seed=5)
    assert same(simulate(judged, plan, sessions=500, seed=5), simulate(judged, ready, sessions=500, seed=5))


def test_zero_sessions_give_an_empty_log() -> None:
    log = simulate(judged_lists(), PositionUser(), sessions=0, seed=1)
    assert len(log.clicks) == log.clicks.sessions == 0


def test_clicks_contain_neither_observation_nor_grades() -> None:
    log = simulate(judged_lists(), PositionUser(), sessions=10, seed=1)
    assert not hasattr(log.clicks, "observed")
    assert not hasattr(log.clicks.lists, "grades")


def test_settings_from_mappings() -> None:
    values = {"length": 5, "initial": {"share": 0.1}, "intervention": {"kind": "swap", "share": 0.2}, "max_grade": 4}
    settings = build(SimulationSettings, values, path="simulate")
    assert settings.intervention == Intervention(kind="swap", share=0.2)
    assert settings.initial.share == 0.1


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"frequency": "often"}, "frequency"),
        ({"gain": "cubic"}, "gain"),
        ({"merge": "all"}, "merge"),
        ({"exponent": -1.0}, "exponent"),
        ({"length": 0}, "length"),
        ({"rankers": 0}, "rankers"),
        ({"noise": 2.0}, "noise"),
        ({"intervention": {"kind": "sort"}}, "intervention.kind"),
        ({"intervention": {"share": 1.1}}, "intervention.share"),
        ({"intervention": {"depth": 0}}, "intervention.depth"),
        ({"intervention": {"pivot": 0}}, "intervention.pivot"),
    ],
)
def test_errors_name_the_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(SettingError, match=f"simulate.{field} must"):
        build(SimulationSettings, values, path="simulate")


def test_python_callers_get_the_same_errors() -> None:
    with pytest.raises(SettingError, match="frequency"):
        SimulationSettings(frequency="often")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="kind"):
        Intervention(kind="sort")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="sessions"):
        simulate(judged_lists(), PositionUser(), sessions=-1, seed=0)
    with pytest.raises(SettingError, match="seed"):
        simulate(judged_lists(), PositionUser(), sessions=1, seed=-1)
    with pytest.raises(DataError, match="no judged lists"):
        simulate(judged_lists().take([]), PositionUser(), sessions=1, seed=0)


def test_ideal_clicks_are_proportional_to_the_gain() -> None:
    lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 3, 3, 5]), np.array(["a", "b", "c"]))
    judged = JudgedLists(lists, np.array([2, 0, 1, 0, 0], np.int32))
    clicks = ideal_clicks(judged)
    assert clicks.clicks.tolist() == [3, 0, 1, 0, 0]
    assert clicks.impressions.tolist() == [3, 3, 3]
    assert clicks.positions.tolist() == [1, 2, 3, 1, 2]
    assert ideal_clicks(judged, max_grade=4).impressions.tolist() == [15, 15, 15]
    assert ideal_clicks(judged.take([2])).impressions.tolist() == [1]
    with pytest.raises(SettingError, match="max_grade"):
        ideal_clicks(judged, max_grade=1)
    with pytest.raises(DataError, match="too high"):
        ideal_clicks(judged, max_grade=40)
