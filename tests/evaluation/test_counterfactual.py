"""Counterfactual evaluation: by arithmetic on small logs, and against the truth of simulated users."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from clickprism._util.tables import to_plain
from clickprism.data.logged import Logged
from clickprism.errors import ClickprismError, DataError, SettingError
from clickprism.evaluation.counterfactual.result import (
    NAMES,
    CounterfactualResult,
    CounterfactualResults,
    CounterfactualSettings,
    Name,
    Unit,
)
from clickprism.evaluation.counterfactual.run import counterfactual
from clickprism.evaluation.counterfactual.support import place
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Curve
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Clicks, Float64, Lists
from reproduce.common.worlds import World, WorldSettings, make_world
from tests.evaluation.known_model import known_model

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
    settings = replace(EASY, clip=clip, estimator=(name,))
    return evaluated(log, scores, settings).estimates[name].value.value


def evaluated(log: Clicks, scores: list[float], settings: CounterfactualSettings) -> CounterfactualResult:
    return counterfactual(Logged(log), np.array(scores), settings=settings, model=known_model(log, [1.0, 0.5]))


@pytest.mark.parametrize("name", ["ips", "snips", "reward-interaction", "cascade-dr", "item-position"])
def test_what_was_shown_gets_the_clicks_that_it_got(name: Name) -> None:
    """Query a reversed: (1 + 1) / 2 clicks per session; query b as logged: 5 / 10. Both have 10 sessions."""
    assert value(two_queries(), [0, 1, 1, 0], name) == pytest.approx((1.0 + 0.5) / 2)


def test_what_was_never_shown() -> None:
    """Query b reversed was never shown: no clicks for IPS, those of query a for the self-normalised estimator."""
    assert value(two_queries(), [0, 1, 0, 1], "ips") == pytest.approx(0.5)
    assert value(two_queries(), [0, 1, 0, 1], "snips") == pytest.approx(1.0)


def test_weights_are_clipped() -> None:
    """Query a reversed has p = 2 / 10, a weight of 5; the largest weight 2 keeps 2 / 5 of it."""
    assert value(two_queries(), [0, 1, 1, 0], "ips", clip=2) == pytest.approx((0.4 * 1.0 + 0.5) / 2)
    made = evaluated(two_queries(), [0, 1, 1, 0], replace(EASY, clip=2))
    ips = made.estimates["ips"]
    assert ips.missing == pytest.approx(0.6 / 2)
    assert ips.clipped == pytest.approx(1 / 2)
    assert made.logged.value == pytest.approx((4 + 2 + 1 + 1 + 5) / 20)


def test_dcg_discounts_lower_positions() -> None:
    made = evaluated(two_queries(), [1, 0, 1, 0], replace(EASY, measure="dcg"))
    expected = ((4 + 2 / np.log2(3)) / 8 + 5 / 10) / 2
    assert made.estimates["item-position"].value.value == pytest.approx(expected)
    assert made.logged.value == pytest.approx((4 + 1 + 5 + (2 + 1) / np.log2(3)) / 20)


def test_matches_by_item_top_and_list() -> None:
    """Of (0, 1, 2) and (0, 2, 1), the second has the top two of the new list (0, 2, 3), none the whole list."""
    lists = Lists(np.zeros((4, 0), np.float32), np.array([0, 4]), np.array(["q"]))
    log = Clicks(
        lists,
        np.array([0, 3, 6]),
        np.array([0, 1, 3, 0, 2, 1]),
        np.array([1, 2, 3, 1, 2, 3], np.int32),
        np.array([3, 0, 3, 0, 2, 0]),
        np.array([3, 2]),
    )
    placed = place(Logged(log), np.array([4.0, 1, 3, 2]), depth=3)
    assert placed.rows.tolist() == [[0, 2, 3]]
    assert placed.matched("item").shown.tolist() == [[5, 2, 3]]
    assert placed.matched("item").clicked.tolist() == [[3, 2, 3]]
    assert placed.matched("top").shown.tolist() == [[5, 2, 0]]
    assert placed.matched("list").shown.tolist() == [[0, 0, 0]]
    assert placed.matched("top").rates[0].tolist() == pytest.approx([0.6, 1.0, 0.0])


def test_a_ranker_that_shows_the_logged_lists_does_not_differ() -> None:
    log = two_queries().take([0, 2])
    made = evaluated(log, [1, 0, 1, 0], EASY)
    for name in NAMES[:6]:
        assert made.estimates[name].difference.value == pytest.approx(0, abs=1e-12)
        assert made.estimates[name].verdict == "no difference found"


@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (SettingError, "estimator must be a known estimator", {"estimator": ("ipw",)}),
        (SettingError, "measure must be one of clicks, dcg", {"measure": "ndcg"}),
        (SettingError, "depth must be at least 1", {"depth": 0}),
        (DataError, "belong to one session", {"unit": "search"}),
    ],
)
def test_errors_say_what_is_wrong(error: type[ClickprismError], words: str, given: dict[str, object]) -> None:
    with pytest.raises(error, match=words):
        counterfactual(Logged(two_queries()), np.arange(4.0), settings=CounterfactualSettings(**given))  # type: ignore[arg-type]


def test_a_log_without_clicks_is_refused() -> None:
    log = replace(two_queries(), clicks=np.zeros(6, dtype=np.int64))
    with pytest.raises(DataError, match="no clicks at positions 1 to 10"):
        counterfactual(Logged(log), np.arange(4.0))


@pytest.mark.parametrize("field", ["clip", "confidence", "unit", "most_missing", "least_effective"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(SettingError, match=field):
        replace(EASY, **{field: "day" if field == "unit" else 0.0 if field != "most_missing" else -1})  # type: ignore[arg-type]


def test_the_curve_is_part_of_the_result() -> None:
    made = evaluated(two_queries(), [1, 0, 1, 0], EASY)
    assert made.curve.values.tolist() == [1.0, 0.5]
    assert CounterfactualResults("log", "query", 0.95, {"a": made, "b": made}).tables()[0].text() == (
        "Observation by position: 1 .50"
    )


def test_a_model_that_is_too_shallow_is_refused() -> None:
    log, one = two_queries(), np.ones(1)
    model = replace(known_model(log, [1.0, 0.5]), curve=Curve("known", one, one, one))
    with pytest.raises(DataError, match="covers positions 1 to 1, not 2"):
        counterfactual(Logged(log), np.arange(4.0), settings=EASY, model=model)


@pytest.fixture(scope="module")
def worlds() -> dict[str, tuple[World, LogModel]]:
    settings = {"several": WorldSettings(queries=300, sessions=60_000, features=24, days=1)}
    settings["single"] = replace(settings["several"], policy="single")
    settings["cascade"] = replace(settings["several"], browsing="dbn")
    made = {name: make_world(each) for name, each in settings.items()}
    return {name: (world, LogModel.fit(world.logged)) for name, world in made.items()}


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
    """Return scores that rank as the third ranker of the log does."""
    log = world.logged.clicks
    third = world.logged.policy == world.logged.policies.index("ranker-3")
    entries = np.repeat(np.asarray(third), np.diff(log.offsets))
    scores = np.full(log.lists.documents, -99.0)
    scores[log.rows[entries]] = -log.positions[entries]
    return scores


def valued(given: tuple[World, LogModel], scores: Float64, unit: Unit = "search") -> CounterfactualResult:
    world, model = given
    return counterfactual(world.logged, scores, settings=CounterfactualSettings(unit=unit), model=model)


def test_one_of_three_rankers_is_valued_from_the_mixed_log(worlds: dict[str, tuple[World, LogModel]]) -> None:
    """Half widths of the intervals are about 1.5% of the value, and the intervals contain the truth."""
    world, _ = worlds["several"]
    scores = one_of_the_rankers(world)
    true, made = truth(world, scores), valued(worlds["several"], scores)
    for name, estimate in made.estimates.items():
        assert not estimate.refusal, f"{name}: {estimate.refusal}"
        assert estimate.value.lower - 0.01 <= true <= estimate.value.upper + 0.01, name
        assert estimate.value.upper - estimate.value.lower < 0.1 * true, name
    assert made.best == "ips"


def test_intervals_for_other_queries_are_wider(worlds: dict[str, tuple[World, LogModel]]) -> None:
    scores = one_of_the_rankers(worlds["several"][0])
    units: tuple[Unit, Unit] = ("query", "search")
    wide, narrow = (valued(worlds["several"], scores, unit).estimates["ips"].value for unit in units)
    assert wide.value == narrow.value
    assert wide.upper - wide.lower > 2 * (narrow.upper - narrow.lower)


def test_under_a_cascade_the_top_of_the_list_counts(worlds: dict[str, tuple[World, LogModel]]) -> None:
    world, _ = worlds["cascade"]
    scores = one_of_the_rankers(world)
    true, made = truth(world, scores), valued(worlds["cascade"], scores)
    for name in ("ips", "snips", "reward-interaction", "cascade-dr"):
        assert made.estimates[name].value.lower - 0.01 <= true <= made.estimates[name].value.upper + 0.01, name


def test_a_new_ranker_is_valued_by_a_checked_model(worlds: dict[str, tuple[World, LogModel]]) -> None:
    """Rank by mean position: some of the affected clicks are on documents at positions where they were never shown."""
    world, _ = worlds["several"]
    log = world.logged.clicks
    total = np.bincount(log.rows, weights=log.positions, minlength=log.lists.documents)
    shown = np.bincount(log.rows, minlength=log.lists.documents)
    scores = np.where(shown > 0, -total / np.maximum(shown, 1), -99.0)
    true, made = truth(world, scores), valued(worlds["several"], scores)
    robust = made.estimates["item-position-dr"]
    assert made.estimates["item-position"].refusal
    assert robust.missing > 0.05
    assert robust.value.lower - 0.01 <= true <= robust.value.upper + 0.01
    assert made.estimates["position-based"].value.value == pytest.approx(true, rel=0.03)


def test_a_single_ranking_can_only_value_itself(worlds: dict[str, tuple[World, LogModel]]) -> None:
    log = worlds["single"][0].logged.clicks
    scores = np.full(log.lists.documents, -99.0)
    scores[log.rows] = log.positions
    made = valued(worlds["single"], scores)
    assert made.best is None
    features = "is linked to position 1 only by the features of different documents"
    for name, words in {
        "item-position": "100.0% of the affected clicks are on documents that were never shown at the position",
        "cascade-dr": features,
        "item-position-dr": features,
        "position-based": features,
    }.items():
        assert words in made.estimates[name].refusal
        assert made.estimates[name].verdict == "unknown"


def test_a_single_ranking_values_itself_by_every_estimator(worlds: dict[str, tuple[World, LogModel]]) -> None:
    """The ranker changes nothing, so that no curve is needed."""
    log = worlds["single"][0].logged.clicks
    scores = np.full(log.lists.documents, -99.0)
    scores[log.rows] = -log.positions
    for name, estimate in valued(worlds["single"], scores).estimates.items():
        assert not estimate.refusal, f"{name}: {estimate.refusal}"
        assert abs(estimate.difference.value) < 0.01, name


def test_json_has_no_nan(worlds: dict[str, tuple[World, LogModel]]) -> None:
    documents = worlds["single"][0].logged.clicks.lists.documents
    made = to_plain(valued(worlds["single"], np.zeros(documents)))
    assert json.loads(json.dumps(made, allow_nan=False))["estimates"]["ips"]["value"]["value"] is None
    assert set(made["estimates"]) == set(NAMES)
    assert made["curve"]["values"][0] == pytest.approx(1)
