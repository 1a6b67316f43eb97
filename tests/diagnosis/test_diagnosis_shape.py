"""The equations behind position, trust and coupling, on counts that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.diagnosis.attraction import expected
from clickprism.diagnosis.lines import Lines, halves, lines_of
from clickprism.diagnosis.shape import CURVE_RIDGE, Shape, curve_of, plain_shape
from clickprism.diagnosis.sight import by_chain, by_last_click, by_position, fit_chain, sight_of, standardised, walk
from clickprism.types import Float64
from tests.diagnosis.tiny_logs import log_of, small_world, swapped

CURVE = np.array([1.0, 0.6, 0.3])
RATES = np.array([0.1, 0.2, 0.4, 0.8])
SHOWN = 1000 * np.array([[100, 50, 20], [40, 80, 10], [30, 30, 90], [10, 60, 60]])
NONE = np.zeros(0, dtype=np.bool_)


def exact(curve: Float64, *, trust: Float64 | None = None, steep: Float64 | None = None) -> Lines:
    """Lines with as many clicks as are expected: four documents at three positions each."""
    size = len(RATES)
    bend = np.ones(size) if steep is None else steep
    chance = np.exp(bend[:, None] * np.log(curve)) * (RATES[:, None] + (0 if trust is None else trust))
    zero = np.zeros(3 * size, dtype=np.int64)
    return Lines(
        np.arange(size),
        np.zeros(size, dtype=np.int64),
        np.arange(size),
        np.repeat(np.arange(size), 3),
        np.tile(np.arange(3), size),
        zero,
        SHOWN.ravel().astype(np.float64),
        SHOWN.ravel().astype(np.float64),
        (SHOWN * chance).ravel(),
        np.arange(3),
        np.ones(size),
    )


def shape_of(lines: Lines, columns: Float64, trust: Float64) -> Shape:
    return Shape(lines, columns, np.zeros(columns.shape[1]), trust, (1 / RATES)[lines.group])


def test_the_curve_comes_back_whatever_relevance_is() -> None:
    shape = plain_shape(exact(CURVE))
    found = shape.solve(shape.free(own=NONE, trust=False))
    assert np.exp(found[:3]) == pytest.approx(CURVE, abs=1e-3)


def test_trust_comes_back_beside_the_curve() -> None:
    falling = np.array([1.0, 0.4, 0.0])
    shape = shape_of(exact(CURVE, trust=0.05 * falling), np.zeros((4, 0)), falling)
    found = shape.solve(shape.free(own=NONE, trust=True))
    assert np.exp(found[:3]) == pytest.approx(CURVE, abs=1e-3)
    assert found[-1] == pytest.approx(0.05, abs=1e-4)
    held = shape.free(own=NONE, trust=False)
    scores, _ = shape.scores(shape.solve(held), held, shape.free(own=NONE, trust=True) & ~held)
    assert scores.sum() > 0


def test_the_steepness_of_a_feature_comes_back_beside_the_curve() -> None:
    column = np.array([-1.0, 1.0, -0.5, 0.5])
    lines = exact(CURVE, steep=1 + 0.3 * column)
    shape = shape_of(lines, column[:, None], np.zeros(3))
    found = shape.solve(shape.free(own=np.array([True]), trust=False))
    assert np.exp(found[:3]) == pytest.approx(CURVE, abs=2e-3)
    assert found[3] == pytest.approx(0.3, abs=2e-3)


def test_slopes_are_the_derivatives_of_the_equations_where_these_hold() -> None:
    columns, falling = np.array([[0.5, 1.0], [-1.0, 0.2], [0.1, -0.4], [0.3, 0.3]]), np.array([1.0, 0.4, 0.1])
    point = np.array([0.0, np.log(0.6), np.log(0.3), 0.2, -0.1, 0.03])
    lines = exact(CURVE, trust=0.03 * falling, steep=1 + columns @ point[3:5])
    shape = shape_of(lines, columns, falling)
    bend = shape.slopes(point)[1]
    for place in range(len(point)):
        step = 1e-6 * (np.arange(len(point)) == place)
        slope = (shape.slopes(point + step)[0] - shape.slopes(point - step)[0]) / 2e-6
        assert bend[:, place] == pytest.approx(slope, rel=1e-4, abs=1e-3)


def test_what_is_expected_counts_as_clicks_seen_before() -> None:
    lines = replace(exact(CURVE), mean=RATES, strength=2.0)
    shape = plain_shape(lines)
    assert np.exp(shape.solve(shape.free(own=NONE, trust=False))[:3]) == pytest.approx(CURVE, abs=2e-3)
    wrong = plain_shape(replace(lines, mean=RATES / 2, strength=50.0))
    assert np.exp(wrong.solve(wrong.free(own=NONE, trust=False))[1]) > 0.6


def test_scores_of_groups_add_up_to_the_equations() -> None:
    shape = shape_of(exact(CURVE, trust=np.array([0.1, 0.0, 0.0])), np.zeros((4, 0)), np.array([1.0, 0.0, 0.0]))
    point = np.array([0.0, -0.2, -0.5, 0.0])
    tested = np.array([False, True, True, True])
    scores, _ = shape.scores(point, np.zeros(4, dtype=np.bool_), tested)
    ridge = CURVE_RIDGE * point[:3]
    assert scores.sum(axis=0)[:2] == pytest.approx(shape.slopes(point)[0][1:3] + ridge[1:])
    assert scores.sum(axis=0)[2] == pytest.approx(shape.slopes(point)[0][3])


def test_places_of_a_page_with_two_clicks() -> None:
    clicks = log_of([((0, 1, 2, 3), (2, 3), 5, 0)], documents=[4]).clicks
    assert by_position(clicks).places.tolist() == [0, 1, 2, 3]
    browsing = by_last_click(clicks)
    assert browsing.places.tolist() == [0, 1, 3 + 2, 6 + 3]
    assert browsing.position_of.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    chain = by_chain(clicks, np.array([1.0, 0.5, 0.4, 0.3]))
    assert chain.entries.tolist() == [0, 1]
    assert chain.chance.tolist() == [1.0, 0.5]


def test_a_walk_down_the_page_by_hand() -> None:
    chance = np.zeros(3)
    pages = np.array([0, 3]), np.array([False, True, False]), np.array([2.0])
    total = walk(pages, np.array([0.4, 0.5, 0.25]), (0.8, 0.6, 0.2), chance)
    after = 0.6 * 0.5 + 0.2 * 0.5
    assert chance == pytest.approx([1.0, 0.8, after])
    assert total == pytest.approx(2 * np.log(0.6 * (0.8 * 0.5) * (1 - after * 0.25)))


def test_halves_are_whole_together_and_keep_patterns() -> None:
    clicks = swapped(5, first=(40, 20), second=(20, 10)).clicks
    lines = halves(clicks, by_position(clicks), seed=3)
    assert lines.searches.sum() == clicks.list_impressions.sum()
    assert lines.clicks.sum() == clicks.clicks.sum()
    shown, taken = (lines.of_parts(each, clicks.lists.documents) for each in (lines.searches, lines.clicks))
    assert (taken <= shown).all()
    assert (shown > 0).all()
    merged = clicks.merge(by="list")
    again = halves(merged, by_position(merged), seed=3)
    assert again.clicks.sum() == clicks.clicks.sum()
    assert (again.clicks <= again.searches).all()


def test_the_curve_of_a_log_by_hand() -> None:
    clicks = swapped(3, first=(40, 20), second=(20, 10)).clicks
    lines = lines_of(clicks, by_position(clicks))
    assert lines.clicks[:2].tolist() == [40, 20]
    assert np.exp(curve_of(clicks, by_position(clicks))) == pytest.approx([1.0, 0.5], abs=1e-3)


def test_what_is_expected_of_a_document_bends_to_its_clicks() -> None:
    rng = np.random.default_rng(2)
    column = rng.normal(size=(800, 1))
    rate = 0.2 * np.exp(0.5 * column[:, 0]) * rng.gamma(5.0, 1 / 5.0, 800)
    seen = np.full(800, 200.0)
    found = expected(rng.poisson(seen * rate).astype(np.float64), seen, np.arange(800), column)
    assert np.log(found.mean / 0.2) == pytest.approx(0.5 * column[:, 0], abs=0.15)
    assert found.strength == pytest.approx(5.0, rel=0.25)
    assert found.rate(np.zeros(800), np.zeros(800)) == pytest.approx(found.mean)
    assert found.rate(np.full(800, 1e6), np.full(800, 2e6)) == pytest.approx(np.full(800, 0.5), rel=1e-3)


def test_columns_that_are_constant_say_nothing() -> None:
    made = standardised(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert made.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(("browsing", "form"), [("pbm", "position"), ("ubm", "last click"), ("dbn", "chain")])
def test_how_users_read_is_found(browsing: str, form: str) -> None:
    assert sight_of(small_world(browsing=browsing, queries=100, sessions=30_000)).form == form


def test_the_chain_of_readers_is_found() -> None:
    logged = small_world(browsing="dbn", queries=100, sessions=30_000)
    chance, _ = fit_chain(logged.clicks)
    second = (logged.clicks.positions == 2) & (np.roll(logged.clicks.clicks, 1) == 0)
    assert chance[logged.clicks.positions == 1] == pytest.approx(1.0)
    assert chance[second].mean() == pytest.approx(0.85, abs=0.04)  # perseverance of the readers
