"""What a log says about relevance, prepared for rankers: corrected clicks, and how the engine ranks.

The log of a good engine has two traps. Position bias is the first: the fitted model of the log (`LogModel`) gives the
exposure E_d of each pair, its impressions corrected for position. Selection is the second: a document with poor
features is in the log only if the engine knew something in its favour that no feature shows. A ranker that learns from
shown documents alone concludes that poor features are good, and puts documents first that the engine never shows.

Both are repaired by keeping the engine's score s_d in the model of the clicks (a control function):

    log E[clicks of d]  =  log E_d + w(x_d) + rho s_d + effect of the query
    s_d                 =  e(x_d) + what the engine knows beyond the features
    score of a ranker   =  w(x) + (rho / theta) e(x)

s_d is minus the log of the position at which d was first shown. w is what clicks say about documents that the engine
ranks alike, e imitates the engine, and rho is how much relevance the engine's order carries: 0 if the engine ranks at
random. Given x and s, being shown says nothing more about relevance, so w and rho are not biased by selection. Only e
is: positions of shown documents differ less than those of all candidates. With normally distributed scores a
regression on the shown documents finds theta e, with

    theta = v + (1 - v) R^2            (Goldberger 1981)

where R^2 is its share of explained variance, and v the variance of s among shown documents relative to that among all
candidates. v depends little on the share of candidates that is shown, which is assumed if the log does not name the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.debias.anchor import LEAST_UNSHOWN
from clickprism.log_model.counts import first_positions, placed_by_engine
from clickprism.log_model.model import LogModel
from clickprism.types import Bool, Float64, Int64, Lists

FOLDS: Final = 5
FEW_QUERIES: Final = 20  # below it documents are held out, not queries


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """The shown pairs of a log with their clicks, exposure and the engine's score; pairs of a query are consecutive.

    Attributes:
        lists: All documents that the log names, with normalised features.
        rows: Row of each shown pair in `lists`, increasing, [pairs].
        query: Query of each pair, from 0, not decreasing, [pairs].
        clicks: Clicks of each pair; those of pairs with much evidence are scaled down with their exposure, [pairs].
        exposure: Impressions of each pair in units of the first position, scaled likewise, [pairs].
        engine: Score of the engine, minus the log of the first-shown position, centred within queries, [pairs].
        impressions: Impressions of each pair, not scaled, [pairs].
        raw_clicks: Clicks of each pair, not scaled, [pairs].
        unshown: Rows of candidates that the log names and that were never shown, [documents].
        fold: Part in which each pair is held out, [pairs].
    """

    lists: Lists
    rows: Int64
    query: Int64
    clicks: Float64
    exposure: Float64
    engine: Float64
    impressions: Float64
    raw_clicks: Float64
    unshown: Int64
    fold: Int64

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, logged: Logged, model: LogModel, lists: Lists, *, seed: int = 0) -> Evidence:
        """Return the evidence of a log.

        Args:
            logged: The log.
            model: Its fitted model.
            lists: The documents of the log with normalised features.
            seed: Random seed of the folds.
        """
        found, rng = model.relevance, np.random.default_rng([seed, 51])
        query = np.unique(lists.list_of[found.rows], return_inverse=True)[1].astype(np.int64)
        queries = int(query.max(initial=-1)) + 1
        shown = np.zeros(lists.documents, dtype=np.bool_)
        shown[found.rows] = True
        searched = np.zeros(len(lists), dtype=np.bool_)
        searched[lists.list_of[found.rows]] = True
        few = queries < FEW_QUERIES
        fold = rng.integers(0, FOLDS, len(found)) if few else rng.permutation(np.arange(queries) % FOLDS)[query]
        clicks = found.clicks
        if model.form.trust:  # clicks that trust adds are no evidence of relevance
            strength = found.weight * (1 - found.share) / np.maximum(found.share, 1e-9)
            clicks = np.maximum(found.value * (found.weight + strength) - strength * found.prior, 0.0)
        click_value = np.ones(len(found)) if logged.values is None else logged.values[found.rows]
        # a pair with endless clicks says as much as its prior strength: features do not explain all of relevance
        scale = 1 - found.share
        return cls(
            lists=lists,
            rows=found.rows,
            query=query,
            clicks=clicks * scale * click_value,
            exposure=np.maximum(found.weight * scale, 1e-9),
            engine=_engine_scores(logged, found.rows, query),
            impressions=found.impressions,
            raw_clicks=found.clicks * click_value,
            unshown=np.flatnonzero(~shown & searched[lists.list_of]).astype(np.int64),
            fold=fold.astype(np.int64),
        )

    @property
    def queries(self) -> int:
        """Return the number of queries."""
        return int(self.query.max(initial=-1)) + 1

    @property
    def holds_out_documents(self) -> bool:
        """Return whether documents are held out instead of queries, of which there are too few."""
        return self.queries < FEW_QUERIES

    @cached_property
    def features(self) -> Float64:
        """Return the features of the pairs, [pairs, columns]."""
        return self.lists.features[self.rows].astype(np.float64)

    @property
    def names_candidates(self) -> bool:
        """Return whether the log names candidates that were not shown."""
        return len(self.unshown) > LEAST_UNSHOWN * len(self.rows)

    @property
    def shown_share(self) -> float | None:
        """Return the share of the candidates that was shown, or None if the log does not name the others."""
        return len(self.rows) / (len(self.rows) + len(self.unshown)) if self.names_candidates else None

    def by_query(self, values: Float64) -> Float64:
        """Return the sums of values of pairs over each query, [queries]."""
        return np.bincount(self.query, weights=values, minlength=self.queries).astype(np.float64)

    def log_likelihood(self, scores: Float64, used: Bool | None = None) -> Float64:
        """Return the log-likelihood of the clicks of each query if scores are log click rates, [queries].

        sum of c_d log(E_d exp(f_d) / sum of E exp(f) over the query): given how often a query was clicked in all, its
        clicks fall on its documents in these proportions.

        Args:
            scores: f of each pair, [pairs].
            used: Pairs that count; by default all.
        """
        kept = np.ones(len(self), dtype=np.bool_) if used is None else used
        logits = np.where(kept, scores + np.log(self.exposure), -np.inf)
        top = np.full(self.queries, -np.inf)
        np.maximum.at(top, self.query, logits)
        top = np.where(np.isfinite(top), top, 0.0)
        total = np.log(np.maximum(self.by_query(np.exp(logits - top[self.query])), 1e-300)) + top
        clicks = np.where(kept, self.clicks, 0.0)
        return self.by_query(np.where(clicks > 0, clicks * (np.where(kept, logits, 0.0) - total[self.query]), 0.0))

    def held_out_likelihood(self, scores: Float64) -> Float64:
        """Return the log-likelihood of each query, each pair compared with those that are held out together with it."""
        if not self.holds_out_documents:
            return self.log_likelihood(scores)
        parts = [self.log_likelihood(scores, self.fold == number) for number in range(FOLDS)]
        return np.asarray(np.sum(parts, axis=0))


def _engine_scores(logged: Logged, rows: Int64, query: Int64) -> Float64:
    """Return the engine's score of pairs, centred within queries; 0 for pairs that only chance has placed, [pairs]."""
    scores, placed = -first_positions(logged)[rows], placed_by_engine(logged, rows)
    if placed is None:
        return centred(scores, query)
    found = np.zeros(len(rows))
    found[placed] = centred(scores[placed], np.unique(query[placed], return_inverse=True)[1].astype(np.int64))
    return found


def centred(values: Float64, query: Int64) -> Float64:
    """Return values minus their mean over the query; vectors or matrices, [pairs, ...]."""
    size = int(query.max(initial=-1)) + 1
    count = np.maximum(np.bincount(query, minlength=size), 1)
    if values.ndim == 1:
        return np.asarray(values - (np.bincount(query, weights=values, minlength=size) / count)[query])
    total = np.zeros((size, values.shape[1]))
    np.add.at(total, query, values)
    return np.asarray(values - (total / count[:, None])[query])
