"""Real clicks: held-out perplexity of every click model, and position curves that agree; the tables go to stderr.

Needs the data: `../shared/data/yandex-clicks`, or the folder that CLICKPRISM_YANDEX names. A quarter of the sessions is
held out at random, SPLITS times; all models have the same settings. The bars are on conditional perplexity, that of a
click given the clicks above, which is what the likelihood of a session is made of; the margin must also be twice its
standard error over the splits. `log model` is the fitted model of the log, which does not use the clicks above.

The position curve of the log model must agree with that of documents shown at several positions (AllPairs).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.base import Result
from clickprism.click_models import CLICK_MODELS
from clickprism.data.sessions import read_sessions
from clickprism.evaluation.clicks import ClickEvaluation, evaluate_clicks
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.references import DISAGREE
from clickprism.settings import resolve
from clickprism.types import Clicks, Float64

SPLITS = 10
HELD_OUT = 0.25
BELOW = (("ubm", "pbm"), ("dbn", "pbm"), ("pbm", "rank"), ("log model", "rank"), ("log model", "document"))


def run() -> list[Result]:
    """UBM and DBN below PBM below CTR by rank."""
    folder = Path(os.environ.get("CLICKPRISM_YANDEX", Path(__file__).parents[2] / "shared" / "data" / "yandex-clicks"))
    if not folder.is_dir():
        print("yandex_clicks: skipped, no data (set CLICKPRISM_YANDEX)", file=sys.stderr)
        return []
    clicks = read_sessions(folder / "sessions.tsv.gz").clicks
    names = (*CLICK_MODELS, "log model")
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
    if name == "log model":
        return evaluate_clicks(_Model(LogModel.fit(known, settings=LogModelSettings(resamples=0))), asked)
    return evaluate_clicks(resolve(CLICK_MODELS, name, path="model")().fit(known), asked)


@dataclass(frozen=True, eq=False)
class _Model:
    model: LogModel

    def click_probability(self, clicks: Clicks) -> Float64:
        return np.clip(self.model.rates(clicks.rows, clicks.positions.astype(np.int64)), 1e-4, 1 - 1e-4)

    conditional_probability = click_probability


def _agreement(clicks: Clicks) -> Result:
    """Return whether the curve of the model agrees with that of documents shown at several positions."""
    model = LogModel.fit(clicks.merge(by="pattern"))
    print("\n\n".join(table.text() for table in model.tables()), file=sys.stderr)
    found = model.references["allpairs"]
    title = "position curves: p-value of a difference between the model and allpairs"
    return Result(title, found.p_value, DISAGREE, 1.0, f"largest at position {found.largest}")


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
