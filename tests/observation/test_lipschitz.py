"""Lipschitz constants by hand, by differences, and by autograd."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.observation.decoupling import coupled_observation
from clickprism.observation.lipschitz import Of, fitted_lipschitz, true_gradients, true_lipschitz
from clickprism.types import Float64
from clickprism.users.coupled import CoupledUser
from clickprism.users.pbm import EYE_TRACKING


@pytest.mark.parametrize("of", ["observation", "log", "relative"])
def test_gradients_of_the_truth_against_differences_and_autograd(of: Of) -> None:
    import torch

    user = CoupledUser(eta=1, columns=(2, 0, 2), weights=(0.3, -0.7, 0.2))
    features = np.random.default_rng(0).uniform(-1, 1, (40, 4)).astype(np.float32)
    features[0] = [3, 0, -2, 0]  # 1 + w.x below 0
    truth = coupled_observation(user, features=4, positions=5)
    found = true_gradients(user, features, positions=5, of=of)

    def value(x: Float64) -> Float64:
        o = truth(x)
        return {"observation": o, "log": np.log(o), "relative": np.log(o) - np.log(o[..., :1])}[of]

    steps = 1e-5 * np.eye(4)
    x = features.astype(np.float64)
    slopes = np.stack([(value(x + step) - value(x - step)) / 2e-5 for step in steps])
    assert found == pytest.approx(np.sqrt((slopes**2).sum(axis=0)), abs=1e-7)
    assert (found[0] == 0).all()

    weights = torch.tensor([-0.7, 0, 0.5, 0])
    logs = torch.tensor(np.log(EYE_TRACKING[:5]), dtype=torch.float32)
    fitted = fitted_lipschitz(lambda x: (1 + x @ weights).clamp(min=0)[:, None] * logs, features, of=of)
    exact = true_lipschitz(user, features, positions=5, of=of)
    assert fitted.means == pytest.approx(exact.means, rel=1e-5)
    assert fitted.maxima == pytest.approx(exact.maxima, rel=1e-5)
    assert (fitted.mean, fitted.maximum) == pytest.approx((found.mean(), found.max()), rel=1e-5)
    assert fitted.against(exact)["ratio"] == pytest.approx(1)


def test_position_only_observation_has_no_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("clickprism.observation.lipschitz.DOCUMENTS", 2)
    features = np.ones((5, 3), np.float32)
    curve = torch.nn.Parameter(torch.tensor([0.0, -1.0]))
    flat = fitted_lipschitz(lambda x: curve.expand(len(x), 2), features, of="log")
    constant = fitted_lipschitz(lambda x: torch.zeros(len(x), 2), features, of="log")
    assert flat == constant
    assert (flat.mean, flat.maxima) == (0, (0, 0))
    assert flat.against(flat)["ratio"] is None
    sloped = fitted_lipschitz(lambda x: torch.stack([0 * x[:, 0], x[:, 0] * x[:, 1]], dim=1), features, of="log")
    assert sloped.means == pytest.approx((0, math.sqrt(2)))


def test_the_relative_gradient_does_not_depend_on_the_gauge() -> None:
    import torch

    features = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    slopes = torch.tensor([[0.1, 0.2, 0.3], [0.0, -0.5, 0.4]]).T
    free = [fitted_lipschitz(lambda x: x @ slopes, features, of=of).mean for of in ("log", "relative")]
    moved = [
        fitted_lipschitz(lambda x: x @ slopes + (3 * x[:, :1]).sin(), features, of=of).mean
        for of in ("log", "relative")
    ]
    assert moved[0] > 2 * free[0]
    assert moved[1] == pytest.approx(free[1], rel=1e-5)


def test_wrong_kinds_and_empty_data_are_refused() -> None:
    features = np.zeros((1, 1), np.float32)
    with pytest.raises(SettingError, match="be one of observation, log, relative"):
        true_gradients(CoupledUser(eta=0), features, positions=1, of="x")  # type: ignore[arg-type]
    log = true_lipschitz(CoupledUser(eta=0), features, positions=2, of="log")
    with pytest.raises(DataError, match="same kind"):
        log.against(replace(log, of="observation"))
    with pytest.raises(DataError, match="no documents"):
        true_lipschitz(CoupledUser(eta=0), features[:0], positions=2)
