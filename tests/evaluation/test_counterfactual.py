"""What a new ranker would earn: by hand, and against the truth of simulated users."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from clickprism._util.tables import to_plain
from clickprism.data.logged import Logged
from clickprism.errors import ClickprismError, DataError, SettingError
from clickprism.evaluation.counterfactual import counterfactual
from clickprism.evaluation.counterfactual_result import CounterfactualResult
from clickprism.evaluation.counterfactual_settings import NAMES, CounterfactualSettings, Name
from clickprism.evaluation.counterfactual_support import place
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.worlds import World, WorldSettings, make_world
from clickprism.types import Clicks, Float64, Lists

EASY = CounterfactualSettings(least_effective=1, least_queries=1, most_missing=0.6)


def two_queries() -> Clicks:
    """Query a: 8 sessions of (0, 1), 2 of (1, 0). Query b: 10 of (2, 3). Merged by list."""
    lists = Lists(np.zeros((4, 0), np.float32), np.array([0, 2, 4]), np.array(["a", "b"]))
    return Clicks(
        lists,
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 1, 0, 2, 3]),
        np.array([1, 2, 1, 2, 1, 2], np.int32),
        np.array([4, 2, 1, 1, 5, 0]),
        np.array([8, 2, 10]),
    )


def value(log: Clicks, scores: list[float], name: Name, *, clip: float = 1000) -> float:
    made = counterfactual(Logged(log), np.array(scores), settings=replace(EASY, clip=clip, estimator=(name,)))
    return made.estimates[name].value.value


@pytest.mark.parametrize("name", ["ips", "snips", "reward-interaction", "cascade-dr", "item-position"])
def test_what_was_shown_earns_what_it_earned(name: Name) -> None:
    """Query a turned around: (1 + 1) / 2 clicks a session; query b as it was: 5 / 10; as many sessions each."""
    assert value(two_queries(), [0, 1, 1, 0], name) == pytest.approx((1.0 + 0.5) / 2)


def test_what_was_never_shown() -> None:
    """Query b turned around was not shown: nothing for IPS, as query a for the self-normalised."""
    assert value(two_queries(), [0, 1, 0, 1], "ips") == pytest.approx(0.5)
    assert value(two_queries(), [0, 1, 0, 1], "snips") == pytest.approx(1.0)


def test_weights_are_clipped() -> None:
    """Query a turned around has p = 2 / 10, a weight of 5; at most 2 keeps 2 / 5 of it."""
    assert value(two_queries(), [0, 1, 1, 0], "ips", clip=2) == pytest.approx((0.4 * 1.0 + 0.5) / 2)
    made = counterfactual(Logged(two_queries()), np.array([0.0, 1, 1, 0]), settings=replace(EASY, clip=2))
    ips = made.estimates["ips"]
    assert ips.missing == pytest.approx(0.6 / 2)
    assert ips.clipped == pytest.approx(1 / 2)
    assert made.logged.value == pytest.approx((4 + 2 + 1 + 1 + 5) / 20)


def test_dcg_discounts_lower_positions() -> None:
    made = counterfactual(Logged(two_queries()), np.array([1.0, 0, 1, 0]), settings=replace(EASY, measure="dcg"))
    expected = ((4 + 2 / np.log2(3)) / 8 + 5 / 10) / 2
    assert made.estimates["item-position"].value.value == pytest.approx(expected)
    assert made.logged.value == pytest.approx((4 + 1 + 5 + (2 + 1) / np.log2(3)) / 20)


def test_matches_by_item_top_and_list() -> None:
    """Of (0, 1, 2) and (0, 2, 1), the new list (0, 2, 3) has its top of two in the second only, and no whole list."""
    lists = Lists(np.zeros((4, 0), np.float32), np.array([0, 4]), np.array(["q"]))
    log = Clicks(
        lists,
        np.array([0, 3, 6]),
        np.array([0, 1, 3, 0, 2, 1]),
        np.array([1, 2, 3, 1, 2, 3], np.int32),
        np.array([3, 0, 3, 0, 2, 0]),
        np.array([3, 2]),
    )
    placed = place(log, np.array([4.0, 1, 3, 2]), depth=3)
    assert placed.rows.tolist() == [[0, 2, 3]]
    assert placed.cells("item").shown.tolist() == [[5, 2, 3]]
    assert placed.cells("item").clicked.tolist() == [[3, 2, 3]]
    assert placed.cells("top").shown.tolist() == [[5, 2, 0]]
    assert placed.cells("list").shown.tolist() == [[0, 0, 0]]
    assert placed.cells("top").rates[0].tolist() == pytest.approx([0.6, 1.0, 0.0])


def test_the_log_as_it_is_differs_by_nothing() -> None:
    log = two_queries().take([0, 2])
    made = counterfactual(Logged(log), np.array([1.0, 0, 1, 0]), settings=EASY)
    for name in NAMES[:6]:
        assert made.estimates[name].difference.value == pytest.approx(0, abs=1e-12)
        assert made.estimates[name].verdict == "no difference found"


@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (SettingError, "estimator must be a known estimator", {"estimator": ("ipw",)}),
        (SettingError, "measure must be one of clicks, dcg", {"measure": "ndcg"}),
        (SettingError, "depth must be at least 1", {"depth": 0}),
        (DataError, "fell together", {"unit": "search"}),
    ],
)
def test_errors_say_what_is_wrong(error: type[ClickprismError], words: str, given: dict[str, object]) -> None:
    with pytest.raises(error, match=words):
        counterfactual(Logged(two_queries()), np.arange(4.0), settings=CounterfactualSettings(**given))  # type: ignore[arg-type]


def test_a_log_without_clicks_values_nothing() -> None:
    log = replace(two_queries(), clicks=np.zeros(6, dtype=np.int64))
    with pytest.raises(DataError, match="no click at positions 1 to 10"):
        counterfactual(Logged(log), np.arange(4.0))


@pytest.mark.parametrize("field", ["clip", "confidence", "unit", "most_missing", "least_effective", "resamples"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(SettingError, match=field):
        replace(EASY, **{field: "day" if field == "unit" else 0.0 if field != "most_missing" else -1})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    made = {"several": WorldSettings(queries=300, sessions=60_000, features=24, days=1)}
    made["single"] = replace(made["several"], policy="single")
    made["cascade"] = replace(made["several"], browsing="dbn")
    return {name: make_world(settings) for name, settings in made.items()}


def truth(world: World, scores: Float64) -> float:
    made = simulate(
        world.data.train,
        world.user,
        sessions=100_000,
        seed=5,
        settings=SimulationSettings(),
        scores=scores,
        shares=world.shares,
    )
    return float(made.clicks.clicks.sum() / made.clicks.sessions)


def one_of_the_rankers(world: World) -> Float64:
    """The lists of the third ranker of the log, as scores."""
    log = world.logged.clicks
    third = world.logged.policy == world.logged.policies.index("ranker-3")
    entries = np.repeat(np.asarray(third), np.diff(log.offsets))
    scores = np.full(log.lists.documents, -99.0)
    scores[log.rows[entries]] = -log.positions[entries]
    return scores


def valued(world: World, scores: Float64, unit: str = "search") -> CounterfactualResult:
    return counterfactual(world.logged, scores, settings=CounterfactualSettings(unit=unit))  # type: ignore[arg-type]


def test_one_of_three_rankers_is_valued_from_the_mixed_log(worlds: dict[str, World]) -> None:
    """Interval half widths are about 1.5% of the value, and hold the truth."""
    world = worlds["several"]
    scores = one_of_the_rankers(world)
    true, made = truth(world, scores), valued(world, scores)
    for name, estimate in made.estimates.items():
        assert not estimate.refusal, f"{name}: {estimate.refusal}"
        assert estimate.value.lower - 0.01 <= true <= estimate.value.upper + 0.01, name
        assert estimate.value.upper - estimate.value.lower < 0.1 * true, name
    assert made.best == "ips"


def test_intervals_for_other_queries_are_wider(worlds: dict[str, World]) -> None:
    world = worlds["several"]
    scores = one_of_the_rankers(world)
    wide, narrow = (valued(world, scores, unit).estimates["ips"].value for unit in ("query", "search"))
    assert wide.value == narrow.value
    assert wide.upper - wide.lower > 2 * (narrow.upper - narrow.lower)


def test_under_a_cascade_the_top_of_the_list_counts(worlds: dict[str, World]) -> None:
    world = worlds["cascade"]
    scores = one_of_the_rankers(world)
    true, made = truth(world, scores), valued(world, scores)
    for name in ("ips", "snips", "reward-interaction", "cascade-dr"):
        assert made.estimates[name].value.lower - 0.01 <= true <= made.estimates[name].value.upper + 0.01, name


def test_a_new_ranker_is_valued_by_a_checked_model(worlds: dict[str, World]) -> None:
    """Documents by their mean position: some of the clicks at stake are where none of them ever stood, and yet."""
    world = worlds["several"]
    log = world.logged.clicks
    stood = np.bincount(log.rows, weights=log.positions, minlength=log.lists.documents)
    shown = np.bincount(log.rows, minlength=log.lists.documents)
    scores = np.where(shown > 0, -stood / np.maximum(shown, 1), -99.0)
    true, made = truth(world, scores), valued(world, scores)
    robust = made.estimates["item-position-dr"]
    assert made.estimates["item-position"].refusal
    assert robust.missing > 0.05
    assert robust.value.lower - 0.01 <= true <= robust.value.upper + 0.01
    assert made.estimates["position-based"].value.value == pytest.approx(true, rel=0.03)


def test_a_single_ranking_can_only_value_itself(worlds: dict[str, World]) -> None:
    world = worlds["single"]
    log = world.logged.clicks
    scores = np.full(log.lists.documents, -99.0)
    scores[log.rows] = log.positions
    made = valued(world, scores)
    assert made.best is None
    for name, words in {
        "item-position": "100.0% of the clicks at stake are on documents that never stood where it puts them",
        "cascade-dr": "no click model can fill them in, as the positions are not linked",
        "position-based": "the positions are not linked",
    }.items():
        assert words in made.estimates[name].refusal
        assert made.estimates[name].verdict == "unknown"


def test_json_has_no_nan(worlds: dict[str, World]) -> None:
    made = to_plain(valued(worlds["single"], np.zeros(worlds["single"].logged.clicks.lists.documents)))
    assert json.loads(json.dumps(made, allow_nan=False))["estimates"]["ips"]["value"]["value"] is None
    assert set(made["estimates"]) == set(NAMES)
