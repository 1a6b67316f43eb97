"""What a log says before a method learns: the position curve of its model, and what the engine's order carries.

A method that learns relevance and observation together over-corrects on the log of a good engine. Two things are
missing there, and both can be had from a log in which documents were shown at several positions:

- the curve: the model of the log (`LogModel`) estimates it, from the same documents at other positions;
- selection: a document with poor features is shown only if the engine knew something in its favour. The residual of
  the engine's order on the features, v = s - e(x) / theta, is that knowledge. A model of clicks that contains rho v
  (a control function) has a relevance f(x) that selection does not bias, and that carries what the engine knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import numpy as np
import torch
from torch import nn

from clickprism.data.logged import Logged
from clickprism.debias.query_regression import (
    LEAST_UNSHOWN,
    SHOWN_SHARE,
    attenuation,
    centred,
    linear_clicks,
    linear_engine,
)
from clickprism.types import Clicks, Float64

if TYPE_CHECKING:
    from clickprism.log_model.counts import LogCounts

MOST_PAIRS: Final = 200_000  # maximum number of pairs in a regression
RIDGE: Final = 10.0
SURE: Final = 3.0  # standard errors of the gain from which coupling is present
FLAT: Final = 0.05  # share of a flat curve in that of the anchor


@final
class Anchor(nn.Module):
    """The curve of a log, and how the order of its engine depends on features and relevance.

    Attributes:
        curve: Observation relative to the first position, [positions]: .05 + .95 times that of the log model. A curve
            that is too steep costs a ranker more than one that is too flat.
        engine: e / theta: weights of the features in the engine's score, minus the log of the position, [features].
        centre: Mean of the residual v over the log.
        rho: How much the log of the click rate grows with the engine's score at the same features.
    """

    curve: torch.Tensor
    engine: torch.Tensor
    centre: torch.Tensor
    rho: torch.Tensor

    def __init__(self, **values: torch.Tensor) -> None:
        super().__init__()
        for name in ("curve", "engine", "centre", "rho"):
            self.register_buffer(name, values[name])

    @classmethod
    def of(cls, clicks: Clicks) -> Anchor | None:
        """Return the anchor of a log.

        It is None if clicks carry weights, if some position is not linked to the first by enough clicks on the same
        documents, or if the log model finds coupling: if features in the observation improve the likelihood of held-out
        clicks by three standard errors.
        """
        from clickprism.log_model.model import DEEPEST

        if clicks.weights is not None or not 1 < clicks.max_position <= DEEPEST:
            return None
        counts, known = _counts(clicks)
        logs = _curve(replace(counts, first=known), clicks.max_position)
        if logs is None:
            return None
        curve = FLAT + (1 - FLAT) * np.exp(logs)
        whole = counts.query[min(MOST_PAIRS, len(counts)) - 1]
        counts, _ = counts.take(np.arange(counts.queries) <= whole)
        candidates = int(clicks.lists.lengths[np.unique(clicks.lists.list_of[counts.rows])].sum())
        engine = _engine_weights(counts, candidates)
        rows, pair = np.unique(clicks.rows, return_inverse=True)
        residual = -np.log(clicks.positions) - (clicks.lists.features[rows] @ engine)[pair]
        centre = np.average(residual, weights=clicks.list_impressions.astype(np.float64))
        values = {"curve": curve, "engine": engine, "centre": centre, "rho": _engine_relevance(counts, curve)}
        return cls(**{name: torch.as_tensor(value).float() for name, value in values.items()})

    def beyond(self, documents: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return rho v of documents where they were shown, [documents]."""
        return self.rho * (-positions.to(documents).log() - documents @ self.engine - self.centre)


