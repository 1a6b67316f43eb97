"""Coverage of the model's 95% intervals in worlds that it does not have the form of.

- logit: a position lowers the log-odds of a click, so the relative observation differs between documents
- types: half of the searches are by hasty users, who observe k^-1.4, the others by thorough ones, who observe k^-.3 and
  click less on poor documents
- grid: three columns; each row is observed .7 times as often as the one above it, the columns 1, .6 and .8 times
- own: observation k^-.7, the form of the model, for comparison

Documents are ranked by relevance plus noise, redrawn each day. The value of a pair is its click probability at the
first position. The curve is the click probability at position k over that at position 1, both summed over the documents
that were shown at k. A world passes if both coverages are 93 to 97%, or if the report says that the model does not fit,
or that AllPairs differs from it. Tables go to stderr.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
from scipy.special import expit

from benchmarks.base import Result
from clickprism.data.logged import Logged
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Clicks, Float64, Lists

QUERIES: Final = 200
DOCUMENTS: Final = 9
DAYS: Final = 6
SEARCHES: Final = 20
SEEDS: Final = 10
WORLDS: Final = ("own", "logit", "types", "grid")


def run() -> list[Result]:
    """Return by how much the coverage of each world misses .95; 0 where the report warns."""
    print("| world | value | curve | mean log error of the curve | flagged |", file=sys.stderr)
    print(f"|{'---|' * 5}", file=sys.stderr)
    results = []
    for name in WORLDS:
        rows = np.array([_covered(name, seed) for seed in range(SEEDS)])
        value, curve, bias, misfit = rows.mean(axis=0).tolist()
        print(
            f"| {name} | {value:.3f} | {curve:.3f} | {bias:.3f} | {misfit * SEEDS:.0f} of {SEEDS} |",
            file=sys.stderr,
            flush=True,
        )
        missed = 0.0 if misfit > 0.5 else max(abs(value - 0.95), abs(curve - 0.95))
        results.append(Result(f"coverage, world {name}: 93 to 97%", missed, 0.02, 1.0, "distance from .95", False))
    return results


def chances(name: str, log_odds: Float64) -> Float64:
    """Return the click probability of each document at each position, [..., documents, positions]."""
    g, k = expit(log_odds)[..., None], np.arange(1, DOCUMENTS + 1)
    if name == "logit":
        return np.asarray(expit(log_odds[..., None] - 0.9 * np.log(k)))
    if name == "types":
        return np.asarray(0.5 * k**-1.4 * g + 0.5 * k**-0.3 * g**1.5)
    if name == "grid":
        return np.asarray(0.7 ** ((k - 1) // 3) * np.array([1.0, 0.6, 0.8])[(k - 1) % 3] * g)
    return np.asarray(k**-0.7 * g)


def _covered(name: str, seed: int) -> list[float]:
    """Return the coverage of values and of the curve, the mean log error of the curve, and whether the report warns."""
    rng = np.random.default_rng([seed, 3])
    log_odds = rng.normal(-1.5, 1.0, (QUERIES, DOCUMENTS))
    chance = chances(name, log_odds)  # [queries, documents, positions]
    query, position = np.arange(QUERIES)[:, None], np.arange(DOCUMENTS)
    orders, clicks, sums = [], [], np.zeros((2, DOCUMENTS))
    for _ in range(DAYS):
        order = np.argsort(-(log_odds + rng.normal(size=log_odds.shape)), axis=1)
        orders.append(order + DOCUMENTS * query)
        clicks.append(rng.binomial(SEARCHES, chance[query, order, position]))
        sums += chance[query, order, position].sum(axis=0), chance[query, order, 0].sum(axis=0)
    size = QUERIES * DOCUMENTS
    lists = Lists(
        np.zeros((size, 0), np.float32),
        np.arange(0, size + 1, DOCUMENTS),
        np.array([f"{number}" for number in range(QUERIES)]),
    )
    log = Clicks(
        lists,
        np.arange(0, DAYS * size + 1, DOCUMENTS),
        np.concatenate(orders).ravel(),
        np.tile(np.arange(1, DOCUMENTS + 1, dtype=np.int32), DAYS * QUERIES),
        np.concatenate(clicks).ravel(),
        np.full(DAYS * QUERIES, SEARCHES),
    )
    logged = Logged(log, np.repeat(np.arange(DAYS), QUERIES))
    model = LogModel.fit(logged, settings=LogModelSettings(resamples=100))
    truth, found = chance[:, :, 0].ravel(), model.relevance
    inside = (found.lower <= truth[found.rows]) & (truth[found.rows] <= found.upper)
    curve = (sums[0] / sums[1])[1:]
    near = (model.curve.lower[1:] <= curve) & (curve <= model.curve.upper[1:])
    bias = np.log(model.curve.values[1:] / curve).mean()
    flagged = not model.fit_quality.fits or not all(each.agrees for each in model.references.values())
    return [float(inside.mean()), float(near.mean()), float(bias), float(flagged)]
