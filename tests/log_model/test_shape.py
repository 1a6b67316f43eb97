"""The refinement of the curve by a free shape of the prior: derivatives, the mean of two curves, when it is used."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.log_model import shape
from clickprism.log_model.counts import count
from clickprism.log_model.fit import fit_form, solve
from clickprism.log_model.shape import TOLERANCE, Shape, refine
from clickprism.log_model.terms import Covariates, Form
from tests.log_model.simulated_logs import world


def test_derivatives_are_those_of_the_loss() -> None:
    fit = fit_form(count(world(0, queries=20).log), Form(), Covariates())
    shape = Shape(fit.problem, fit.theta)
    at = shape.centre + np.random.default_rng(0).normal(0, 0.05, len(shape.centre))
    value = shape.evaluate(at, second=True)
    for number in range(len(at)):
        step = np.zeros(len(at))
        step[number] = 1e-5
        up, down = shape.evaluate(at + step), shape.evaluate(at - step)
        assert np.isclose((up.loss - down.loss) / 2e-5, value.gradient[number], rtol=1e-5, atol=1e-4)
        assert np.allclose((up.gradient - down.gradient) / 2e-5, value.hessian[number], rtol=1e-4, atol=1e-3)
    push = shape.precision @ (at - shape.centre) + shape.pull
    assert np.allclose(value.scores.sum(axis=0), push - value.gradient)


def test_the_curve_is_the_mean_of_both_and_the_rest_fits_it() -> None:
    fit = fit_form(count(world(0, queries=60, searches=60).log), Form(), Covariates())
    refined, free = refine(fit), Shape(fit.problem, fit.theta)
    below = fit.problem.counts.positions - 1
    half = solve(free, free.centre, tolerance=TOLERANCE)[0][:below] / 2
    assert half.mean() > 0
    assert np.allclose(refined.problem.centre[:below], fit.theta[:below] + half)
    assert np.allclose(refined.theta[:below], refined.problem.centre[:below], atol=0.01)
    assert np.allclose(refined.covariance[:below, :below], fit.covariance[:below, :below] + np.outer(half, half))


def test_a_free_curve_that_is_steeper_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_form(count(world(0, queries=20).log), Form(), Covariates())
    steeper = np.full(fit.problem.counts.positions - 1, -0.1)
    monkeypatch.setattr(shape, "solve", lambda *_, **__: (steeper, fit.value, 1))
    assert refine(fit) is fit


def test_forms_with_a_mixture_of_their_own_are_left_alone() -> None:
    fit = fit_form(count(world(0, queries=20).log), Form(steepness=True), Covariates())
    assert refine(fit) is fit
