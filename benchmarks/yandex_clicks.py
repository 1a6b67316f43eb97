"""Real clicks: held-out perplexity of every click model, and position curves that agree; the tables go to stderr.

Needs the data: `../shared/data/yandex-clicks`, or the folder that CLICKPRISM_YANDEX names. A quarter of the sessions is
held out at random, SPLITS times; all models have the same settings. The bars are on conditional perplexity, that of a
click given the clicks above, which is what the likelihood of a session is made of; the margin must also be twice its
standard error over the splits. `affine` is no click model but what relevance rests on: the parameters by harvest and
c_1 of each document, shrunk towards the mean.

The position curves of three ways to ask, all pairs of positions, the position-based and the user browsing model, and
the slopes of the affine map, must agree: their intervals, drawn by query, meet at every position. Sessions simulated
from each fitted model on the same lists show why the last differ when sessions are drawn: only a log of the browsing
model, in which what was clicked above decides what is seen, sets its curve apart from the others.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.base import Result
from clickprism.data.sessions import read_sessions
from clickprism.evaluation.clicks import ClickEvaluation, evaluate_clicks
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.click_models import CLICK_MODELS
from clickprism.observation.counts import count
from clickprism.observation.estimate import ESTIMATORS, estimate_curves
from clickprism.observation.estimate_parameters import estimate_parameters
from clickprism.observation.parameters import ClickParameters
from clickprism.observation.placed import PlacedCounts
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.shrinkage import Shrunk
from clickprism.settings import choose, resolve
from clickprism.types import Clicks, Float64

SPLITS = 10
HELD_OUT = 0.25
BELOW = (("ubm", "pbm"), ("dbn", "pbm"), ("pbm", "rank"), ("affine", "rank"), ("affine", "document"))
CURVES = ("allpairs", "pbm", "ubm")


def run() -> list[Result]:
    """UBM and DBN below PBM below CTR by rank."""
    folder = Path(os.environ.get("CLICKPRISM_YANDEX", Path(__file__).parents[2] / "shared" / "data" / "yandex-clicks"))
    if not folder.is_dir():
        print("yandex_clicks: skipped, no data (set CLICKPRISM_YANDEX)", file=sys.stderr)
        return []
    clicks = read_sessions(folder / "sessions.tsv.gz").clicks
    names = (*CLICK_MODELS, "affine")
    table = {name: [_held_out(clicks, name, seed) for seed in range(SPLITS)] for name in names}
    print(_text(table), file=sys.stderr)
    results = []
    for better, worse in BELOW:
        ours, peer = ([split.mean_conditional_perplexity for split in table[name]] for name in (better, worse))
        margin = np.subtract(peer, ours)
        sure = margin.mean() > 2 * margin.std(ddof=1) / SPLITS**0.5
        title = f"perplexity given clicks above, {better} < {worse}"
        unit = f"{margin.mean():.4f} +- {margin.std(ddof=1) / SPLITS**0.5:.4f}"
        results.append(
            Result(
                title, float(np.mean(ours)), float(np.mean(peer)), 1.0 if sure else 2.0, unit, higher_is_better=False
            )
        )
    return [*results, _agreement(clicks)]


def _held_out(clicks: Clicks, name: str, seed: int) -> ClickEvaluation:
    held_out = np.random.default_rng(seed).random(len(clicks)) < HELD_OUT
    known, asked = (clicks.take(part).merge(by="pattern") for part in (~held_out, held_out))
    if name == "affine":
        return evaluate_clicks(_Affine.fit(known), asked)
    return evaluate_clicks(resolve(CLICK_MODELS, name, path="model")().fit(known), asked)


@dataclass(frozen=True, eq=False)
class _Affine:
    parameters: ClickParameters
    first: Float64

    @classmethod
    def fit(cls, clicks: Clicks) -> _Affine:
        parameters = estimate_parameters(PlacedCounts.of_clicks(clicks), bootstrap=Bootstrap(resamples=0))
        counts = count(clicks)
        shown, clicked = np.zeros((2, clicks.lists.documents, counts.max_position), dtype=np.int64)
        shown[counts.rows, counts.positions - 1] = counts.impressions
        clicked[counts.rows, counts.positions - 1] = counts.clicks
        pairs, beta, alpha = PairCounts(shown, clicked), parameters.beta, parameters.alpha
        mean = np.clip((clicked - shown * beta).sum() / (shown * alpha).sum(), 0.01, 0.99)
        imputed = np.full(len(pairs), mean)
        estimator = Shrunk().learn(pairs, parameters, imputed)
        return cls(parameters, estimator.estimate(pairs, parameters, imputed).values)

    def click_probability(self, clicks: Clicks) -> Float64:
        rates = self.parameters.click_rates(self.first)[clicks.rows, clicks.positions - 1]
        return np.clip(rates, 1e-4, 1 - 1e-4)

    conditional_probability = click_probability


def _agreement(clicks: Clicks) -> Result:
    """How many intervals of the curves meet, of all two curves at all positions but the first."""
    estimators = [choose(ESTIMATORS, name, path="method") for name in CURVES]
    curves = estimate_curves(clicks, estimators, bootstrap=Bootstrap(unit="query")).curves
    affine = estimate_parameters(PlacedCounts.of_clicks(clicks), bootstrap=Bootstrap(unit="query"))
    spans = {name: (curve.values, curve.lower, curve.upper) for name, curve in curves.items()}
    spans["affine"] = (affine.alpha, affine.alpha_lower, affine.alpha_upper)
    print(_curves_text(spans), file=sys.stderr)
    for name in ("pbm", "ubm"):
        model = resolve(CLICK_MODELS, name, path="model")().fit(clicks.merge(by="pattern"))
        drawn = estimate_curves(model.sample(clicks, seed=0), estimators, bootstrap=Bootstrap(resamples=0)).curves
        ends = ", ".join(f"{each} {curve.values[-1]:.3f}" for each, curve in drawn.items())
        print(f"the last position in sessions simulated from {name}: {ends}", file=sys.stderr)
    meet = [
        (np.maximum(one[1], other[1]) <= np.minimum(one[2], other[2]))[1:]
        for one, other in combinations(spans.values(), 2)
    ]
    return Result(
        "position curves whose intervals meet", float(np.sum(meet)), float(np.size(meet)), 1.0, "of all pairs"
    )


def _curves_text(spans: dict[str, tuple[Float64, Float64, Float64]]) -> str:
    lines = [f"| position | {' | '.join(spans)} |", f"|{'---|' * (len(spans) + 1)}"]
    for place in range(1, len(next(iter(spans.values()))[0])):
        cells = [f"{value[place]:.3f} [{low[place]:.3f}, {high[place]:.3f}]" for value, low, high in spans.values()]
        lines.append(f"| {place + 1} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(table: dict[str, list[ClickEvaluation]]) -> str:
    head = f"| {'model':9} | log-likelihood | perplexity given clicks above | perplexity | click rate error |"
    lines = [head, "|---|---|---|---|---|"]
    for name, splits in table.items():
        figures = np.array(
            [
                (split.log_likelihood, split.mean_conditional_perplexity, split.mean_perplexity, split.rate_error)
                for split in splits
            ]
        )
        value, given, before, rate = figures.mean(axis=0)
        lines.append(f"| {name:9} | {value:.4f} | {given:.4f} | {before:.4f} | {rate:.4f} |")
    return "\n".join(lines)