def _counts(clicks: Clicks) -> tuple[LogCounts, Float64]:
    """Return the counts of a log, and the mean log position of each pair without the engine's reaction to clicks.

    The lists of a log are in the order of time, which merging keeps. If the engine does not react, all positions are
    evidence of what it knows, and are those of the counts too. Otherwise the counts have those at which pairs were
    first shown.
    """
    from clickprism.log_model.checks import feedback
    from clickprism.log_model.counts import count, positions_without_reaction
    from clickprism.log_model.fit import fit_form
    from clickprism.log_model.terms import Covariates, Form

    logged = Logged(clicks, days=np.arange(len(clicks)))
    counts = count(logged)
    calm = replace(counts, first=counts.average)
    curve = np.exp(fit_form(calm, Form(), Covariates()).log_curve)
    reacts = feedback(logged, curve).verdict
    if reacts == "absent":
        return calm, calm.first
    own = positions_without_reaction(logged, curve) if reacts == "present" else None
    return counts, counts.first if own is None else own[counts.rows]


def _curve(counts: LogCounts, positions: int) -> Float64 | None:
    """Return the log observation relative to the first position, [positions]; None as for `Anchor.of`.

    It is the curve of the log model with a prior by features and first-shown position. Joint learning, which compares
    documents with similar features, takes what the engine knows and the features do not for observation: with good
    engines its curve is too steep.
    """
    from clickprism.log_model.fit import fit_form, gain, multiplied
    from clickprism.log_model.references import LEAST_CLICKS, Links
    from clickprism.log_model.terms import Covariates, Form, Scaler, with_query_means

    links = Links.of(counts)
    tree = links.tree()
    linked = links.groups(tree[links.strength[tree] >= LEAST_CLICKS]) == 0
    if counts.positions < positions or not linked.all():
        return None
    own = Scaler.of(counts.features)(counts.features)
    fit = fit_form(counts, Form(features="linear"), Covariates(own=own, features=with_query_means(own, counts.query)))
    coupled = fit_form(counts, fit.form.with_part("coupling"), multiplied(fit), start=fit)
    better, error = gain(coupled, fit)
    if better > max(SURE * error, 0.0):
        return None
    curve = np.asarray(multiplied(fit).curve)
    return np.asarray(curve - curve[0])


def _engine_weights(counts: LogCounts, candidates: int) -> Float64:
    """Return the weights of the features in the engine's score, over theta, [features].

    Ridge regression of minus the first log position of shown pairs, within queries. The positions of shown documents
    differ less than those of all candidates would: with normal scores the regression finds theta times the weights,
    theta = v + (1 - v) R^2 (Goldberger 1981), v the variance among the shown relative to that among all.
    """
    features, score = centred(counts.features.astype(np.float64), counts.query), centred(-counts.first, counts.query)
    spread = _spread(features)
    weights = linear_engine(features / spread, score, counts.query, ridge=RIDGE) / spread
    explained = 1 - float(np.square(score - features @ weights).sum() / max(np.square(score).sum(), 1e-300))
    shown = len(counts)
    share = shown / candidates if candidates > (1 + LEAST_UNSHOWN) * shown else SHOWN_SHARE
    return np.asarray(weights / attenuation(explained, share))


def _engine_relevance(counts: LogCounts, curve: Float64) -> float:
    """Return rho, by Poisson regression of clicks on features and the engine's score within queries; at least 0."""
    exposure = counts.by_pair(counts.impressions * curve[counts.position])
    columns = centred(np.column_stack([-counts.first, counts.features]), counts.query)
    spread = _spread(columns)
    ridge = np.append(1e-6, np.full(columns.shape[1] - 1, RIDGE))
    clicked, offset = counts.by_pair(counts.clicks), np.log(np.maximum(exposure, 1e-9))
    weights = linear_clicks(columns / spread, clicked, offset, counts.query, ridge=ridge)
    return max(0.0, float(weights[0] / spread[0]))


def _spread(columns: Float64) -> Float64:
    """Return the standard deviation of each column; 1 for those that do not vary."""
    spread = columns.std(axis=0)
    return np.asarray(np.where(spread > 0, spread, 1.0))
