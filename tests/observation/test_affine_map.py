"""The affine map between positions: right whatever the noise, with honest intervals, or refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.data.sessions import SessionLog
from clickprism.errors import DataError, SettingError
from clickprism.observation.affine_map import MovedRates, _Distance, first_slot_tells, fit_affine
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.counts import Counts
from clickprism.observation.estimate_parameters import (
    EstimatedParameters,
    HarvestedMap,
    RandomisedMap,
    TrustMap,
    deepest_parameters,
    estimate_all,
    estimate_parameters,
    rate_error,
    with_curve,
)
from clickprism.observation.parameters import ClickParameters
from clickprism.observation.placed import PlacedCounts
from clickprism.types import Clicks, Lists

K = np.arange(1, 6)
TRUE = ClickParameters.of_trust(
    np.array([0.68, 0.61, 0.48, 0.34, 0.28]), 1 - (K + 1) / 100, 0.65 / K
)  # slopes above 1, intercepts far below 0


def counts_of(first: np.ndarray, shown: np.ndarray, *, seed: int, truth: ClickParameters = TRUE) -> Counts:
    """Clicks on documents with these c_1, shown this often at each position, [documents, positions]."""
    clicks = np.random.default_rng(seed).binomial(shown, truth.click_rates(first)).astype(np.float64)
    rows, places = np.nonzero(shown)
    return Counts(rows, places + 1, clicks[rows, places], shown[rows, places].astype(np.float64))


def documents(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).choice([0.464, 0.478, 0.505, 0.559, 0.666], count)


def test_few_impressions_do_not_flatten_the_line() -> None:
    """Four impressions each: plain regression of the rates is off by a factor of ten, total least squares is not."""
    first = documents(40_000, 0)
    counts = counts_of(first, np.full((40_000, 5), 4), seed=0)
    rates = MovedRates.of(counts)
    table = rates.rates.reshape(-1, 5)
    naive = [np.polyfit(table[:, 0], table[:, place], 1)[0] for place in range(1, 5)]
    assert (naive < 0.2 * TRUE.alpha[1:]).all()
    alpha, beta = fit_affine(rates)
    found = ClickParameters(alpha, beta)
    assert alpha == pytest.approx(TRUE.alpha, rel=0.1)
    assert (rate_error(found, TRUE, first) < 0.04).all()


def test_rankings_that_know_relevance_do_not_bias() -> None:
    """Better documents stand higher and more often there; an estimator with one prior for all would lean on that."""
    errors = []
    for seed in range(6):
        first, random = documents(8000, seed), np.random.default_rng(seed)
        place = np.clip(np.round(4 - 12 * (first - 0.45) + random.normal(0, 1, 8000)), 0, 4).astype(int)
        shown = random.poisson(2, (8000, 5))
        shown[np.arange(8000), place] += 60
        alpha, beta = fit_affine(MovedRates.of(counts_of(first, shown, seed=seed)))
        errors.append(
            [alpha / TRUE.alpha - 1, (TRUE.click_rates(first) / (np.outer(first, alpha) + beta)).mean(axis=0) - 1]
        )
    slope, rate = np.mean(errors, axis=0)
    assert np.abs(slope).max() < 0.075  # three standard errors
    assert np.abs(rate).max() < 0.04


def test_scores_are_the_slope_of_the_distance() -> None:
    counts = counts_of(documents(50, 1), np.random.default_rng(1).poisson(6, (50, 5)), seed=1)
    rates = MovedRates.of(counts)
    weight = rates.shown / 0.2
    here = _Distance.at(rates, weight, TRUE.alpha, TRUE.beta)
    alpha, beta = (rates.by_place(each) for each in here.scores(rates))
    for place in range(5):
        for which, slope in enumerate((alpha[place], beta[place])):
            step = 1e-5 * (np.arange(5) == place)
            ends = [
                _Distance.at(
                    rates, weight, TRUE.alpha + sign * step * (which == 0), TRUE.beta + sign * step * (which == 1)
                ).value
                for sign in (1, -1)
            ]
            assert -2 * slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-3)


def test_intervals_hold_the_truth_nineteen_times_in_twenty() -> None:
    held = []
    for seed in range(40):
        placed = PlacedCounts(counts_of(documents(400, seed), np.full((400, 5), 150), seed=seed), np.arange(400) // 4)
        found = estimate_parameters(placed, bootstrap=Bootstrap(seed=seed))
        held += list((found.alpha_lower <= TRUE.alpha)[1:] & (TRUE.alpha <= found.alpha_upper)[1:])
        held += list((found.beta_lower <= TRUE.beta)[1:] & (TRUE.beta <= found.beta_upper)[1:])
    assert 0.91 <= np.mean(held) <= 0.98  # 320, of which those of one log go together


def test_estimators_agree_and_say_what_they_rest_on() -> None:
    first, random = documents(1000, 5), np.random.default_rng(5)
    shown, chance = random.poisson(60, (1000, 5)), random.poisson(30, (1000, 5)) * (K == 1)
    logged, slots = counts_of(first, shown, seed=6), counts_of(first, chance, seed=7)
    keys, cell = np.unique(
        np.concatenate([logged.rows, slots.rows]) * 9 + np.concatenate([logged.positions, slots.positions]),
        return_inverse=True,
    )
    both = [
        np.bincount(cell, np.concatenate([getattr(logged, name), getattr(slots, name)])).astype(np.float64)
        for name in ("clicks", "impressions")
    ]
    placed = PlacedCounts(Counts(keys // 9, keys % 9, *both), np.arange(1000) // 5, slots)
    made = estimate_all(placed)
    assert list(made.parameters) == ["randomised", "harvest", "em"]
    for found in made.parameters.values():
        assert rate_error(found, TRUE, first)[1:].mean() < 0.05
        assert "level" in found.notes[0]
    assert made.best == "harvest"
    wide = [np.mean((found.alpha_upper - found.alpha_lower)[1:]) for found in made.parameters.values()]
    assert wide[0] > wide[1]
    assert f"{chance.sum():,} first slots by chance" in made.parameters["randomised"].notes[1]


def test_only_what_chance_placed_does_not_mind_rankings_that_follow_clicks() -> None:
    """A document that was clicked at position 5 leaves it for the first slot: its clicks there were luck."""
    first, random = documents(6000, 1), np.random.default_rng(1)
    shuffled = counts_of(first, np.full((6000, 5), 12), seed=2)
    early = random.binomial(10, TRUE.click_rates(first)[:, 4]).astype(np.float64)
    lucky = early > np.median(early)
    rows = np.tile(np.arange(6000), 2)
    places = np.concatenate([np.full(6000, 5), np.where(lucky, 1, 5)])
    shown = np.concatenate([np.full(6000, 10.0), np.full(6000, 60.0)])
    later = random.binomial(60, TRUE.click_rates(first)[np.arange(6000), places[6000:] - 1]).astype(np.float64)
    parts = {
        "rows": np.concatenate([shuffled.rows, rows]),
        "positions": np.concatenate([shuffled.positions, places]),
        "clicks": np.concatenate([shuffled.clicks, early, later]),
        "impressions": np.concatenate([shuffled.impressions, shown]),
    }
    keys, cell = np.unique(parts["rows"] * 9 + parts["positions"], return_inverse=True)
    sums = [np.bincount(cell, parts[name]).astype(np.float64) for name in ("clicks", "impressions")]
    placed = PlacedCounts(Counts(keys // 9, keys % 9, *sums), np.arange(6000), shuffled)
    only, all_ = (estimate_parameters(placed, each) for each in (RandomisedMap(only=True), HarvestedMap()))
    assert ((only.alpha_lower <= TRUE.alpha) & (TRUE.alpha <= only.alpha_upper)).all()
    assert rate_error(only, TRUE, first).max() < 0.04
    assert rate_error(all_, TRUE, first)[4] > 2 * rate_error(only, TRUE, first)[4]


def test_chance_wins_where_the_two_disagree() -> None:
    one, other = (
        ClickParameters(
            np.array([1, slope]),
            np.zeros(2),
            alpha_lower=np.array([1, slope - 0.05]),
            alpha_upper=np.array([1, slope + 0.05]),
            source=source,
        )
        for slope, source in ((0.45, "randomised"), (0.65, "harvest"))
    )
    assert EstimatedParameters({}).best is None
    for made in (
        EstimatedParameters({"randomised": one, "harvest": other}),
        EstimatedParameters({"harvest": other, "randomised": one}),
    ):
        assert made.best == "randomised"
        assert list(made.disagreements.values()) == [[2]]


def test_logs_that_cannot_tell_are_refused_by_position() -> None:
    same = PlacedCounts(counts_of(np.full(300, 0.5), np.full((300, 5), 50), seed=0), np.arange(300))
    with pytest.raises(DataError, match=r"clicks at position \d do not tell how they follow relevance.*More searches"):
        estimate_parameters(same)
    apart = np.zeros((40, 5), dtype=int)
    apart[:20, :3], apart[20:, 3:] = 200, 200
    with pytest.raises(DataError, match=r"positions 1 to 3 and 4 to 5 are not linked.*--depth 3"):
        estimate_parameters(PlacedCounts(counts_of(documents(40, 0), apart, seed=0), np.arange(40)))
    found = estimate_parameters(
        PlacedCounts(counts_of(documents(4000, 0), np.full((4000, 5), 50), seed=0), np.arange(4000)).cut(3)
    )
    assert len(found) == 3
    with pytest.raises(DataError, match="does not say which first slots were filled at random"):
        estimate_parameters(same, RandomisedMap())
    with pytest.raises(SettingError, match="depth must be at least 2"):
        same.cut(1)
    with pytest.raises(SettingError, match="least_clicks must be above 0"):
        HarvestedMap(least_clicks=0)
    with pytest.raises(SettingError, match="tolerance"):
        TrustMap(tolerance=2)
    with pytest.raises(SettingError, match="unit must be auto or query"):
        estimate_parameters(found_placed(), bootstrap=Bootstrap(unit="list"))


@pytest.mark.parametrize("seed", range(8))
def test_a_first_slot_that_tells_no_documents_apart_gives_no_slopes(seed: int) -> None:
    """The line is then as good with any slopes: they used to be found in the thousands, with narrow intervals."""
    random = np.random.default_rng(seed)
    shown = np.tile([4, 300, 300], (400, 1))
    chance = np.stack([np.full(400, 0.55), *np.outer([0.5, 0.3], random.uniform(0.2, 1, 400))], axis=1)
    rows, places = np.nonzero(shown)
    clicks = random.binomial(shown, chance).astype(np.float64)
    counts = Counts(rows, places + 1, clicks[rows, places], shown[rows, places].astype(np.float64))
    with pytest.raises(DataError, match=r"do not tell documents apart|do not tell how|has not settled"):
        estimate_parameters(PlacedCounts(counts, np.arange(400)))
    assert first_slot_tells(MovedRates.of(counts), np.array([1.0, 5000, 3000]), np.array([0, -2749.7, -1649.8])) < 4


def test_deep_positions_that_say_too_little_are_left_out() -> None:
    shown = np.full((2000, 5), 60)
    shown[:, 4] = np.arange(2000) < 4
    placed = PlacedCounts(counts_of(documents(2000, 0), shown, seed=0), np.arange(2000))
    with pytest.raises(DataError, match="--depth 4"):
        estimate_parameters(placed)
    found = deepest_parameters(placed)
    assert len(found) == 4
    assert found.notes[-1].startswith("positions below 4 are left out")
    assert len(deepest_parameters(found_placed())) == 5
    same = PlacedCounts(counts_of(np.full(300, 0.5), np.full((300, 5), 50), seed=0), np.arange(300))
    with pytest.raises(DataError, match="clicks at position"):
        deepest_parameters(same)
    apart = np.tile([[50, 0], [0, 50]], (20, 1))
    with pytest.raises(DataError, match="are not linked"):
        deepest_parameters(
            PlacedCounts(counts_of(documents(40, 0), np.pad(apart, ((0, 0), (0, 3))), seed=0), np.arange(40))
        )


@pytest.mark.parametrize("seed", range(25))
def test_any_small_log_gives_finite_parameters_or_a_reason(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, depth = random.integers(1, 60), random.integers(1, 6)
    shown = random.poisson(random.choice([0.5, 2, 20, 200]), (size, depth)) * (random.random((size, depth)) < 0.8)
    chance = random.random((size, 1)) * random.uniform(0, 1.2, depth) + random.uniform(-0.2, 0.3, depth)
    clicks = random.binomial(shown, np.clip(np.round(chance) if seed % 5 == 0 else chance, 0, 1)).astype(np.float64)
    rows, places = np.nonzero(shown)
    counts = Counts(rows, places + 1, clicks[rows, places], shown[rows, places].astype(np.float64))
    made = estimate_all(PlacedCounts(counts, np.arange(size) // 3, counts), bootstrap=Bootstrap(resamples=9))
    assert len(made.parameters) + len(made.unsupported) == 3
    for found in made.parameters.values():
        assert np.isfinite(found.alpha_upper).all()


def found_placed() -> PlacedCounts:
    return PlacedCounts(counts_of(documents(2000, 0), np.full((2000, 5), 50), seed=0), np.arange(2000))


def test_without_trust_bias_the_notes_say_so() -> None:
    plain = ClickParameters(np.array([1, 0.8, 0.6, 0.4, 0.3]), np.zeros(5))
    first = np.random.default_rng(0).uniform(0.1, 0.9, 500)
    placed = PlacedCounts(counts_of(first, np.full((500, 5), 200), seed=8, truth=plain), np.arange(500))
    assert any("no sign of trust bias" in note for note in estimate_parameters(placed).notes)
    known = with_curve(placed)
    assert known.theta == pytest.approx(plain.alpha, rel=0.05)
    found = estimate_parameters(known)
    assert found.notes[-1].startswith("theta is the curve of the position-based model")


def test_sessions_in_random_order_are_known_by_their_column() -> None:
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    offsets, rows, places = np.arange(0, 7, 2), np.array([0, 1, 1, 0, 1, 0]), np.tile([1, 2], 3).astype(np.int32)
    clicks = Clicks(lists, offsets, rows, places, np.array([1, 0, 1, 0, 0, 1]), np.ones(3, np.int64))
    placed = PlacedCounts.of_sessions(SessionLog(clicks, {"randomised": np.array(["no", "True", "0"])}))
    assert placed.randomised is not None
    assert placed.randomised.rows.tolist() == [0, 1]
    first = placed.first_by_chance
    assert list(zip(first.rows, first.positions, first.clicks, first.impressions, strict=True)) == [
        (0, 2, 1.0, 2.0),
        (1, 1, 1.0, 1.0),
        (1, 2, 0.0, 1.0),
    ]
    assert PlacedCounts.of_sessions(SessionLog(clicks)).randomised is None
