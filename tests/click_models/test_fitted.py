"""Fitted click models: against enumeration of all that users may have done, against EM by hand, against truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from clickprism.click_models import CLICK_MODELS, click_model
from clickprism.click_models.ccm import ClickChainModel
from clickprism.click_models.dbn import BayesianModel
from clickprism.click_models.factors import Groups, fit_factors
from clickprism.click_models.fitted import FittedModel, Prior
from clickprism.click_models.pbm import PositionModel
from clickprism.click_models.tails import climb, count_tails, expect
from clickprism.click_models.ubm import BrowsingModel, count_browsing
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError
from clickprism.settings import build, resolve
from clickprism.types import Clicks, Float64, Lists

NONE = Prior(0.0, 0.0)


def log_of(sessions: list[tuple[list[int], list[int], int]], *, documents: int) -> Clicks:
    """A log of (rows, clicks, impressions); positions 1, 2, ..."""
    lists = Lists(np.zeros((documents, 0), np.float32), np.array([0, documents]), np.array(["q"]))
    lengths = [len(rows) for rows, _, _ in sessions]
    times = np.array([times for _, _, times in sessions], dtype=np.int64)
    return Clicks(
        lists,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([rows for rows, _, _ in sessions]).astype(np.int64),
        np.concatenate([np.arange(1, length + 1) for length in lengths]).astype(np.int32),
        np.concatenate([clicks for _, clicks, _ in sessions]).astype(np.int64) * np.repeat(times, lengths),
        times,
    )


def random_log(*, seed: int, sessions: int, documents: int = 5, length: int = 4) -> Clicks:
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.1, 0.7, documents)
    rows = [rng.permutation(documents)[: rng.integers(2, length + 1)] for _ in range(sessions)]
    patterns = [(rng.random(len(row)) < chance[row] / np.arange(1, len(row) + 1) ** 0.7).astype(int) for row in rows]
    pairs = zip(rows, patterns, strict=True)
    return log_of([(row.tolist(), pattern.tolist(), 1) for row, pattern in pairs], documents=documents)


def all_patterns(rows: list[int], documents: int) -> Clicks:
    return log_of([(rows, list(clicks), 1) for clicks in product([0, 1], repeat=len(rows))], documents=documents)


def chain_paths(clicks: list[int], a: Float64, skip: float, click: Float64) -> Iterator[tuple[int, float]]:
    """Every place where the user may have stopped, with P(stopped after it, these clicks)."""
    for depth in range(1, len(clicks) + 1):
        chance = 1.0
        for place, clicked in enumerate(clicks):
            if place >= depth:
                chance *= 0.0 if clicked else 1.0
                continue
            chance *= a[place] if clicked else 1 - a[place]
            further = click[place] if clicked else skip
            if place + 1 < len(clicks):
                chance *= further if place + 1 < depth else 1 - further
        yield depth, chance


MODELS = [resolve(CLICK_MODELS, name, path="model") for name in CLICK_MODELS]


@pytest.fixture(scope="module")
def fitted() -> dict[str, FittedModel]:
    log = random_log(seed=1, sessions=300)
    return {model.name: model().fit(log) for model in MODELS}


@pytest.mark.parametrize("name", CLICK_MODELS)
def test_probabilities_agree_with_each_other(fitted: dict[str, FittedModel], name: str) -> None:
    model, rows = fitted[name], [3, 0, 4, 1]
    log = all_patterns(rows, 5)
    conditional = model.conditional_probability(log).reshape(-1, 4)
    clicked = log.clicks.reshape(-1, 4)
    chance = np.where(clicked, conditional, 1 - conditional).prod(axis=1)
    assert chance.sum() == pytest.approx(1)
    assert clicked.T @ chance == pytest.approx(model.click_probability(log)[:4])
    assert np.exp(model.log_likelihood(log)) == pytest.approx(chance, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "skip"), [("dbn", None), ("ccm", None), ("sdbn", 1.0), ("dcm", 1.0), ("cascade", 1.0)]
)
def test_chains_agree_with_enumeration(fitted: dict[str, FittedModel], name: str, skip: float | None) -> None:
    model, rows = fitted[name], [3, 0, 4, 1]
    values = model.parameters
    a = values["attraction"][rows]
    if name in ("dbn", "sdbn"):
        after = values.get("perseverance", np.ones(1)) * (1 - values["satisfaction"][rows])
    elif name == "ccm":
        after = values["after_irrelevant"] * (1 - a) + values["after_relevant"] * a
    else:
        after = values["continuation"] if name == "dcm" else np.zeros(4)
    go = skip if skip is not None else float(values["perseverance" if name == "dbn" else "after_skip"])
    log = all_patterns(rows, 5)
    exact = [sum(p for _, p in chain_paths(list(clicks), a, go, after)) for clicks in log.clicks.reshape(-1, 4)]
    assert np.exp(model.log_likelihood(log)) == pytest.approx(np.array(exact), abs=1e-5)


def test_browsing_agrees_with_its_definition(fitted: dict[str, FittedModel]) -> None:
    model = fitted["ubm"]
    table, a = model.parameters["table"], model.attraction
    log = log_of([([2, 1, 4, 0], [0, 1, 0, 1], 1)], documents=5)
    expected = [table[0, 0] * a[2], table[1, 0] * a[1], table[2, 1] * a[4], table[3, 2] * a[0]]
    assert model.conditional_probability(log) == pytest.approx(expected)
    gap = replace(log, positions=np.array([1, 2, 7, 9], np.int32))  # below the table its last row holds
    expected[2:] = [table[3, 3] * a[4], table[3, 3] * a[0]]
    assert model.conditional_probability(gap) == pytest.approx(expected)


def em_step(groups: Groups, a: Float64, t: Float64, prior: tuple[float, float]) -> tuple[Float64, Float64]:
    """One step of EM for P(click) = a t, over groups, term by term."""
    size = (len(a), len(t))
    found_a, found_t, shown_a, shown_t = (np.zeros(size[i % 2]) for i in range(4))
    for i in range(len(a)):
        for group in range(groups.offsets[i], groups.offsets[i + 1]):
            k, c, n = groups.cells[group], groups.clicks[group], groups.impressions[group]
            both = a[i] * t[k]
            found_a[i] += c + (n - c) * (a[i] - both) / (1 - both)
            found_t[k] += c + (n - c) * (t[k] - both) / (1 - both)
            shown_a[i] += n
            shown_t[k] += n
    total = sum(prior)
    return (found_a + prior[0]) / (shown_a + total), (found_t + prior[0]) / (shown_t + total)


@pytest.mark.parametrize("prior", [(0.0, 0.0), (1.0, 2.0)])
def test_factors_are_where_em_stands_still_and_no_em_does_better(prior: tuple[float, float]) -> None:
    log = random_log(seed=2, sessions=400)
    groups = count_browsing(log)
    used, cells = np.unique(groups.cells, return_inverse=True)
    groups = replace(groups, cells=cells.astype(np.int64), size=len(used))
    found = fit_factors(groups, tolerance=1e-8, max_iterations=100, prior=prior)
    assert found.converged
    a, t = em_step(groups, found.attraction, found.observation, prior)
    assert a == pytest.approx(found.attraction, abs=1e-6)
    assert t == pytest.approx(found.observation, abs=1e-6)

    def value(a: Float64, t: Float64) -> float:
        both = np.repeat(a, np.diff(groups.offsets)) * t[groups.cells]
        total = float(np.sum(groups.clicks * np.log(both) + (groups.impressions - groups.clicks) * np.log1p(-both)))
        return total + sum(
            float(prior[0] * np.log(x).sum() + prior[1] * np.log1p(-x).sum()) for x in (a, t) if prior[0]
        )

    a, t = np.full(len(a), 0.5), np.full(len(t), 0.5)
    values = []
    for _ in range(3000):
        values.append(value(a, t))
        a, t = em_step(groups, a, t, prior)
    assert bool((np.diff(values) > -1e-9).all())
    assert value(found.attraction, found.observation) >= values[-1] - 1e-6
    assert t / t.max() == pytest.approx(found.observation / found.observation.max(), rel=2e-2)


def counted(rows: list[int], positions: list[int], clicks: Any, impressions: Any) -> Groups:
    """Return the counts of (row, position) pairs, sorted by row."""
    documents, sizes = np.unique(rows, return_counts=True)
    cells = np.array(positions) - 1
    clicked, shown = (np.asarray(each, np.float64) for each in (clicks, impressions))
    return Groups(documents, np.append(0, np.cumsum(sizes)), cells, clicked, shown, int(cells.max()) + 1)


def test_curve_by_hand_with_bounds_and_gaps() -> None:
    # products of (.9, .6, .3) and (1, .5): exact rates give them back; position 3 was never shown, 4 never clicked
    rates = np.outer([0.9, 0.6, 0.3], [1.0, 0.5])
    clicks = np.insert(rates.ravel() * 200, 2, 0.0)
    groups = counted([5, 5, 5, 7, 7, 9, 9], [1, 2, 4, 1, 2, 1, 2], clicks, np.full(7, 200.0))
    found = fit_factors(groups, tolerance=1e-8)
    assert found.observation == pytest.approx([1.0, 0.5, np.nan, 0.0], nan_ok=True)
    assert found.attraction == pytest.approx([0.9, 0.6, 0.3])


def test_counts_that_say_little() -> None:
    nothing = fit_factors(counted([0], [1], [0], [3]))
    assert (nothing.observation.tolist(), nothing.attraction.tolist(), nothing.converged) == ([0.0], [0.0], True)
    always = fit_factors(counted([0, 0], [1, 2], [3, 2], [3, 2]))
    assert always.observation == pytest.approx([1, 1])
    assert always.attraction == pytest.approx([1])
    # no document in both positions: each is right by itself, and the fit still ends
    apart = fit_factors(counted([0, 1], [1, 2], [5, 1], [10, 10]))
    assert apart.converged
    assert apart.attraction * apart.observation == pytest.approx([0.5, 0.1])


@pytest.mark.parametrize("prior", [(0.0, 0.0), (0.1, 3.0)])
def test_sparse_counts_of_all_shapes_end_where_em_stands_still(prior: tuple[float, float]) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        documents, cells = int(rng.integers(1, 20)), int(rng.integers(1, 10))
        there = rng.random((documents, cells)) < rng.choice([0.2, 0.5, 1.0])
        there[np.arange(documents), rng.integers(0, cells, documents)] = True
        shown = rng.integers(1, rng.choice([2, 5, 100, 10_000]), (documents, cells))
        clicked = rng.binomial(shown, np.outer(rng.random(documents) ** 0.3, rng.random(cells) ** rng.integers(0, 2)))
        offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
        clicks, impressions = (x[there].astype(np.float64) for x in (clicked, shown))
        groups = Groups(
            np.arange(documents), offsets, np.nonzero(there)[1].astype(np.int64), clicks, impressions, cells
        )
        found = fit_factors(groups, tolerance=1e-7, max_iterations=100, prior=prior)
        assert found.converged, seed
        a, t = found.attraction, np.nan_to_num(found.observation, nan=0.5)
        with np.errstate(divide="ignore", invalid="ignore"):
            one, other = em_step(groups, np.minimum(a, 1 - 1e-12), t, prior)
        assert one == pytest.approx(a, abs=2e-5), seed
        known = np.isfinite(other) & np.isfinite(found.observation)
        assert other[known] == pytest.approx(t[known], abs=2e-5), seed


def test_merged_logs_give_the_same_models() -> None:
    log = random_log(seed=3, sessions=200, documents=3, length=3)
    for model in MODELS:
        one, two = model().fit(log), model().fit(log.merge(by="pattern"))
        for name, values in one.parameters.items():
            assert two.parameters[name] == pytest.approx(values, abs=1e-9), (model.name, name)
        assert two.log_likelihood(log.merge(by="pattern")).sum() == pytest.approx(one.log_likelihood(log).sum())
    merged = log.merge()
    assert PositionModel().fit(merged).attraction == pytest.approx(PositionModel().fit(log).attraction)
    with pytest.raises(DataError, match=r"merged by list.*--simulation.merge pattern"):
        BrowsingModel().fit(merged)
    with pytest.raises(DataError, match="merged by list"):
        BayesianModel().fit(log).log_likelihood(merged)


def test_closed_forms_by_hand() -> None:
    log = log_of([([0, 1, 2], [1, 0, 1], 3), ([0, 1, 2], [0, 1, 0], 2), ([0, 1, 2], [0, 0, 0], 5)], documents=4)
    values = {model.name: model(prior=NONE).fit(log).parameters for model in MODELS if model.name != "global"}
    # down to the first click: document 0 was seen 10 times, 1 and 2 in the 7 and 5 sessions without a click above
    assert values["cascade"]["attraction"][:3] == pytest.approx([3 / 10, 2 / 7, 0 / 5])
    # down to the last: 10, 10, 8; the clicks on 0 were followed by another, those on 1 were not; 2 ends the list
    assert values["sdbn"]["attraction"][:3] == pytest.approx([3 / 10, 2 / 10, 3 / 8])
    assert values["sdbn"]["satisfaction"][:2] == pytest.approx([0, 1])
    assert values["dcm"]["continuation"][:2] == pytest.approx([1, 0])
    assert values["rank"]["rates"] == pytest.approx([0.3, 0.2, 0.3])
    smooth = {model.name: model(prior=Prior(1, 3)).fit(log) for model in MODELS}
    assert smooth["document"].attraction == pytest.approx([4 / 14, 3 / 14, 4 / 14, 1 / 4])
    assert smooth["global"].attraction == pytest.approx(np.full(4, 9 / 34))
    assert all(
        model.attraction[3] == pytest.approx(0.25) for name, model in smooth.items() if name not in ("global", "rank")
    )


def test_expectations_agree_with_enumeration() -> None:
    rng = np.random.default_rng(4)
    log = random_log(seed=5, sessions=60)
    attraction, after_click, skip = rng.uniform(0.2, 0.8, 5), rng.uniform(0.1, 0.9, 5), 0.7
    looks, went, paused, continued, value = np.zeros(5), np.zeros(5), 0.0, 0.0, 0.0
    for i in range(len(log)):
        rows, clicks = (x[log.offsets[i] : log.offsets[i + 1]] for x in (log.rows, log.clicks))
        paths = list(chain_paths(clicks.tolist(), attraction[rows], skip, after_click[rows]))
        whole = sum(chance for _, chance in paths)
        value += np.log(whole)
        for depth, chance in paths:
            for place in range(depth):
                further = place + 1 < len(rows)
                if clicks[place]:
                    went[rows[place]] += chance / whole * (further and place + 1 < depth)
                else:
                    looks[rows[place]] += chance / whole
                    paused += chance / whole * further
                    continued += chance / whole * (further and place + 1 < depth)
    found = expect(count_tails(log), attraction=attraction, after_skip=skip, after_click=after_click)
    assert found.looks == pytest.approx(looks)
    assert found.went == pytest.approx(went)
    assert (found.paused, found.continued, found.log_likelihood) == pytest.approx((paused, continued, value))


@pytest.mark.parametrize("model", [BayesianModel, ClickChainModel])
@pytest.mark.parametrize("prior", [Prior(), NONE])
def test_em_ends_where_the_gradient_is_zero(
    model: type[BayesianModel | ClickChainModel], prior: Prior, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = random_log(seed=6, sessions=500)
    values: list[float] = []

    def listen(step, start, **rest):  # type: ignore[no-untyped-def]
        end = climb(step, start, **rest)
        here = start
        for _ in range(30):
            here, value = step(here)
            values.append(value)
        values.append(step(end.parameters)[1])
        for i in range(len(start)):
            for sign in (-1, 1):
                moved = end.parameters.copy()
                moved[i] = np.clip(moved[i] + sign * 0.01, 1e-9, 1 - 1e-9)
                assert step(moved)[1] <= values[-1] + 1e-4, i
        return end

    monkeypatch.setattr("clickprism.click_models.tails.climb", listen)
    assert model(prior=prior, tolerance=1e-6).fit(log).converged
    assert bool((np.diff(values) > -1e-9).all())


def test_observation_is_relative_to_the_first_position(fitted: dict[str, FittedModel]) -> None:
    log = random_log(seed=1, sessions=300)
    curve = fitted["pbm"].parameters["curve"]
    assert fitted["pbm"].observation(log) == pytest.approx(curve / curve[0])
    for name in CLICK_MODELS:
        assert fitted[name].observation(log)[0] == 1
    a = fitted["cascade"].attraction
    single = log_of([([0, 1, 2], [0, 0, 0], 1)], documents=5)
    assert fitted["cascade"].observation(single) == pytest.approx([1, 1 - a[0], (1 - a[0]) * (1 - a[1])])


def test_few_steps_are_steps() -> None:
    log = random_log(seed=7, sessions=200)
    found = [BayesianModel(max_iterations=steps).fit(log) for steps in (1, 2, 3)]
    assert [model.iterations for model in found] == [1, 2, 3]
    assert not any(model.converged for model in found)
    values = [0.0, *(float(model.log_likelihood(log).sum()) for model in found)]
    assert values[1] < values[2] < values[3]


def test_settings_and_logs_that_cannot_work() -> None:
    with pytest.raises(SettingError, match=r"prior\.clicks must be at least 0, got -1"):
        build(PositionModel, {"prior": {"clicks": -1.0}})
    with pytest.raises(SettingError, match="tolerance must be between 0 and 1, got 0"):
        BrowsingModel(tolerance=0)
    with pytest.raises(SettingError, match="max_iterations must be at least 1"):
        ClickChainModel(max_iterations=0)
    with pytest.raises(SettingError, match="perseverance must be a probability"):
        BayesianModel(perseverance=1.2)
    empty = random_log(seed=0, sessions=1).take([])
    for model in MODELS:
        with pytest.raises(DataError, match="no sessions to fit"):
            model().fit(empty)
    known = PositionModel()
    with pytest.raises(DataError, match="the model knows 5 documents, the log has 6"):
        known.fit(random_log(seed=0, sessions=9)).click_probability(random_log(seed=0, sessions=9, documents=6))


def test_perseverance_that_is_known_stays() -> None:
    log = random_log(seed=7, sessions=200)
    found = BayesianModel(perseverance=1.0).fit(log)
    assert float(found.parameters["perseverance"]) == 1
    free = BayesianModel(prior=NONE).fit(log).log_likelihood(log).sum()
    assert free >= BayesianModel(prior=NONE, perseverance=1.0).fit(log).log_likelihood(log).sum()


@pytest.mark.parametrize("name", CLICK_MODELS)
def test_what_read_sessions_gives_is_not_yet_clicks(name: str) -> None:
    log = Logged(log_of([([0, 1], [1, 0], 1)], documents=2))
    with pytest.raises(TypeError, match=r"not a Logged: pass its \.clicks"):
        click_model(name).fit(log)
    assert click_model(name).fit(log.clicks).name == name
