"""How often each document was seen, by every observation model of `METHODS`: what turns clicks into targets.

Every model says how often a document was seen where it stood, in units of the first position. Clicks over that estimate
the click a document would have had in the first place, the one quantity that clicks identify, and any ranker may learn
it. So an observation model and a ranker are chosen apart, and each is cheap to try.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from clickprism.choice.candidates import LEARNED
from clickprism.choice.material import Material
from clickprism.choice.targets import Exposure
from clickprism.click_models.trust import TrustFit
from clickprism.types import Clicks, Float64, Int64

FIRST: Final = 0.8  # how often the first result is looked at, at least: `Decoupling.first`
FLOOR: Final = 0.01  # of exposure an impression
BENT_FLOOR: Final = 0.03  # where documents bend it: errors in how much weigh the most where least is seen
EPOCHS: Final = 12


def as_it_is(material: Material) -> Exposure:
    """Every impression was seen."""
    return _lines(material, np.zeros(len(material.places.rows)))


def by_places(material: Material, below: Float64, steep: Float64 | None = None) -> Exposure:
    """By log observation of places, [places], and by what documents bend it, [lines].

    What bends the observation bends that of the first position too. Features do so always alike, which clicks cannot
    show: where `below` does not tell it, the first result is taken to be looked at with `FIRST`, or as often as the
    average position if that is more.
    """
    places = material.places
    logs = below[places.places]
    if steep is not None:
        hidden = 0.0
        if below[0] == 0:
            hidden = float(np.clip(average(places.position_of, below)[1:].mean(), np.log(FIRST), 0.0))
        logs = np.maximum(steep * (logs + hidden) - hidden - below[0], np.log(BENT_FLOOR))
    return _lines(material, logs)


def by_trust(material: Material, fitted: TrustFit) -> Exposure:
    """By the affine model: how much relevance adds to clicks at each position, and the clicks that come without it."""
    positions, shown = material.places.position_of[material.places.places], material.places.impressions
    exposure = _lines(material, np.log(np.maximum(fitted.alpha, 1e-9))[positions])
    return replace(exposure, background=shown * fitted.beta[positions])


def average(position_of: Int64, below: Float64) -> Float64:
    """The mean over the places of each position, [positions]."""
    return np.asarray(np.bincount(position_of, weights=below) / np.bincount(position_of), dtype=np.float64)


def learned(material: Material, method: str, *, seed: int) -> tuple[Exposure, Float64 | None]:
    """By what a method of the library learns beside a small network, and its curve if it has one."""
    from clickprism.debias import METHODS
    from clickprism.rankers.mlp import MLP
    from clickprism.settings import choose
    from clickprism.training.fit import fit
    from clickprism.training.settings import FitSettings

    clicks = material.clicks.merge()
    settings = FitSettings(epochs=EPOCHS, batch_size=max(32, len(clicks) // 64), threads=1, seed=seed)
    chosen = choose(METHODS, dict(LEARNED[method]), path="method")
    fitted = fit(clicks, method=chosen, ranker=MLP(hidden=(32,)), settings=settings, show=False)
    if fitted.learner is None:
        raise TypeError("a network has a learner")
    return _entries(clicks, fitted.learner.exposure(clicks)), fitted.observation


def _entries(clicks: Clicks, seen: Float64) -> Exposure:
    shown = clicks.list_impressions.astype(np.float64)
    counts, positions = clicks.clicks.astype(np.float64), clicks.positions.astype(np.int64) - 1
    return Exposure(clicks.rows, positions, counts, shown, np.maximum(seen, FLOOR * shown), np.zeros(len(shown)))


def _lines(material: Material, logs: Float64) -> Exposure:
    """By log observation, [lines]."""
    places = material.places
    seen = places.impressions * np.maximum(np.exp(logs), FLOOR)
    positions = places.position_of[places.places]
    return Exposure(places.rows, positions, places.clicks, places.impressions, seen, np.zeros(len(seen)))
