"""Counts of a log: all expected values are computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.log_model.counts import (
    FEW,
    LEVELS,
    count,
    cut,
    feedback_statistics,
    first_positions,
    last_clicks,
    positions_without_reaction,
)
from clickprism.log_model.model import LogModel
from clickprism.types import Clicks, Float64, Lists
from tests.log_model.simulated_logs import clicks_of, lists_of, world


def two_queries() -> Clicks:
    """Six sessions on two queries of two documents; documents 0 and 1 swap, 2 and 3 do not."""
    rows = np.array([[0, 1], [0, 1], [1, 0], [2, 3], [2, 3], [2, 3]])
    clicks = np.array([[1, 0], [0, 1], [1, 0], [0, 0], [1, 1], [1, 0]])
    return clicks_of(lists_of(2, 2), rows, clicks, 1)


def test_counts_are_the_sums_over_the_sessions_of_each_pair_and_position() -> None:
    counts = count(two_queries())
    assert counts.rows.tolist() == [0, 1, 2, 3]
    assert counts.query.tolist() == [0, 0, 1, 1]
    assert counts.pair.tolist() == [0, 0, 1, 1, 2, 3]
    assert counts.position.tolist() == [0, 1, 0, 1, 0, 1]
    assert counts.impressions.tolist() == [2, 1, 1, 2, 3, 3]
    assert counts.clicks.tolist() == [1, 0, 1, 1, 2, 1]
    assert counts.by_pair(counts.clicks).tolist() == [1, 2, 2, 1]
    assert counts.by_position(counts.impressions).tolist() == [6, 6]
    assert counts.several.tolist() == [True, True, False, False]
    assert (counts.positions, counts.queries, len(counts)) == (2, 2, 4)
    assert repr(counts) == "LogCounts(4 pairs of 2 queries, 2 positions, 12 impressions, 6 clicks)"


@pytest.mark.parametrize("by", ["list", "pattern"])
def test_merging_sessions_does_not_change_the_counts(by: str) -> None:
    log = two_queries()
    one, merged = count(log), count(log.merge(by=by))  # type: ignore[arg-type]
    for name in ("rows", "query", "pair", "position", "impressions", "clicks", "average", "context"):
        assert getattr(one, name).tolist() == getattr(merged, name).tolist(), name


def test_mean_positions_are_equal_to_the_last_digit_in_any_order_of_the_lists() -> None:
    """Commands read a log in different orders, and trees would turn another last digit into another model."""
    rng = np.random.default_rng(2)
    rows = np.array([rng.permutation(9) for _ in range(400)])
    days = rng.integers(0, 3, 400)
    log = Logged(clicks_of(lists_of(1, 9), rows, np.zeros(rows.shape, dtype=np.int64), 1), days)
    one, other = count(log), count(log.take(rng.permutation(400)))
    for name in ("first", "average"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


def test_average_is_the_mean_log_position_over_impressions() -> None:
    assert count(two_queries()).average == pytest.approx(np.log(2) * np.array([1 / 3, 2 / 3, 0, 1]))


def test_cells_are_split_by_context() -> None:
    device = np.array(["phone", "desktop", "phone", "phone", "desktop", "phone"])
    counts = count(two_queries(), context=device)
    assert counts.contexts == ("desktop", "phone")
    first = counts.pair == 0
    assert counts.position[first].tolist() == [0, 0, 1]
    assert counts.context[first].tolist() == [0, 1, 1]
    assert counts.clicks[first].tolist() == [0, 1, 0]
    assert counts.impressions.sum() == 12
    with pytest.raises(DataError, match="6 ranked lists but 2 values of the context"):
        count(two_queries(), context=np.array(["a", "b"]))


def test_cells_are_split_by_the_last_click_above() -> None:
    rows, clicks = np.array([[0, 1, 2], [0, 1, 2]]), np.array([[1, 1, 0], [0, 0, 1]])
    log = clicks_of(lists_of(1, 3), rows, clicks, 1)
    assert last_clicks(log).tolist() == [0, 1, 2, 0, 0, 0]
    counts = count(log, by_last_click=True)
    assert counts.last_click is not None
    cells = list(zip(counts.position.tolist(), counts.last_click.tolist(), counts.clicks.tolist(), strict=True))
    assert cells == [(0, 0, 1), (1, 0, 0), (1, 1, 1), (2, 0, 1), (2, 2, 0)]


def test_the_last_click_needs_sessions() -> None:
    with pytest.raises(
        DataError, match=r'does not record which clicks .* Merge sessions with clicks.merge\(by="pattern'
    ):
        count(two_queries().merge(), by_last_click=True)


def test_popularity_counts_the_clicks_of_earlier_days_only() -> None:
    rows, clicks = np.array([[0, 1], [0, 1], [0, 1]]), np.array([[0, 3], [0, 0], [5, 0]])
    log = Logged(clicks_of(lists_of(1, 2), rows, clicks, 5), np.array([0, 1, 2]))
    counts = count(log, by_popularity=True)
    assert counts.popularity is not None
    assert counts.popularity.min() >= 0
    assert counts.popularity.max() <= 1
    first, second = (counts.popularity[counts.pair == pair] for pair in (0, 1))
    assert len(first) == 1  # it was clicked on the last day only: its popularity never changed
    assert second.max() > first.max()
    assert (counts.popularity * LEVELS == np.round(counts.popularity * LEVELS)).all()
    with pytest.raises(DataError, match="the log has no days"):
        count(log.clicks, by_popularity=True)


def test_cells_are_split_by_chance_only_if_the_log_records_it() -> None:
    log = two_queries()
    chance = np.zeros(12, dtype=np.bool_)
    chance[[0, 1]] = True
    counts = count(Logged(log, randomised=chance), by_chance=True)
    assert counts.randomised is not None
    assert counts.impressions[counts.randomised].tolist() == [1, 1]
    assert counts.pair[counts.randomised].tolist() == [0, 1]
    assert counts.impressions.sum() == 12
    assert count(log, by_chance=True).randomised is None


def test_observed_impressions_are_added_up() -> None:
    log = two_queries()
    seen = Clicks(log.lists, log.offsets, log.rows, log.positions, log.clicks, log.impressions, None, log.clicks)
    counts = count(seen)
    assert counts.seen is not None
    assert counts.seen.tolist() == counts.clicks.tolist()
    assert count(log).seen is None


def test_large_tables_give_the_same_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    small = count(two_queries())
    monkeypatch.setattr("clickprism.log_model.counts.DENSE", 1)
    large = count(two_queries())
    for name in ("rows", "pair", "position", "impressions", "clicks", "first"):
        assert getattr(small, name).tolist() == getattr(large, name).tolist(), name


def test_logs_that_cannot_be_counted_are_refused() -> None:
    log = two_queries()
    with pytest.raises(DataError, match="have weights, so they were corrected already"):
        count(log.weighted(np.ones(12)))
    with pytest.raises(DataError, match="the log has no impressions"):
        count(log.take(np.zeros(6, dtype=np.bool_)))
    with pytest.raises(TypeError, match=r"Logged or Clicks, not list"):
        count([1, 2])  # type: ignore[arg-type]


def test_the_first_position_is_that_of_the_first_day() -> None:
    rows = np.array([[0, 1], [1, 0], [1, 0]])
    log = Logged(clicks_of(lists_of(1, 2), rows, np.array([[6, 2], [6, 2], [6, 2]]), 6), np.array([3, 1, 2]))
    # both were clicked on day 1, so later days do not count; the first ranked list is the last day
    assert first_positions(log) == pytest.approx([np.log(2), 0])


def test_days_before_the_first_click_count_by_impressions() -> None:
    rows, clicks = np.array([[0, 1], [1, 0], [0, 1]]), np.array([[0, 0], [0, 1], [1, 0]])
    log = Logged(clicks_of(lists_of(1, 2), rows, clicks, np.array([1, 3, 5])), np.array([0, 1, 2]))
    # document 0 is clicked on day 1, where it was at position 2 in 3 impressions; document 1 never
    assert first_positions(log) == pytest.approx([0.75 * np.log(2), (1 + 5) / 9 * np.log(2)])


def test_days_after_a_few_clicks_on_the_query_do_not_count() -> None:
    rows, clicks = np.array([[0, 1], [1, 0]]), np.array([[FEW + 1, 0], [0, 0]])
    log = Logged(clicks_of(lists_of(1, 2), rows, clicks, 10), np.array([0, 1]))
    assert first_positions(log) == pytest.approx([0, np.log(2)])  # the engine may have moved document 1 up
    fewer = Logged(clicks_of(lists_of(1, 2), rows, clicks - clicks // 2, 10), np.array([0, 1]))
    assert first_positions(fewer) == pytest.approx([0, np.log(2) / 2])


def test_a_log_without_days_is_read_in_the_order_of_its_lists() -> None:
    rows, clicks = np.array([[1, 0], [0, 1], [0, 1]]), np.array([[1, 0], [1, 0], [1, 0]])
    log = clicks_of(lists_of(1, 2), rows, clicks, 1)
    assert first_positions(Logged(log)) == pytest.approx([np.log(2) / 2, 0])
    assert first_positions(Logged(log)).tolist() == first_positions(Logged(log, np.arange(3))).tolist()


def test_merged_sessions_without_days_have_no_order() -> None:
    rows, clicks = np.array([[1, 0], [0, 1], [0, 1]]), np.array([[1, 0], [1, 0], [1, 0]])
    log = clicks_of(lists_of(1, 2), rows, clicks, 1).merge(by="list")
    assert first_positions(Logged(log)) == pytest.approx([np.log(2) / 3, 2 * np.log(2) / 3])


def test_documents_that_were_never_shown_have_no_first_position() -> None:
    log = clicks_of(lists_of(1, 3), np.array([[2, 0]]), np.array([[0, 1]]), 1)
    assert first_positions(Logged(log)) == pytest.approx([np.log(2), 0, 0])
    assert count(log).rows.tolist() == [0, 2]


def test_feedback_statistics_by_hand() -> None:
    # document 0: position 2, then 1; document 1: position 1, then 2; 4 searches a day, observation 1 and 1/2
    rows, clicks = np.array([[1, 0], [0, 1]]), np.array([[1, 2], [1, 2]])
    log = Logged(clicks_of(lists_of(1, 2), rows, clicks, 4), np.array([0, 1]))
    # document 0: 3 clicks, exposure 2 and 4: 1 expected on day 0, 2 clicked; later log position 0, mean log(2) / 2
    # document 1: 3 clicks, exposure 4 and 2: 2 expected on day 0, 1 clicked; later log position log(2)
    first, last = 1 / (4 + FEW), 1 / (8 + FEW)
    products, squares = feedback_statistics(log, np.array([1.0, 0.5]))
    assert products == pytest.approx([first * (0 - np.log(2) / 2) - first * (np.log(2) - np.log(2) / 2)])
    assert squares == pytest.approx([2 * first**2 + 2 * last**2])


def test_clicks_of_the_last_day_have_no_later_position() -> None:
    rows = np.array([[1, 0], [0, 1]])
    log = Logged(clicks_of(lists_of(1, 2), rows, np.array([[0, 0], [3, 0]]), 4), np.array([0, 1]))
    # document 0: 3 clicks, 1 of them expected on day 0 (observation 1/2 against 1), none clicked
    products, _ = feedback_statistics(log, np.array([1.0, 0.5]))
    assert products == pytest.approx([(0 - 1) / (4 + FEW) * (0 - np.log(2) / 2)])


def test_a_document_that_is_not_shown_is_below_the_last_position_on_days_with_a_search() -> None:
    # document 0: position 1 on days 0 and 2, not shown on day 1; another query is searched on day 3
    rows, clicks = np.array([[0, 1], [2, 1], [0, 1], [3, 4]]), np.array([[2, 0], [0, 0], [0, 0], [0, 0]])
    log = clicks_of(lists_of(2, 3), rows, clicks, 2)
    products, _ = feedback_statistics(Logged(log, np.array([0, 1, 2, 3])), np.ones(2))
    # 1 click of 2 was expected on day 0; later positions 3 and 1, all positions 1, 3 and 1; none is later on day 2
    assert products == pytest.approx([(2 - 1) / (2 + FEW) * (np.log(3) / 2 - np.log(3) / 3), 0])
    without_days, _ = feedback_statistics(Logged(log), np.ones(2))
    assert without_days == pytest.approx([0, 0])  # the next list may be the next page: document 0 never moved


def test_feedback_statistics_are_zero_if_positions_stay() -> None:
    log = world(0, queries=5, noise=0.0).log
    assert feedback_statistics(log, np.ones(6))[0] == pytest.approx(np.zeros(5))


def test_positions_without_reaction_are_those_of_the_engine_itself() -> None:
    """The mean position of a document that was clicked by luck is better; without the reaction it is not."""
    options = {"queries": 300, "documents": 10, "days": 8, "noise": 1.0}
    for seed in (1, 2):
        made = world(seed, reaction=6.0, **options)  # type: ignore[arg-type]
        counts, own = count(made.log), positions_without_reaction(made.log, made.curve)
        assert own is not None
        exposure = counts.by_pair(counts.impressions * made.curve[counts.position])
        luck = counts.by_pair(counts.clicks) / exposure - made.relevance[counts.rows]

        def within_queries(values: Float64) -> Float64:
            return np.asarray((values.reshape(300, 10) - values.reshape(300, 10).mean(axis=1, keepdims=True)).ravel())

        with_clicks, without = (
            float(np.corrcoef(within_queries(luck), within_queries(each))[0, 1])
            for each in (counts.average, own[counts.rows])
        )
        assert with_clicks < -0.04
        assert abs(without) < 0.5 * abs(with_clicks)


def test_first_positions_are_used_if_only_clicks_move_documents() -> None:
    """The engine ranks in a fixed order, plus clicks: the first day shows all that it knows itself."""
    made = world(3, queries=100, days=6, noise=0.0, reaction=20.0)
    assert count(made.log).several.mean() > 0.2
    assert positions_without_reaction(made.log, made.curve) is None


def test_there_is_no_reaction_to_take_out_if_nothing_moves() -> None:
    made = world(0, queries=5, noise=0.0)
    assert positions_without_reaction(made.log, made.curve) is None


def test_cut_keeps_the_top_of_every_list() -> None:
    log = two_queries()
    whole = Logged(log, np.arange(6), np.zeros(6, dtype=np.int64), ("a",), np.arange(12) < 2)
    top = cut(whole, 1)
    assert top.clicks.rows.tolist() == [0, 0, 1, 2, 2, 2]
    assert top.clicks.clicks.tolist() == [1, 0, 1, 0, 1, 1]
    assert top.days is not None
    assert top.randomised is not None
    assert top.randomised.tolist() == [True] + [False] * 5
    assert len(top) == 6
    assert cut(whole, 9).clicks.rows.tolist() == log.rows.tolist()


def test_cut_drops_lists_that_have_no_result_left() -> None:
    lists = lists_of(1, 2)
    positions = np.array([1, 3], dtype=np.int32)
    log = Clicks(lists, np.array([0, 1, 2]), np.array([0, 1]), positions, np.array([1, 0]), np.array([2, 5]))
    top = cut(Logged(log, np.array([7, 8])), 2)
    assert top.clicks.impressions.tolist() == [2]
    assert top.days is not None
    assert top.days.tolist() == [7]
    with pytest.raises(DataError, match=r"nothing was shown at positions 1 to 2. Use a larger depth"):
        cut(Logged(log.take([1])), 2)


def searches_in_two_orders(seed: int) -> tuple[Logged, Float64]:
    """Return searches, one a query, of which half are in random order and half ordered by relevance; and the curve."""
    rng, queries, documents = np.random.default_rng(seed), 4000, 6
    curve = np.arange(1, documents + 1, dtype=np.float64) ** -0.7
    relevance = 1 / (1 + np.exp(1.0 - rng.normal(size=(queries, documents))))
    by_chance = np.arange(queries) % 2 == 0
    order = np.argsort(np.where(by_chance[:, None], rng.random(relevance.shape), -relevance), axis=1)
    clicked = rng.random(relevance.shape) < np.take_along_axis(relevance, order, axis=1) * curve
    lists = Lists(
        np.zeros((queries * documents, 0), np.float32),
        np.arange(0, queries * documents + 1, documents),
        np.arange(queries).astype(np.str_),
    )
    rows = (np.arange(queries)[:, None] * documents + order).ravel()
    clicks = Clicks(
        lists,
        lists.offsets,
        rows,
        np.tile(np.arange(1, documents + 1, dtype=np.int32), queries),
        clicked.ravel().astype(np.int64),
        np.ones(queries, dtype=np.int64),
    )
    return Logged(clicks, randomised=np.repeat(by_chance, documents)), curve


def test_random_positions_are_no_evidence_of_relevance_and_identify_the_curve() -> None:
    log, curve = searches_in_two_orders(3)
    counts = count(log, by_chance=True)
    assert counts.placed is not None
    assert counts.placed.sum() == len(counts) / 2
    with_chance = np.log(LogModel.fit(log).curve.values / curve)
    without = np.log(LogModel.fit(replace(log, randomised=None)).curve.values / curve)
    assert np.abs(with_chance).max() < 0.15
    assert np.abs(without).max() > 2.5 * np.abs(with_chance).max()


def test_positions_chosen_by_the_engine_count_where_there_are_some() -> None:
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    rows, positions = np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32)
    clicks = Clicks(lists, np.array([0, 2, 4]), rows, positions, np.zeros(4, np.int64), np.array([1, 1]))
    randomised = np.array([True, False, False, True])
    counts = count(Logged(clicks, randomised=randomised), by_chance=True)
    assert counts.placed is not None
    assert counts.placed.tolist() == [False, True]
    assert counts.average[1] == pytest.approx(np.log(2) / 2, abs=1e-6)
    mixed = count(Logged(clicks, randomised=np.array([True, False, True, False])), by_chance=True)
    assert mixed.placed is None
    assert mixed.average == pytest.approx([np.log(2), np.log(2)], abs=1e-6)
