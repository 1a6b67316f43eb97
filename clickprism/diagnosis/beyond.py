"""Beyond the position: does trust, or what a document looks like, change how its clicks fall down the page?

Both bend the curve of some documents, so they are looked at together. Trust bends it where relevance is low, whatever
documents look like; coupling where features say so, whatever relevance is; past clicks that draw the eye bend it where
these are many. Each is tested with the others free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.attraction import Expected, expected
from clickprism.diagnosis.clusters import NORMAL_95, by_query, one_thread, shown
from clickprism.diagnosis.lines import Lines, daily_lines, halves
from clickprism.diagnosis.popularity import PopularitySettings, engine_response
from clickprism.diagnosis.shape import LEAST, Shape, plain_shape
from clickprism.diagnosis.sight import Form, Sight, document_columns, sight_of, standardised
from clickprism.observation.curve import sums
from clickprism.types import Clicks, Float64, Int64

SPLITS: Final = 3
FOLDS: Final = 10
COLUMN_RIDGE: Final = 30.0  # clicks that say that a feature bends nothing, where it is only in the way
PRIOR: Final = 100.0  # the same where the bend is estimated: a standard deviation of .1 a feature
HINT: Final = 1.64  # standard errors of coupling, from which it is left free in the test of trust
SOONER: Final = 0.4  # trust falls as 1 / (k - .4), as it does where it is .4 / k of what is seen and not relevant
MIN_DAYS: Final = 3
ROUNDS: Final = 4


class Estimate(NamedTuple):
    """A number with its standard error, and the test that it is 0.

    Attributes:
        value: the number.
        error: its standard error.
        z: of the test, in standard errors.
        queries: that had something to say; documents where few queries hold all.
    """

    value: float
    error: float
    z: float
    queries: int


@final
@dataclass(frozen=True, eq=False)
class Beyond:
    """What bends the curve.

    Attributes:
        form: what entries were compared by.
        heeds: whether the engine heeds clicks, so that luck decides what is moved.
        trust: the share of clicks on the first result that come from its place alone.
        by_position: clicks an impression that trust adds at each position, [positions].
        poor: observation by position of the third of documents with the fewest clicks when seen, [positions].
        good: the same of the third with the most, [positions]. They differ where there is trust, or coupling.
        coupling: the standard deviation of the steepness that features make; None without features.
        slopes: of the steepness by each standardised feature, [features].
        steepness: of each document that moved, by features, [documents].
        documents: that stood at several positions and were clicked.
        clicks: on them.
    """

    form: Form
    heeds: bool
    trust: Estimate
    by_position: Float64
    poor: Float64
    good: Float64
    coupling: Estimate | None
    slopes: Float64
    steepness: Float64
    documents: int
    clicks: float


_KNOWN: WeakKeyDictionary[Logged, Beyond] = WeakKeyDictionary()


def beyond(logged: Logged) -> Beyond:
    """What bends the curve of a log whose positions are linked; worked out once for a log, as two findings ask."""
    if logged not in _KNOWN:
        with one_thread():
            _KNOWN[logged] = _beyond(logged)
    return _KNOWN[logged]


def _beyond(log: Logged) -> Beyond:
    logged = shown(log)
    clicks = logged.clicks
    sight = sight_of(logged)
    features = standardised(clicks.lists.features)
    made = [_shape(clicks, sight, features, seed) for seed in range(SPLITS)]
    coupling, slopes = (None, np.zeros(0)) if features.shape[1] == 0 else _coupling(made, features)
    heeds = heeds_clicks(logged)
    shapes = [_daily(logged, sight, features)] if heeds else made
    trust, kappa = _trust(shapes, held=coupling is None or coupling.z < HINT)
    rows = np.unique(np.concatenate([each.lines.rows for each in made]))
    return Beyond(
        sight.form,
        heeds,
        trust,
        kappa * shapes[0].trust,
        *_thirds(made[0], sight.form),
        coupling,
        slopes,
        np.maximum(1 + features[rows] @ slopes, LEAST) if len(slopes) else np.ones(len(rows)),
        len(rows),
        float(np.mean([each.lines.clicks.sum() for each in made])),
    )


def _thirds(shape: Shape, form: Form) -> tuple[Float64, Float64]:
    """The curves of poor and of good documents, by the clicks of the other half; below no click, where that matters."""
    lines = shape.lines
    suspicion = lines.total(shape.suspicion) / np.maximum(np.bincount(lines.group, minlength=len(lines.rows)), 1)
    ends = np.quantile(suspicion, [1 / 3, 2 / 3]) if len(suspicion) else np.zeros(2)
    made = []
    places = np.arange(1, int(lines.position_of.max()) + 2)
    for kept in (suspicion > ends[1], suspicion <= ends[0]):
        plain = plain_shape(lines.take(kept))
        free = plain.free(own=np.zeros(0, dtype=np.bool_), trust=False)
        curve = np.where(free[:-1] | (lines.position_of == 0), np.exp(plain.solve(free)[:-1]), np.nan)
        made.append(curve[places * (places - 1) // 2 if form == "last click" else places - 1])
    return made[0], made[1]


def heeds_clicks(logged: Logged) -> bool:
    """Whether the engine moves documents by their clicks; then those that moved had luck before."""
    if logged.days is None or len(np.unique(logged.days)) < MIN_DAYS:
        return False
    found, settings = engine_response(logged), PopularitySettings()
    return found.test.p_value < settings.level and found.size >= settings.material


def trust_by_position(depth: int) -> Float64:
    """g_k, how trust falls down the page, 0 at its end, [positions]."""
    places = np.arange(1, depth + 1)
    return np.asarray(1 / (places - SOONER) - 1 / (depth - SOONER), dtype=np.float64)


def _shape(clicks: Clicks, sight: Sight, features: Float64, seed: int) -> Shape:
    """The equations of documents that moved, in halves: what is known of a document comes from the other half."""
    both = halves(clicks, sight, seed=seed)
    lines, documents = both.moved(), clicks.lists.documents
    plain = plain_shape(lines)
    curve = plain.solve(plain.free(own=np.zeros(0, dtype=np.bool_), trust=False))[: plain.places]
    seen = both.of_parts(both.shown * np.exp(curve[both.places]), documents)
    taken = both.of_parts(both.clicks, documents)
    rates, popular = np.ones((documents, 2)), np.zeros((documents, 2))
    columns = document_columns(clicks)
    for half in (0, 1):
        known = expected(taken[:, half], seen[:, half], clicks.lists.list_of, columns)
        rates[:, half] = known.rate(taken[:, half], seen[:, half])
        popular[:, half] = _percentiles(taken[:, half])
    other = lines.rows, 1 - lines.part
    own, ridge = _columns(lines, features, popular[other])
    suspicion = 1 / rates[other]
    trust = trust_by_position(int(sight.position_of.max()) + 1)
    return Shape(lines, own, ridge, trust, (suspicion / suspicion.mean())[lines.group])


def _columns(lines: Lines, features: Float64, past: Float64) -> tuple[Float64, Float64]:
    """What may bend the curve of each group, and the ridge of each column, [groups, columns] and [columns].

    Last come past clicks, and how good the documents above were: where users stop at good ones, the chances of a chain
    may be off by as much as these are.
    """
    chance = np.log(np.maximum(lines.shown, 1e-300) / lines.searches)
    size = len(lines.position_of)
    usual = sums(lines.places, lines.clicks * chance, size) / np.maximum(sums(lines.places, lines.clicks, size), 1e-9)
    above = lines.total(lines.searches * (chance - usual[lines.places])) / lines.total(lines.searches)
    own = np.column_stack([features[lines.rows], standardised(np.column_stack([past, above]))])
    return own, np.concatenate([np.full(features.shape[1], COLUMN_RIDGE), np.ones(2)])


def daily_shape(logged: Logged, sight: Sight, features: Float64) -> tuple[Shape, Float64]:
    """The curve day by day: what is expected of a document comes from its features and its first day's place.

    Only this holds where documents are moved by their clicks: of those that were, the clicks before were luck in part.

    Returns:
        the equations of the curve alone and their solution.
    """
    lines = daily_lines(logged, sight)
    columns = np.column_stack([_first_places(lines), features[lines.rows]])
    shape = plain_shape(lines.moved())
    free = shape.free(own=np.zeros(0, dtype=np.bool_), trust=False)
    curve = shape.solve(free)
    for _ in range(ROUNDS):
        seen, taken = lines.total(lines.shown * np.exp(curve[lines.places])), lines.total(lines.clicks)
        known = expected(taken, seen, lines.query, columns)
        shape = plain_shape(replace(lines, mean=known.mean, strength=known.strength))
        curve = shape.solve(free, curve)
    return shape, curve


def _daily(logged: Logged, sight: Sight, features: Float64) -> Shape:
    """The equations day by day; how suspicious a document is comes from the days before."""
    plain, curve = daily_shape(logged, sight, features)
    lines = plain.lines
    known = Expected(lines.mean, lines.strength)
    suspicion = np.zeros(len(lines.places))
    seen, taken = np.zeros(len(lines.rows)), np.zeros(len(lines.rows))
    for day in range(int(lines.days.max()) + 1):
        today = lines.days == day
        suspicion[today] = (1 / known.rate(taken, seen))[lines.group[today]]
        seen += lines.total(np.where(today, lines.shown * np.exp(curve[lines.places]), 0.0))
        taken += lines.total(np.where(today, lines.clicks, 0.0))
    own, ridge = _columns(lines, features, np.zeros(len(lines.rows)))
    trust = trust_by_position(int(sight.position_of.max()) + 1)
    return Shape(lines, own, ridge, trust, suspicion / suspicion.mean())


def _first_places(lines: Lines) -> Float64:
    """Where each group stood on its first day, one column a position, and whether that was the first of all."""
    begun = np.full(len(lines.rows), lines.days.max(initial=0))
    np.minimum.at(begun, lines.group, lines.days)
    first = np.where(lines.days == begun[lines.group], lines.shown, 0.0)
    mean = lines.total(first * lines.position_of[lines.places]) / np.maximum(lines.total(first), 1e-9)
    made = np.zeros((len(lines.rows), int(lines.position_of.max()) + 2))
    made[np.arange(len(lines.rows)), np.round(mean).astype(np.int64)] = 1.0
    made[:, -1] = begun > 0
    return made


def _percentiles(clicks: Float64) -> Float64:
    from scipy.stats import rankdata

    return np.where(clicks > 0, (rankdata(clicks) - 0.5) / len(clicks), 0.0)


def _own(shape: Shape, *, features: bool, past: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    made = np.full(shape.own.shape[1], features)
    made[-2:] = past
    return made


def _by_unit(units: list[Int64], scores: list[Float64]) -> Float64:
    """Scores of groups [groups, k] of several shapes, added up by what is independent, in the mean, [units, k]."""
    known = np.unique(np.concatenate(units))
    found = np.zeros((len(known), scores[0].shape[1]))
    for unit, each in zip(units, scores, strict=True):
        found[np.searchsorted(known, np.unique(unit))] += by_query(unit, each) / len(units)
    return found


def _trust(shapes: list[Shape], *, held: bool) -> tuple[Estimate, float]:
    """The share of clicks on the first result that trust makes, and kappa; features are held at 0, or left free."""
    units = [each.lines.units() for each in shapes]
    under, at, turns, shares, values = [], [], [], [], []
    for shape in shapes:
        own = _own(shape, features=not held, past=True)
        none, free = shape.free(own=own, trust=False), shape.free(own=own, trust=True)
        tested = free & ~none
        start = shape.solve(none)
        under.append(shape.scores(start, none, tested)[0])
        found = shape.solve(free, start)
        scores, turn = shape.scores(found, free, tested)
        at.append(scores)
        turns.append(float(turn[0, 0]))
        values.append(float(found[-1]))
        lines = shape.lines
        top = lines.position_of[lines.places] == 0
        shares.append(shape.trust[0] * float(lines.shown[top].sum()) / max(float(lines.clicks[top].sum()), 1.0))
    null, full = (_by_unit(units, each)[:, 0] for each in (under, at))
    share, kappa = float(np.mean(shares)), float(np.mean(values))
    error = float(np.sqrt((full**2).sum())) / max(abs(float(np.mean(turns))), 1e-12)
    spread = float(np.sqrt((null**2).sum()))
    z = float(null.sum()) / spread if spread > 0 else 0.0
    return Estimate(share * kappa, share * error, z, int((null != 0).sum())), kappa


def _coupling(shapes: list[Shape], features: Float64) -> tuple[Estimate, Float64]:
    """The steepness by features: fitted on nine tenths of the queries, and tested on the others, in turn.

    The sum of held-out scores along the fitted direction is 0 in the mean where features bend nothing.
    """
    width = features.shape[1]
    scores, bends = [], []
    for shape in shapes:
        free = shape.free(own=_own(shape, features=False, past=True), trust=True)
        tested = np.zeros(len(free), dtype=np.bool_)
        tested[shape.places : shape.places + width] = True
        found, bend = shape.scores(shape.solve(free), free, tested)
        scores.append(found)
        bends.append(-bend)
    score, bend = _by_unit([each.lines.units() for each in shapes], scores), np.mean(bends, axis=0)
    fold = np.random.default_rng(1).permutation(len(score)) % FOLDS
    tried, slopes, norm = np.zeros(len(score)), np.zeros(width), 0.0
    for part in range(FOLDS):
        inside = fold != part
        share = float(inside.mean())
        made = np.linalg.solve(bend * share + PRIOR * np.eye(width), score[inside].sum(axis=0))
        tried[~inside] = score[~inside] @ made
        norm += (1 - share) * float(made @ bend @ made)
        slopes += made / FOLDS
    spread = float(np.sqrt((tried**2).sum()))
    ratio, error = float(tried.sum()) / max(norm, 1e-12), spread / max(norm, 1e-12)
    slopes = slopes * ratio
    rows = np.unique(np.concatenate([each.lines.rows for each in shapes]))
    size = float((features[rows] @ slopes).std()) if ratio > 0 else 0.0
    relative = size / ratio if ratio > 0 else 0.0
    z = float(tried.sum()) / spread if spread > 0 else 0.0
    return Estimate(size, relative * error, z, int((score != 0).any(axis=1).sum())), slopes


def interval(estimate: Estimate) -> tuple[float, float]:
    """95%, and no lower than 0."""
    reach = NORMAL_95 * estimate.error
    return max(estimate.value - reach, 0.0), max(estimate.value + reach, 0.0)
