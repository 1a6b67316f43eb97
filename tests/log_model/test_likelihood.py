"""The likelihood of the shared parameters: derivatives against finite differences, values against integrals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.special import expit
from scipy.stats import gamma, norm, poisson

from clickprism.log_model.counts import LogCounts, count
from clickprism.log_model.likelihood import ENOUGH, NODES, Problem, Trust
from clickprism.types import Float64
from tests.log_model.simulated_logs import clicks_of, lists_of, world

FORMS = [
    (steepness, level, proportional, coupling, trust)
    for steepness, level, proportional, coupling, trust in product((False, True), repeat=5)
    if not (steepness and level)
]


def problem(counts: LogCounts, *parts: bool) -> tuple[Problem, Float64]:
    """Return the likelihood of a form, and parameters at which to evaluate it."""
    steepness, level, proportional, coupling, trust = parts
    below = np.flatnonzero(counts.position > 0)
    shape = (len(counts.pair), counts.positions - 1)
    design = csr_array((np.ones(len(below)), (below, counts.position[below] - 1)), shape=shape)
    prior = np.column_stack([np.ones(len(counts)), counts.first, counts.features[:, :2]])
    coupled = counts.features[:, 2:].astype(np.float64)
    curve = -0.5 * np.log(np.arange(2, counts.positions + 1))
    theta = [*curve, *([0.1, -0.2] if coupling else []), 1.5]
    theta += [-0.7] if steepness or level else []
    theta += [-1.5, -0.2, 0.3, -0.1]
    size = len(theta)
    return Problem(
        counts,
        design,
        prior,
        np.eye(size) * 0.1,
        np.linspace(-1, 1, size),
        steepness=steepness,
        level=level,
        proportional=proportional,
        coupled=coupled if coupling else None,
        base=-0.6 * np.log(counts.position + 1) if coupling else None,
        trust=Trust(0.03, (0.6 / (counts.position + 0.6)).astype(np.float64), counts.clicks * 0.1) if trust else None,
    ), np.array(theta)


@pytest.fixture(scope="module")
def counts() -> LogCounts:
    return count(world(3, queries=12, documents=4, features=4).log)


@pytest.mark.parametrize("parts", FORMS, ids=lambda parts: "".join("SLPCT"[i] for i in range(5) if parts[i]) or "none")
def test_derivatives_are_those_of_finite_differences(counts: LogCounts, parts: tuple[bool, ...]) -> None:
    of_form, theta = problem(counts, *parts)
    value = of_form.evaluate(theta, second=True)
    step = 1e-5
    gradient, hessian = np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
    for number in range(len(theta)):
        move = step * (np.arange(len(theta)) == number)
        ahead, behind = of_form.evaluate(theta + move), of_form.evaluate(theta - move)
        gradient[number] = (ahead.loss - behind.loss) / (2 * step)
        hessian[number] = (ahead.gradient - behind.gradient) / (2 * step)
    assert value.gradient == pytest.approx(gradient, abs=1e-6 * np.abs(gradient).max())
    assert value.hessian == pytest.approx(hessian, abs=1e-6 * np.abs(hessian).max())
    penalty = of_form.precision @ (theta - of_form.centre)
    assert value.scores.sum(axis=0) == pytest.approx(penalty - value.gradient, abs=1e-8 * np.abs(gradient).max())
    off = theta - of_form.centre
    assert value.loss == pytest.approx(0.05 * off @ off - value.by_query.sum())
    assert value.nodes.sum(axis=0) == pytest.approx(np.ones(counts.queries))


def one_pair(clicks: tuple[int, int]) -> LogCounts:
    """Return the counts of one document in 10 searches at position 1 and 10 at position 2; another is never clicked."""
    rows = np.array([[0, 1], [1, 0]])
    shown = clicks_of(lists_of(1, 2), rows, np.array([[clicks[0], 0], [0, clicks[1]]]), 10)
    counts = count(shown)
    cells = counts.pair == 0
    per_pair = {name: getattr(counts, name)[:1] for name in ("rows", "query", "first", "average", "features")}
    per_cell = {name: getattr(counts, name)[cells] for name in ("pair", "position", "impressions", "clicks", "context")}
    return replace(counts, **per_pair, **per_cell)


def simple(counts: LogCounts, **options: bool) -> Problem:
    """Return the likelihood with a curve and a constant prior, and no penalty."""
    design = csr_array((counts.position > 0).astype(np.float64)[:, None])
    size = 4 if options.get("steepness") or options.get("level") else 3
    return Problem(counts, design, np.ones((1, 1)), np.zeros((size, size)), np.zeros(size), **options)  # type: ignore[arg-type]


def by_integration(problem: Problem, curve: float, strength: float, odds: float, *, shift: float = 0.0) -> float:
    """Return the probability of the clicks of the one pair, up to a factor that does not depend on the parameters."""
    mean = expit(odds)
    shape = strength if problem.proportional else strength * mean
    rate = shape / mean
    exposure = problem.impressions * np.array([1.0, np.exp(np.exp(shift) * curve)])

    def integrand(g: float) -> float:
        return float(np.prod(poisson.pmf(problem.counts.clicks, exposure * g)) * gamma.pdf(g, shape, scale=1 / rate))

    return float(quad(integrand, 0, 3, epsabs=0, epsrel=1e-10, points=[0.01, 0.1, 0.5])[0])


@pytest.mark.parametrize("proportional", [False, True])
@pytest.mark.parametrize("clicks", [(0, 0), (4, 1)])
def test_the_likelihood_of_a_pair_is_the_integral_over_its_relevance(
    clicks: tuple[int, int], proportional: bool
) -> None:
    counts = one_pair(clicks)
    plain = replace(simple(counts, proportional=proportional))
    plain.__dict__["scale"] = np.ones(1)  # counts as they are
    first, second = np.array([-0.5, 1.0, -1.0]), np.array([-1.2, 0.2, 0.3])
    difference = plain.evaluate(first).loss - plain.evaluate(second).loss
    assert difference == pytest.approx(
        -np.log(by_integration(plain, -0.5, np.exp(1.0), -1.0) / by_integration(plain, -1.2, np.exp(0.2), 0.3)),
        rel=1e-6,
    )


@pytest.mark.parametrize("part", ["steepness", "level"])
def test_what_differs_between_queries_is_integrated_out(part: str) -> None:
    counts = one_pair((4, 1))
    mixed = simple(counts, **{part: True})
    mixed.__dict__["scale"] = np.ones(1)
    sigma = 0.4
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)

    def exact(curve: float, strength: float, odds: float) -> float:
        def at(z: float) -> float:
            if part == "steepness":
                return by_integration(mixed, curve, strength, odds, shift=sigma * z)
            return by_integration(mixed, curve, strength, odds + sigma * z)

        return float(weights @ [at(z) for z in nodes] / weights.sum())

    def loss(curve: float, strength: float, odds: float) -> float:
        return mixed.evaluate(np.array([curve, np.log(strength), np.log(sigma), odds])).loss

    difference = loss(-0.5, 3.0, -1.0) - loss(-1.0, 2.0, 0.0)
    assert difference == pytest.approx(-np.log(exact(-0.5, 3.0, -1.0) / exact(-1.0, 2.0, 0.0)), rel=1e-6)
    # the seven nodes are as good as the integral over the normal distribution
    fine = np.linspace(-5, 5, 81)
    whole = norm.pdf(fine) @ [by_integration(mixed, -0.5, 3.0, -1.0 + sigma * z) for z in fine] * (fine[1] - fine[0])
    if part == "level":
        assert exact(-0.5, 3.0, -1.0) == pytest.approx(whole, rel=1e-4)


def test_trust_adds_clicks_that_do_not_depend_on_the_document() -> None:
    counts = one_pair((4, 1))
    plain = simple(counts)
    theta = np.array([-0.5, 1.0, -1.0])
    gamma_k = np.array([1.0, 0.6 / 1.6])
    trusted = replace(plain, trust=Trust(0.1, gamma_k, np.zeros(2)))
    added = plain.impressions * np.exp([0.0, -0.5]) * 0.1 * gamma_k
    assert trusted.evaluate(theta).loss - plain.evaluate(theta).loss == pytest.approx(added.sum())
    assert trusted.relevant_clicks == pytest.approx(plain.relevant_clicks)
    split = replace(plain, trust=Trust(0.1, gamma_k, np.array([1.0, 0.5])))
    assert plain.relevant_clicks - split.relevant_clicks == pytest.approx(1.5 * plain.scale)


def test_pairs_with_many_clicks_are_scaled_down() -> None:
    assert simple(one_pair((0, 0))).scale.tolist() == [1]
    assert simple(one_pair((10, 10))).scale == pytest.approx([1 / (1 + 20 / ENOUGH)])


def test_given_propensities_are_a_fixed_part_of_the_observation() -> None:
    counts = one_pair((4, 1))
    given = replace(
        simple(counts),
        design=csr_array((2, 0)),
        precision=np.zeros((2, 2)),
        centre=np.zeros(2),
        offset=np.array([0, -0.5]),
    )
    assert given.evaluate(np.array([1.0, -1.0])).loss == pytest.approx(
        simple(counts).evaluate(np.array([-0.5, 1.0, -1.0])).loss
    )
    assert given.log_observation(np.array([1.0, -1.0])).tolist() == [0, -0.5]


def test_evaluation_does_not_change_its_inputs() -> None:
    counts = one_pair((4, 1))
    theta = np.array([-0.5, 1.0, -1.0])
    before = theta.copy(), counts.clicks.copy(), counts.impressions.copy()
    simple(counts).evaluate(theta, second=True)
    for kept, now in zip(before, (theta, counts.clicks, counts.impressions), strict=True):
        assert kept.tolist() == now.tolist()
