"""A chain of the feedback loop: what was measured round after round, kept in a file as soon as it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism._util.files import write_file
from clickprism._util.tables import to_json
from clickprism.evaluation.measures import Evaluation, Measure
from clickprism.evaluation.report import versions
from clickprism.experiments.settings import FeedbackSettings, resolved
from clickprism.types import Float64

FOLDER: Final = "chains"
WARM: Final = "click"  # the method by which the first rounds learn, with its defaults


@dataclass(frozen=True, eq=False)
class Chain:
    """What became of one method with one seed, round after round.

    Attributes:
        label: of the method.
        seed: of the chain.
        rounds: what was measured on the test part before anything was learned, after the first round, and so on: the
            measures of the settings and those of `Concentration`, by name.
        evaluation: of the last round, query by query; ids begin with the seed where every seed has data of its own.
        ideal: the concentration of a ranking by the true grades, which needs no past.
        seconds: it took, without the rounds that all methods share.
    """

    label: str
    seed: int
    rounds: tuple[Mapping[str, float], ...]
    evaluation: Evaluation
    ideal: Mapping[str, float]
    seconds: float

    def curve(self, measure: str) -> Float64:
        """A measure by round, round 0 being the initial ranking, [rounds + 1]."""
        return np.array([one[measure] for one in self.rounds])


def warm_settings(settings: FeedbackSettings) -> FeedbackSettings:
    """The settings of the first rounds: raw clicks, whatever the settings call by that name."""
    return replace(settings, methods={WARM: {}})


def mark_of(settings: FeedbackSettings, label: str, *, seed: int) -> str:
    """A digest of all that decides a chain: the settings, of the first rounds too, and the versions of what runs it."""
    values = resolved(replace(settings, seed=seed, runs=1), methods=[label])
    values |= {"warm": resolved(warm_settings(settings))["methods"], "versions": versions()}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def path_of(out: Path, label: str, *, seed: int) -> Path:
    """The file of a chain in the folder of a loop."""
    return out / FOLDER / f"{label}-{seed}.json"


def write_chain(path: Path, chain: Chain, *, mark: str) -> None:
    """Keep a chain with what decided it."""
    values = {
        "label": chain.label,
        "seed": chain.seed,
        "rounds": [dict(one) for one in chain.rounds],
        "ideal": dict(chain.ideal),
        "seconds": chain.seconds,
        "measures": [str(measure) for measure in chain.evaluation.measures],
        "values": chain.evaluation.values.tolist(),
        "query_ids": chain.evaluation.query_ids.tolist(),
        "empty": chain.evaluation.empty,
        "mark": mark,
    }
    write_file(path, to_json(values) + "\n")


def read_chain(path: Path, *, mark: str) -> Chain | None:
    """The chain that a file holds; None if there is none, it is broken, or something else decided it."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept["mark"] != mark:
            return None
        values = np.array([[_number(value) for value in row] for row in kept["values"]], dtype=np.float64)
        measures = tuple(Measure.parse(name) for name in kept["measures"])
        rounds = tuple({name: _number(value) for name, value in one.items()} for one in kept["rounds"])
        evaluation = Evaluation(measures, values, np.array(kept["query_ids"]), kept["empty"])
        return Chain(kept["label"], kept["seed"], rounds, evaluation, kept["ideal"], kept["seconds"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
