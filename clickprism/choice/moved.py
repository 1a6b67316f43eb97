"""How often positions are seen, from documents that stood at several of them: relevance cancels.

Of the clicks on one document, wherever it stood, the share that falls to place j is

    n_j o_j(x) / sum over i of n_i o_i(x),    log o_j(x) = s(x) b_j,    s(x) = max(1 + w . x + a, 0)

whatever its relevance. So no ranker is learned beside, and none can put what it does not know into the observation. A
place is a position; where users heed what they clicked above, a position and that of the last click above it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final

import numpy as np
from scipy.optimize import minimize

from clickprism.choice.places import Places, places_of
from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Clicks, Float64, Int64, Lists

Fit: TypeAlias = tuple[Float64, Float64]  # b of each place, [places], and w, [features]
Form: TypeAlias = tuple[bool, float]  # whether clicks above matter, and the standard deviation of w
SCALES: Final = (0.06, 0.2, 0.6)
SMOOTH: Final = 1.0  # clicks that say that a position is seen as often as the one above it
APART: Final = 1.0  # clicks that say that places of one position are seen alike
LEAST_CLICKS: Final = 30.0
SEVERAL: Final = (
    "Log several rankings of the same query (simulated: --simulation.rankers 3), or swap documents in some sessions"
)
LOWEST: Final = -12.0
STEPS: Final = 300


@final
@dataclass(frozen=True)
class MovedSettings:
    """How the observation is estimated.

    Attributes:
        scales: standard deviations of w, of standardised features, to choose from; 0, no bend, is always tried.
        browsing: whether to try places that know the last click above, where the log tells what was clicked together.
        held_out: the share of queries whose clicks choose.
        seed: decides which queries are held out.
    """

    scales: tuple[float, ...] = SCALES
    browsing: bool = True
    held_out: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if not all(0 < scale < np.inf for scale in self.scales):
            raise SettingError("scales", self.scales, "be finite and above 0")
        if not 0 < self.held_out < 1:
            raise SettingError("held_out", self.held_out, "be between 0 and 1")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "not be negative")


@final
@dataclass(frozen=True, eq=False)
class Moved:
    """Log o_j(x) = s(x) b_j relative to the first position, s(x) = max(1 + w . x + a, 0).

    Attributes:
        below: b_j, [places].
        slopes: w, [features]; all 0 where documents do not bend the curve.
        shift: a.
        scale: the one of `MovedSettings.scales` that was chosen; 0 is no bend.
        browsing: whether clicks above matter.
        likelihoods: of a held-out click, by (browsing, scale).
    """

    below: Float64
    slopes: Float64
    shift: float
    scale: float
    browsing: bool
    likelihoods: dict[Form, float]

    def steepness(self, lists: Lists) -> Float64:
        """s(x) of every document, [documents]."""
        return np.asarray(np.maximum(1 + lists.features @ self.slopes + self.shift, 0.0), dtype=np.float64)


def fit_moved(clicks: Clicks, settings: MovedSettings | None = None, *, places: Places | None = None) -> Moved:
    """The observation under which the clicks of moved documents fall where they fell.

    The equation it solves is 0 in expectation at the true observation, however probable clicks are. Positions that no
    document links are taken to be seen alike. What may matter is chosen by held-out queries.
    """
    settings = settings or MovedSettings()
    places = places or places_of(clicks)
    data = _Lines.of(places, clicks.lists)
    if data.clicks.sum() < LEAST_CLICKS:
        raise DataError("no documents were clicked that stood at several positions", remedy=SEVERAL)
    rng = np.random.default_rng([settings.seed, 31])
    learn = rng.random(len(clicks.lists))[clicks.lists.list_of[data.documents]] >= settings.held_out
    chosen: Form = (False, 0.0)
    likelihoods: dict[Form, float] = {}
    forms = [chosen, *((False, scale) for scale in settings.scales)]
    if settings.browsing and places.knows_clicks:
        forms += [(True, scale) for _, scale in forms]
    if len(forms) > 1 and learn.any() and not learn.all():
        before, after = data.take(learn), data.take(~learn)
        total = max(float(after.clicks.sum()), 1.0)
        likelihoods = {form: after.value(before.fit(form)) / total for form in forms}
        chosen = max(likelihoods, key=lambda form: likelihoods[form])
    below, slopes = data.fit(chosen)
    slopes = slopes / data.spread
    return Moved(below, slopes, -float(slopes @ data.mean), chosen[1], chosen[0], likelihoods)


@dataclass(frozen=True, eq=False)
class _Lines:
    """The documents clicked that stood at several places, one line a place, those of a document together.

    Attributes:
        position_of: the position of each place, from 0, [places].
        documents: the row of each document, [documents].
        of_line: the document of each line, from 0, [lines].
        places: of each line, [lines].
        clicks: [lines].
        offset: log impressions, [lines].
        features: standardised, [documents, features].
        mean: of the features before, [features].
        spread: their standard deviation, infinite for a constant, [features].
    """

    position_of: Int64
    documents: Int64
    of_line: Int64
    places: Int64
    clicks: Float64
    offset: Float64
    features: Float64
    mean: Float64
    spread: Float64

    @classmethod
    def of(cls, found: Places, lists: Lists) -> _Lines:
        _, of_line, times = np.unique(found.rows, return_inverse=True, return_counts=True)
        total = np.bincount(of_line, weights=found.clicks)
        kept = ((times > 1) & (total > 0))[of_line]
        documents, of_line = np.unique(found.rows[kept], return_inverse=True)
        features = lists.features[documents].astype(np.float64)
        mean = features.mean(axis=0) if len(documents) else np.zeros(features.shape[1])
        spread = features.std(axis=0) if len(documents) else np.ones(features.shape[1])
        spread = np.where(spread > 1e-9 * np.maximum(np.abs(mean), 1.0), spread, np.inf)
        places, offset = found.places[kept], np.log(found.impressions[kept])
        standard = (features - mean) / spread
        return cls(found.position_of, documents, of_line, places, found.clicks[kept], offset, standard, mean, spread)

    def take(self, documents: Bool) -> _Lines:
        """Some of the documents."""
        lines, place = documents[self.of_line], np.cumsum(documents) - 1
        return replace(
            self,
            documents=self.documents[documents],
            of_line=place[self.of_line[lines]],
            places=self.places[lines],
            clicks=self.clicks[lines],
            offset=self.offset[lines],
            features=self.features[documents],
        )

    def shares(self, logits: Float64) -> tuple[Float64, Float64]:
        """How the clicks of each document fall to its lines, and the log of the sum, [lines] and [documents]."""
        starts = np.flatnonzero(np.diff(self.of_line, prepend=-1))
        top = np.maximum.reduceat(logits, starts)
        raised = np.exp(logits - top[self.of_line])
        total = np.add.reduceat(raised, starts)
        return raised / total[self.of_line], np.log(total) + top

    def value(self, fit: Fit) -> float:
        """The log-likelihood of a fit."""
        if not len(self.of_line):
            return 0.0
        steep = np.maximum(1 + self.features @ fit[1], 0.0)
        shares, _ = self.shares(self.offset + steep[self.of_line] * fit[0][self.places])
        return float(self.clicks @ np.log(np.maximum(shares, 1e-300)))

    def fit(self, form: Form) -> Fit:
        """The most probable observation of this form."""
        browsing, scale = form
        positions, count = int(self.position_of.max()) + 1, len(self.position_of)
        below, size = positions - 1, self.features.shape[1] if scale > 0 else 0
        own = count if browsing else 0
        total = np.bincount(self.of_line, weights=self.clicks)[self.of_line]

        def unpacked(parameters: Float64) -> tuple[Float64, Float64, Float64]:
            curve = np.concatenate([[0.0], parameters[:below]])
            extra = parameters[below : below + own].copy() if own else np.zeros(count)
            extra[self.position_of == 0] = 0.0
            return curve, extra, parameters[below + own :]

        def loss(parameters: Float64) -> tuple[float, Float64]:
            curve, extra, slopes = unpacked(parameters)
            logs = (curve[self.position_of] + extra)[self.places]
            raw = 1 + (self.features @ slopes if size else np.zeros(len(self.features)))
            steep = np.maximum(raw, 0.0)[self.of_line]
            logits = self.offset + steep * logs
            shares, log_total = self.shares(logits)
            pull = total * shares - self.clicks
            by_place = np.bincount(self.places, weights=pull * steep, minlength=count)
            steps = np.diff(curve)
            gradient = np.bincount(self.position_of, weights=by_place, minlength=positions)[1:]
            gradient = gradient + SMOOTH * (steps - np.append(steps[1:], 0.0))
            value = -float(self.clicks @ (logits - log_total[self.of_line])) + 0.5 * SMOOTH * float(steps @ steps)
            if own:
                value += 0.5 * APART * float(extra @ extra)
                gradient = np.concatenate([gradient, np.where(self.position_of == 0, 0.0, by_place + APART * extra)])
            if size:
                lines = pull * logs * (raw > 0)[self.of_line]
                by_document = np.bincount(self.of_line, weights=lines, minlength=len(self.features))
                value += 0.5 * float(slopes @ slopes) / scale**2
                gradient = np.concatenate([gradient, self.features.T @ by_document + slopes / scale**2])
            return value, np.asarray(gradient, dtype=np.float64)

        start = np.concatenate([-0.1 * np.arange(1, below + 1), np.zeros(own + size)])
        bounds = [(LOWEST, -LOWEST)] * (below + own) + [(-5.0, 5.0)] * size
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS}).x
        curve, extra, slopes = unpacked(np.asarray(found, dtype=np.float64))
        return curve[self.position_of] + extra, slopes if size else np.zeros(self.features.shape[1])
