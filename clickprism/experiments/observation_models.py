"""What a trained method says about observation: whether it depends on documents, and on relevance (Delta-CI)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from clickprism.evaluation.independence import ConditionalLearner, Independence, learner_independence
from clickprism.types import Clicks, Float64

if TYPE_CHECKING:
    from clickprism.debias.lbd import Choice


def independence_of(learner: object, clicks: Clicks) -> Independence | None:
    """Return Delta-CI of a trained learner over its log; None if it does not model relevance given observation."""
    return learner_independence(learner, clicks.merge()) if isinstance(learner, ConditionalLearner) else None


def independence_text(found: Independence) -> str:
    """Return Delta-CI in a line.

    >>> independence_text(Independence(0.0123, 0.0004, 0.2, 0.00031, np.empty(0), 50))
    'Delta-CI 0.0123 ± 0.0004, mutual information 0.00031 nats'
    """
    error = "" if np.isnan(found.error) else f" ± {found.error:.4f}"
    return f"Delta-CI {found.mean:.4f}{error}, mutual information {found.information:.2g} nats"


def mean_independence(several: Sequence[Independence]) -> Independence:
    """Return the mean over runs with its standard error over runs; a single run keeps that over its lists."""
    if len(several) == 1:
        return several[0]
    means = np.array([one.mean for one in several])
    return Independence(
        mean=float(means.mean()),
        error=float(means.std(ddof=1) / np.sqrt(len(means))),
        largest=max(one.largest for one in several),
        information=float(np.mean([one.information for one in several])),
        by_position=mean_curve([one.by_position for one in several]),
        documents=min(one.documents for one in several),
    )


def mean_curve(curves: Sequence[Float64]) -> Float64:
    """Return the mean of curves by position, up to the end of the shortest."""
    mean: Float64 = np.mean([curve[: min(map(len, curves))] for curve in curves], axis=0)
    return mean


@final
@dataclass(frozen=True)
class DocumentDependence:
    """How observation depends on documents in a model that `lbd` chose.

    Attributes:
        choices: The forms of dependence that it tried, the chosen one first.
        doubt: Why the choice may be wrong and what to do; empty if nothing suggests it.
    """

    choices: tuple[Choice, ...]
    doubt: str = ""


def dependence_of(learner: object) -> DocumentDependence | None:
    """Return the observation model that `lbd` chose; None if the learner is of another method, or is None."""
    from clickprism.debias.lbd import DecoupledLearner

    return DocumentDependence(learner.choices, learner.doubt) if isinstance(learner, DecoupledLearner) else None


def choice_text(choices: Sequence[Choice]) -> str:
    """Return what was chosen and why, in a line.

    >>> from clickprism.debias.lbd import Choice
    >>> choice_text([Choice(0, 0.01, -1.4081, 9), Choice(0, math.inf, -1.4161, 7)])
    'observation depends on documents: linear, penalty 0.01 (held-out log-likelihood -1.4081; positions only -1.4161)'
    >>> choice_text([Choice(0, math.inf, -1.5, 7), Choice(16, 0.0, -1.6, 9)])
    'observation depends on positions only (held-out log-likelihood -1.5000; best with documents -1.6000)'
    >>> choice_text([Choice(0, math.inf, math.nan, 60)])
    'observation depends on positions only (too few ranked lists with clicks, or positions, to choose by)'
    >>> choice_text([Choice(0, math.inf, math.nan, 0)])
    'observation is the position curve of the log model, which finds no dependence on documents'
    """
    chosen, curve = choices[0], choices[0].penalty == math.inf
    if chosen.epochs == 0:
        return "observation is the position curve of the log model, which finds no dependence on documents"
    form = f"network of {chosen.hidden} units" if chosen.hidden else "linear"
    what = "depends on positions only" if curve else f"depends on documents: {form}, penalty {chosen.penalty:g}"
    if math.isnan(chosen.likelihood):
        return f"observation {what} (too few ranked lists with clicks, or positions, to choose by)"
    others = [choice.likelihood for choice in choices[1:] if (choice.penalty < math.inf) == curve]
    other = f"; {'best with documents' if curve else 'positions only'} {max(others):.4f}" if others else ""
    return f"observation {what} (held-out log-likelihood {chosen.likelihood:.4f}{other})"
