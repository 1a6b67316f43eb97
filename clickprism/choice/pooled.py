"""How often positions are seen, by one likelihood for all documents, those that moved and those that look alike.

    clicks on d at place j ~ Poisson(n_dj o_j(x_d) q_d),    q_d ~ Gamma(mean exp(h_d), shape k),    h_d = v . z_d + c
    log o_j(x) = s(x) b_j,    s(x) = max(1 + w . x - a p, 0)

q_d is the click that document d would have in the first place. Summed over it, the likelihood has two factors. How the
clicks on one document fall to its places tells of the observation alone, whatever q_d is; how many they are compares
documents of like features, seen more and seen less. k, which is estimated, is how much the features tell of q_d, and so
how much the second counts beside the first. Nothing is lost of a log in which documents moved, and one in which none
did still tells the curve, if its ranking knew of relevance what the features tell. A ranking may heed past clicks:
given these it is no news of q_d, so the likelihood stays what it is.

A place is a position; where users heed what they clicked above, a position and that of the last click above it. z has
the features of the document and their mean over its query, which says how the others of its list are. p is how popular
the document was on that day, by clicks of the days before, which may draw the eye. It changes, so that where it matters
b of the first position is told, too; else that is 0, as all observation is relative to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from clickprism.choice.places import LEVELS, Places, places_of
from clickprism.errors import DataError
from clickprism.types import Bool, Clicks, Float64, Int64, Lists

FOLDS: Final = 5
LEAST: Final = 4 * FOLDS  # queries with clicks
DOCUMENTS: Final = 50_000  # at most; queries with the most clicks are used
ENOUGH: Final = 200.0  # clicks on a document that say as much as endless ones: no model is that right
SURE: Final = 3.0  # standard errors that places must gain by the last click above
SHAPE: Final = 5.0  # k, where nothing is known of it
LOWEST, HIGHEST = -9.0, 1.0  # log observation
STEPS: Final = 200
BENDS: Final = 0.05  # standard deviation of w, of standardised features
DRAWS: Final = 0.5  # of a
DRAWN: Final = 0.2  # the least of a that is believed: less is as likely a sign of days that differ
SHAPES: Final = 3.0  # of log k; that of all else is 1


class _Form(NamedTuple):
    """What may matter."""

    curve: bool = True
    popular: bool = False
    browsing: bool = False
    bend: bool = False


@final
@dataclass(frozen=True, eq=False)
class Pooled:
    """The observation of a log.

    Attributes:
        below: b of each place of `places_of`, [places].
        bends: 1 + w . x of each document, [documents].
        popular: a; 0 where past clicks do not draw the eye.
        browsing: whether places of one position differ by the last click above.
        shape: k; the more, the better features tell what a document is worth.
        gains: of log-likelihood against no bias, by query, each by a fit that did not see it, [lists].
        more: the same by the bend against none; empty without a bend.
    """

    below: Float64
    bends: Float64
    popular: float
    browsing: bool
    shape: float
    gains: Float64
    more: Float64

    def steepness(self, places: Places) -> Float64:
        """S of each line of these places, [lines]; without a past no document was popular."""
        drawn = 0.0 if places.popularity is None else self.popular * places.popularity
        return np.asarray(np.maximum(self.bends[places.rows] - drawn, 0.0), dtype=np.float64)


def fit_pooled(clicks: Clicks, *, bend: bool = False, places: Places | None = None, seed: int = 0) -> Pooled:
    """The observation under which the clicks of a log are the most likely; a log with few clicks is refused.

    Args:
        clicks: the log; features are about as wide as each other.
        bend: whether features bend the curve.
        places: those of the log, if they are known.
        seed: decides which queries are held out together.
    """
    lists, places = clicks.lists, places or places_of(clicks)
    owner = lists.list_of[places.rows]
    clicked: Float64 = np.bincount(owner, weights=places.clicks, minlength=len(lists)).astype(np.float64)
    if np.count_nonzero(clicked) < LEAST:
        raise DataError("too few queries were clicked to compare their documents", remedy="Log more searches")
    queries = _queries(clicked, lists)
    fold = np.random.default_rng([seed, 41]).integers(0, FOLDS, len(lists))

    def crossed(form: _Form) -> Float64:
        return _Lines.of(places, lists, queries, form).crossed(form, fold)

    def fitted(form: _Form) -> _Fitted:
        lines = _Lines.of(places, lists, queries, form)
        return lines.unpacked(lines.fit(form), form)

    form = _Form()
    none, plain = crossed(_Form(curve=False)), crossed(form)
    left = [*["browsing"] * places.knows_clicks, *["popular"] * (places.popularity is not None)]
    while left:  # what tells the most first: each may pass for the other
        forms = [form._replace(**{name: True}) for name in left]
        values = [crossed(each) for each in forms]
        best = int(np.argmax([each.sum() for each in values]))
        name = left.pop(best)
        if not _surely(values[best] - plain):
            break
        if name == "browsing" or fitted(forms[best]).draws > DRAWN:
            plain, form = values[best], forms[best]
    gains, over = plain - none, np.zeros(0)
    if bend:
        form = form._replace(bend=True)
        if form.popular and fitted(form).draws < DRAWN:  # what features do had passed for it
            form = form._replace(popular=False)
            plain = crossed(form._replace(bend=False))
        bent = crossed(form)
        gains, over = bent - none, bent - plain
    found, standard = fitted(form), _Lines.of(places, lists, queries, form).standard
    bends = 1 + (standard(lists) @ found.bends if bend else np.zeros(lists.documents))
    below = found.below if form.browsing else found.below[places.position_of]
    return Pooled(below, bends, found.draws, form.browsing, float(np.exp(found.shape)), gains, over)


def _queries(clicked: Float64, lists: Lists) -> Bool:
    """Those that are used, [lists]: the ones with the most clicks, if all are too many."""
    order = np.argsort(-clicked, kind="stable")
    kept = np.zeros(len(lists), dtype=np.bool_)
    kept[order[np.cumsum(lists.lengths[order]) <= max(DOCUMENTS, int(lists.lengths.max(initial=0)))]] = True
    return kept


def _surely(values: Float64) -> bool:
    return bool(values.sum() > SURE * values.std() * np.sqrt(len(values)))


class _Fitted(NamedTuple):
    """Parameters by name: b of places, log k, a, w, v and c."""

    below: Float64
    shape: float
    draws: float
    bends: Float64
    worth: Float64
    level: float


@dataclass(frozen=True, eq=False)
class _Lines:
    """The documents shown, one line a place, those of a document together.

    Attributes:
        position_of: the position of each place, from 0, [places].
        queries: of each document, [documents].
        of_line: the document of each line, from 0, [lines].
        places: of each line, [lines].
        clicks: those of documents with many scaled down, [lines].
        shown: impressions, scaled alike, [lines].
        popularity: p, [lines].
        features: standardised, [documents, features].
        known: z, standardised, [documents, columns].
        mean: of the features before, [features].
        spread: their standard deviation, infinite for a constant, [features].
    """

    position_of: Int64
    queries: Int64
    of_line: Int64
    places: Int64
    clicks: Float64
    shown: Float64
    popularity: Float64
    features: Float64
    known: Float64
    mean: Float64
    spread: Float64

    @classmethod
    def of(cls, found: Places, lists: Lists, queries: Bool, form: _Form) -> _Lines:
        """Those of some queries, as far apart as what may matter asks for."""
        position_of = found.position_of if form.browsing else np.arange(int(found.position_of.max(initial=0)) + 1)
        kept, width = queries[lists.list_of[found.rows]], len(position_of)
        places = (found.places if form.browsing else found.position_of[found.places])[kept]
        level = np.zeros(len(kept), np.int64)
        if form.popular and found.popularity is not None:
            level = np.rint(found.popularity * LEVELS).astype(np.int64)
        keys = (found.rows[kept] * width + places) * (LEVELS + 1) + level[kept]
        keys, line = np.unique(keys, return_inverse=True)
        clicks, shown = (np.bincount(line, weights=each[kept]) for each in (found.clicks, found.impressions))
        keys, popularity = keys // (LEVELS + 1), keys % (LEVELS + 1) / LEVELS
        documents, of_line = np.unique(keys // width, return_inverse=True)
        scale = (1 / (1 + np.bincount(of_line, weights=clicks) / ENOUGH))[of_line]
        x = lists.features.astype(np.float64)
        around = np.zeros((len(lists), x.shape[1]))
        np.add.at(around, lists.list_of, x)
        around = (around / np.maximum(lists.lengths, 1)[:, None])[lists.list_of[documents]]
        x = x[documents]
        features, mean, spread = _standardised(x)
        known = _standardised(np.concatenate([x, around], axis=1))[0]
        owner = lists.list_of[documents]
        lines = of_line, keys % width, clicks * scale, shown * scale, popularity
        return cls(position_of, owner, *lines, features, known, mean, spread)

    def standard(self, lists: Lists) -> Float64:
        """Features of all documents, standardised as those here."""
        return np.asarray((lists.features - self.mean) / self.spread, dtype=np.float64)

    def take(self, documents: Bool) -> _Lines:
        """Some of the documents."""
        lines, number = documents[self.of_line], np.cumsum(documents) - 1
        return replace(
            self,
            queries=self.queries[documents],
            of_line=number[self.of_line[lines]],
            places=self.places[lines],
            clicks=self.clicks[lines],
            shown=self.shown[lines],
            popularity=self.popularity[lines],
            features=self.features[documents],
            known=self.known[documents],
        )

    def crossed(self, form: _Form, fold: Int64) -> Float64:
        """The log-likelihood of each query by a fit to the other folds, [lists]."""
        values = np.zeros(len(fold))
        for number in range(FOLDS):
            held = fold[self.queries] == number
            if held.any() and not held.all():
                check = self.take(held)
                found = check.value(self.take(~held).fit(form), form)[0]
                values += np.bincount(check.queries, weights=found, minlength=len(fold))
        return values

    def unpacked(self, vector: Float64, form: _Form) -> _Fitted:
        """The parameters of a form by name."""
        first, steps, extra, shape, draws, bends, worth, level = np.split(vector, np.cumsum(self._sizes(form))[:-1])
        below = np.concatenate([[0.0], np.cumsum(steps * form.curve)])[self.position_of] + first.sum()
        if form.browsing:
            below = below + np.where(self.position_of == 0, 0.0, extra)
        return _Fitted(below, float(shape[0]), float(draws.sum()), bends, worth, float(level[0]))

    def fit(self, form: _Form) -> Float64:
        """The most probable parameters."""
        documents, level = max(len(self.queries), 1), max(float(self.clicks.sum() / self.shown.sum()), 1e-3)
        begin = (-0.15, -0.15, 0.0, np.log(SHAPE), 0.0, 0.0, 0.0, np.log(1.5 * level))
        start = np.repeat(np.asarray(begin, dtype=np.float64), self._sizes(form))

        def loss(vector: Float64) -> tuple[float, Float64]:
            values, gradient = self.value(vector, form)
            penalty, push = self._prior(vector, form)
            return (penalty - float(values.sum())) / documents, (push - gradient) / documents

        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "maxcor": 20}).x
        return np.asarray(found, dtype=np.float64)

    def value(self, vector: Float64, form: _Form) -> tuple[Float64, Float64]:
        """The log-likelihood of each document but for what no parameter is in, and the gradient of its sum."""
        fitted, documents, count = self.unpacked(vector, form), len(self.queries), len(self.position_of)
        height, shape = self.known @ fitted.worth + fitted.level, np.exp(fitted.shape)
        raw = 1 - fitted.draws * self.popularity
        if form.bend:
            raw = raw + (self.features @ fitted.bends)[self.of_line]
        steep = np.maximum(raw, 0.0)
        below = fitted.below[self.places]
        logs = steep * below
        inside = (logs > LOWEST) & (logs < HIGHEST)
        logs = np.clip(logs, LOWEST, HIGHEST)
        seen = self.shown * np.exp(logs)
        clicked, hoped, told = (
            np.bincount(self.of_line, weights=each, minlength=documents)
            for each in (self.clicks, seen, self.clicks * logs)
        )
        expected = hoped * np.exp(height)
        ratio = (clicked + shape) / (shape + expected)
        values = told + clicked * height - (clicked + shape) * np.log(shape + expected) + shape * np.log(shape)
        values += gammaln(clicked + shape) - gammaln(shape)
        pull = np.where(inside, self.clicks - (ratio * np.exp(height))[self.of_line] * seen, 0.0)
        by_place = np.bincount(self.places, weights=pull * steep, minlength=count)
        to_steep = pull * below * (raw > 0)
        to_height = clicked - ratio * expected
        to_shape = np.log(shape) - np.log(shape + expected) + 1 - ratio + digamma(clicked + shape) - digamma(shape)
        by_position = np.bincount(self.position_of, weights=by_place * form.curve)
        parts = [
            np.array([by_place.sum()]) if form.popular else np.zeros(0),
            np.cumsum(by_position[:0:-1])[::-1],
            np.where(self.position_of == 0, 0.0, by_place) if form.browsing else np.zeros(0),
            np.array([shape * to_shape.sum()]),
            np.array([-float(to_steep @ self.popularity)]) if form.popular else np.zeros(0),
            self.features.T @ np.bincount(self.of_line, weights=to_steep, minlength=documents)
            if form.bend
            else np.zeros(0),
            self.known.T @ to_height,
            np.array([to_height.sum()]),
        ]
        return values, np.concatenate(parts)

    def _sizes(self, form: _Form) -> list[int]:
        """How many parameters there are: the first b, its steps, places about them, log k, a, w, v, c."""
        own, bends = len(self.position_of) * form.browsing, self.features.shape[1] * form.bend
        steps, popular = int(self.position_of.max(initial=0)), int(form.popular)
        return [popular, steps, own, 1, popular, bends, self.known.shape[1], 1]

    def _prior(self, vector: Float64, form: _Form) -> tuple[float, Float64]:
        """Minus the log density of the parameters, and its gradient: small ones, and a smooth curve."""
        sizes = self._sizes(form)
        means = np.repeat((0.0, 0.0, 0.0, np.log(SHAPE), 0.0, 0.0, 0.0, 0.0), sizes)
        push = (vector - means) / np.repeat((1.0, 1.0, 1.0, SHAPES, DRAWS, BENDS, 1.0, np.inf), sizes) ** 2
        steps = slice(sizes[0], sizes[0] + sizes[1])
        changes = np.diff(vector[steps])
        value = 0.5 * float((vector - means) @ push) + 0.5 * float(changes @ changes)
        push[steps] -= np.diff(changes, prepend=0.0, append=0.0)[: sizes[1]]
        return value, push


def _standardised(columns: Float64) -> tuple[Float64, Float64, Float64]:
    """With mean 0 and standard deviation 1, but for constants, which are 0; the mean and the standard deviation."""
    mean, spread = columns.mean(axis=0), columns.std(axis=0)
    spread = np.where(spread > 1e-9 * np.maximum(np.abs(mean), 1.0), spread, np.inf)
    return (columns - mean) / spread, mean, spread
