"""Simulate the logs of search engines of known quality, to judge rankers over all candidates.

An engine has many candidates for a query and shows only the best of them, by its own score. That score agrees with
relevance as well as `quality` says, and may react to the clicks of earlier days. A ranker trained on such a log must
rank the candidates of other queries, most of which are unlike anything that was shown. `worlds` simulates logs with
known biases, for diagnosis; here the quality of the engine and of what is learned from it matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np
from scipy.special import expit

from clickprism.data.logged import Logged
from clickprism.data.normalise import fit
from clickprism.errors import SettingError
from clickprism.settings import suggest
from clickprism.types import Bool, Clicks, Float32, Float64, Int64, JudgedLists, Lists, check, concatenate

Users: TypeAlias = Literal[
    "pbm", "mix", "lazy", "cascade", "grid", "trust", "coupled", "popularity", "misclicks", "logit"
]
Relevance: TypeAlias = Literal["linear", "mixed"]

GRADES: Final = (0.8, 1.4, 1.9, 2.4)  # utility from which a document has grade 1, 2, 3, 4
SEVERITY: Final = 0.7  # pbm: position k is observed with probability k^-SEVERITY
NAVIGATIONAL: Final = 0.4  # mix: share of the queries
LAZY: Final = 0.5  # share of the searches without a look at any result
TRUST: Final = 0.25  # at the first position, share of the observed irrelevant results that are clicked
MISCLICKS: Final = 0.03  # share of the observed results that are clicked whatever they are
COUPLED_FEATURES: Final = 5
BEST_FEATURES: Final = 8  # of a judged collection, which its engine uses


@final
@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What is true of an engine and its users, and how much of it is logged.

    Attributes:
        users: How users observe results (position k from 1) and click on them.
            pbm: position k is observed with probability k^-.7.
            mix: users read from the top. In 40% of the queries (navigational) they go on with probability .55 and stop
            after a click with .9; in the others they go on with .93.
            lazy: as pbm, but half of the searches have no look at any result.
            cascade: users read from the top and go on with .85, after a click with .4.
            grid: two columns; row r from 0 is observed with .75^r, its second column with .8 of that.
            trust: as pbm, and an observed result that does not attract is clicked with .25 / k.
            coupled: as pbm, but log o = (1 + w.x) log k^-.7, with w uniform in (-.3, .3) for five features and the
            factor at least .05.
            popularity: o = sigmoid(1.6 - .5 (k - 1) + .5 log(1 + clicks of the document on earlier days)).
            misclicks: as pbm, and an observed result that does not attract is clicked with .03.
            logit: o = sigmoid(1.6 - .5 (k - 1) + u), with u standard normal for each search.
        quality: Correlation of the engine's score with relevance; 0 is an engine that ignores relevance.
        random: The engine shows the candidates in random order, drawn each day; its quality does not matter.
        feedback: Weight in the engine's score of the smoothed click rate of earlier days, (clicks + .3) / (shown + 2).
        noise: Standard deviation of the noise in the engine's score, drawn each day. The score without it has 1.
        relevance: "linear" in the features, or "mixed": half of the explained variance is not linear (products,
            absolute values, steps).
        unexplained: Standard deviation of the relevance that no feature explains. The explained part has 1.
        queries: Number of training queries, which the log contains.
        test_queries: Number of other queries, on which rankers are judged.
        candidates: Number of documents of a query.
        shown: Number of them that the engine shows.
        features: Number of features.
        searches: Scale of the number of searches of a query: the number is searches (p + .2), with p from a Pareto
            distribution of index 1.5, at least 1 and at most 20 times the scale. Its mean is about twice the scale.
        days: Number of days.
        log_candidates: Whether the log also contains the candidates that were never shown.
        seed: Random seed.
    """

    users: Users = "pbm"
    quality: float = 0.6
    random: bool = False
    feedback: float = 0.0
    noise: float = 0.25
    relevance: Relevance = "linear"
    unexplained: float = 0.6
    queries: int = 240
    test_queries: int = 120
    candidates: int = 60
    shown: int = 10
    features: int = 25
    searches: int = 30
    days: int = 8
    log_candidates: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("users", Users), ("relevance", Relevance)):
            value = getattr(self, name)
            if value not in get_args(kind):
                raise SettingError(name, value, f"be a known name ({suggest(str(value), get_args(kind))})")
        if not 0 <= self.quality <= 1:
            raise SettingError("quality", self.quality, "be from 0 to 1")
        for name in ("feedback", "noise", "unexplained"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "be 0 or more")
        for name in ("queries", "test_queries", "candidates", "shown", "searches", "days"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")
        if self.random and self.feedback > 0:
            raise SettingError("feedback", self.feedback, "be 0 if the order is random")
        if self.features < COUPLED_FEATURES:
            raise SettingError("features", self.features, f"be at least {COUPLED_FEATURES}")
        if self.shown > self.candidates:
            raise SettingError("shown", self.shown, f"be at most the number of candidates, {self.candidates}")

    @property
    def name(self) -> str:
        """Return a short name that tells the cells of a table apart.

        >>> EngineSettings(users="mix", quality=0.9, feedback=2.0).name
        'mix .9 feedback, 10 of 60, 240 queries x 30'
        """
        engine = "random" if self.random else f"{self.quality:g}".removeprefix("0") or "0"
        parts = [f"{self.users} {engine}{' feedback' if self.feedback > 0 else ''}"]
        parts += [f"{self.shown} of {self.candidates}", f"{self.queries} queries x {self.searches}"]
        parts += ["mixed relevance"] if self.relevance == "mixed" else []
        parts += ["candidates logged"] if self.log_candidates else []
        return ", ".join(parts)


@final
@dataclass(frozen=True, eq=False)
class EngineWorld:
    """The log of an engine as a site has it, and the truth.

    Attributes:
        settings: What is true. Never pass it to what is tested on the world.
        logged: The log, with days, over the shown documents of `train` or, with `log_candidates`, over all of them.
            Sessions are merged by pattern within a day.
        test: All candidates of the test queries. Measure rankers here.
        engine: The engine's score of the documents of `test`, without the noise of a day, [documents].
        train: All candidates of the training queries.
        rows: The row in `train` of each document of `logged.clicks.lists`, [documents].
        attraction: The probability that a user who observes a document of `train` is attracted by it, [documents].
    """

    settings: EngineSettings
    logged: Logged
    test: JudgedLists
    engine: Float64
    train: JudgedLists
    rows: Int64
    attraction: Float64


def engine_world(settings: EngineSettings) -> EngineWorld:
    """Simulate documents, an engine, and its log; the same settings give the same world.

    A document has normally distributed features and utility u = explained part + unexplained part, attracts with
    probability sigmoid(1.6 u - 2.6) if observed, and has a grade from 0 to 4 by its utility. The engine's score is
    quality u / std(u) + sqrt(1 - quality^2) v / std(v), where v is linear in the features in a direction without
    relevance.

    >>> world = engine_world(EngineSettings(queries=20, test_queries=5, searches=4))
    >>> world.train, world.logged.clicks.max_position
    (JudgedLists(Lists(20 lists, 1200 documents, 25 features), grades 0 to 4), 10)
    """
    rng, documents_rng = np.random.default_rng(settings.seed).spawn(2)
    train_size = settings.queries * settings.candidates
    size = train_size + settings.test_queries * settings.candidates
    features = documents_rng.standard_normal((size, settings.features), dtype=np.float32)
    weights = documents_rng.normal(size=settings.features) * (documents_rng.random(settings.features) < 0.5)
    if not weights.any():
        weights[0] = 1.0
    explained = _scaled(features @ weights)
    if settings.relevance == "mixed":
        explained = _scaled(explained + _scaled(_non_linear(features, documents_rng)))
    utility = explained + documents_rng.normal(0, settings.unexplained, size)
    other = documents_rng.normal(size=settings.features)
    other -= weights * (other @ weights) / (weights @ weights)
    irrelevant = _scaled(features @ other)
    engine = settings.quality * utility / utility.std() + np.sqrt(1 - settings.quality**2) * irrelevant
    if settings.random:
        engine = documents_rng.normal(size=size)
    grades = np.digitize(utility, GRADES).astype(np.int32)
    train, test = (
        JudgedLists(_lists(features[part], settings.candidates, prefix), grades[part])
        for part, prefix in ((slice(0, train_size), "q"), (slice(train_size, size), "t"))
    )
    attraction = expit(1.6 * utility[:train_size] - 2.6)
    users = _Users.draw(settings, train.lists.features, len(train), attraction, rng)
    logged, rows = _simulate(settings, train.lists, engine[:train_size], users, rng)
    return EngineWorld(settings, logged, test, engine[train_size:], train, rows, attraction)


def judged_world(train: JudgedLists, test: JudgedLists, settings: EngineSettings) -> EngineWorld:
    """Simulate an engine and its log on the judged lists of a real collection.

    The engine's score is the sum of the eight features that correlate best with the grades within the training queries,
    each between -1 and 1 by quantile normalisation and with the sign of its correlation. Its standard
    deviation is near 3 if the eight agree; compare `noise` with that. A document attracts with probability
    .08 + .85 (2^y - 1) / (2^max - 1). The settings of documents and of the engine's quality are not used.
    """
    check(int(train.lists.lengths.min(initial=1)) > 0, "every training query needs a candidate")
    width = train.lists.features.shape[1]
    check(test.lists.features.shape[1] == width, f"training documents have {width} features, test documents do not")
    rng = np.random.default_rng(settings.seed)
    normaliser = fit("quantile", train.lists)
    features = normaliser(train.lists).features
    centred = _within_lists(features.astype(np.float64), train.lists)
    grades = _within_lists(train.grades[:, None].astype(np.float64), train.lists)[:, 0]
    spread = np.sqrt((centred**2).sum(axis=0) * (grades**2).sum())
    correlation = np.divide(grades @ centred, spread, out=np.zeros(width), where=spread > 0)
    best = np.argsort(-np.abs(correlation), kind="stable")[:BEST_FEATURES]
    weights = np.sign(correlation[best])
    engine, test_engine = (matrix[:, best] @ weights for matrix in (features, normaliser(test.lists).features))
    if settings.random:
        test_engine = rng.normal(size=len(test_engine))
    gain = np.exp2(train.grades.astype(np.float64)) - 1
    attraction = 0.08 + 0.85 * gain / max(float(gain.max()), 1.0)
    users = _Users.draw(settings, features, len(train), attraction, rng)
    logged, rows = _simulate(settings, train.lists, engine, users, rng)
    return EngineWorld(settings, logged, test, test_engine, train, rows, attraction)


@final
@dataclass(frozen=True, eq=False)
class _Users:
    """The users of an engine, and what does not change from search to search.

    Attributes:
        kind: As in `EngineSettings.users`.
        attraction: Of each document, [documents].
        steepness: Factor of each document on the logarithm of observation, [documents]; 1 unless coupled.
        navigational: Whether each query is navigational, [queries]; used by mix.
        rng: Random numbers, apart from those of the engine: other users then see an engine with the same noise.
    """

    kind: Users
    attraction: Float64
    steepness: Float64
    navigational: Bool
    rng: np.random.Generator

    @staticmethod
    def draw(
        settings: EngineSettings, features: Float32, queries: int, attraction: Float64, engine_rng: np.random.Generator
    ) -> _Users:
        """Draw the navigational queries and the features on which observation depends."""
        rng = engine_rng.spawn(1)[0]
        navigational = rng.random(queries) < NAVIGATIONAL
        steepness = np.ones(len(features))
        if settings.users == "coupled":
            columns = rng.permutation(features.shape[1])[:COUPLED_FEATURES]
            steepness = np.maximum(1 + features[:, columns] @ rng.uniform(-0.3, 0.3, len(columns)), 0.05)
        return _Users(settings.users, attraction, steepness, navigational, rng)

    def search(self, rows: Int64, searches: Int64, past_clicks: Float64) -> Bool:
        """Return which results are clicked in all searches of a day, [searches, positions], query after query.

        Args:
            rows: The documents shown for each query, [queries, positions]; -1 where there is none.
            searches: The number of searches for each query, [queries].
            past_clicks: The clicks on each document on earlier days, [documents].
        """
        rng, query = self.rng, np.repeat(np.arange(len(rows)), searches)
        attraction = np.where(rows >= 0, self.attraction[rows], 0.0)[query]
        position = np.arange(1.0, rows.shape[1] + 1)
        if self.kind in ("mix", "cascade"):
            return self._read_from_the_top(attraction, query)
        if self.kind == "trust":
            attraction += (1 - attraction) * TRUST / position
        elif self.kind == "misclicks":
            attraction += (1 - attraction) * MISCLICKS
        if self.kind == "logit":
            observation = expit(1.6 - 0.5 * (position - 1) + rng.normal(size=(len(query), 1)))
        elif self.kind == "popularity":
            observation = expit(1.6 - 0.5 * (position - 1) + 0.5 * np.log1p(past_clicks[rows]))[query]
        elif self.kind == "grid":
            observation = 0.75 ** ((position - 1) // 2) * np.where(position % 2 == 0, 0.8, 1.0)
        else:
            observation = (position ** (-SEVERITY * self.steepness[rows]))[query]
        clicked: Bool = rng.random(attraction.shape) < observation * attraction
        return clicked & (rng.random((len(query), 1)) >= LAZY) if self.kind == "lazy" else clicked

    def _read_from_the_top(self, attraction: Float64, query: Int64) -> Bool:
        rng = self.rng
        go_on, after_click = np.full(len(query), 0.85), np.full(len(query), 0.4)
        if self.kind == "mix":
            navigational = self.navigational[query]
            go_on = np.where(navigational, 0.55, 0.93)
            after_click = np.where(navigational, 0.1 * 0.55, 0.93)
        clicked, reading = np.zeros(attraction.shape, dtype=np.bool_), np.ones(len(query), dtype=np.bool_)
        for column in range(attraction.shape[1]):
            clicked[:, column] = reading & (rng.random(len(query)) < attraction[:, column])
            reading &= rng.random(len(query)) < np.where(clicked[:, column], after_click, go_on)
        return clicked


def _simulate(
    settings: EngineSettings, lists: Lists, engine: Float64, users: _Users, rng: np.random.Generator
) -> tuple[Logged, Int64]:
    """Return the log of all days, and the row of each of its documents in `lists`."""
    scale = settings.searches
    number = np.clip((scale * (rng.pareto(1.5, len(lists)) + 0.2)).astype(np.int64), 1, 20 * scale)
    searches = rng.multinomial(number, np.full(settings.days, 1 / settings.days))  # [queries, days]
    place = np.arange(lists.lengths.max())
    table = np.where(place < lists.lengths[:, None], lists.offsets[:-1, None] + place, -1)  # rows of each query
    clicks, shown = np.zeros((2, lists.documents))
    parts: list[Clicks] = []
    for day in range(settings.days):
        score = rng.normal(size=lists.documents)
        if not settings.random:
            score = engine + settings.noise * score + settings.feedback * (clicks + 0.3) / (shown + 2)
        best = np.argsort(np.where(table >= 0, -score[table], np.inf), axis=1)[:, : settings.shown]
        rows = np.take_along_axis(table, best, axis=1)
        clicked = users.search(rows, searches[:, day], clicks)
        today = _sessions(lists, np.repeat(rows, searches[:, day], axis=0), clicked)
        clicks += np.bincount(today.rows, weights=today.clicks, minlength=lists.documents)
        shown += np.bincount(today.rows, weights=today.list_impressions, minlength=lists.documents)
        parts.append(today)
    merged = concatenate(parts)
    chosen = np.arange(lists.documents) if settings.log_candidates else np.flatnonzero(shown)
    in_log = Lists(
        lists.features[chosen],
        np.searchsorted(chosen, lists.offsets),
        lists.query_ids,
        None if lists.document_ids is None else lists.document_ids[chosen],
    )
    rows = np.searchsorted(chosen, merged.rows)
    log = Clicks(in_log, merged.offsets, rows, merged.positions, merged.clicks, merged.impressions)
    names = tuple(f"f{column:02d}" for column in range(lists.features.shape[1]))
    return Logged(
        log, days=np.repeat(np.arange(len(parts)), [len(part) for part in parts]), feature_names=names
    ), chosen


def _sessions(lists: Lists, rows: Int64, clicked: Bool) -> Clicks:
    """Return the sessions of a day, merged by pattern; both arguments are [searches, positions], -1 for no document."""
    entries = rows >= 0
    offsets = np.concatenate([[0], np.cumsum(entries.sum(axis=1))])
    positions = np.broadcast_to(np.arange(1, rows.shape[1] + 1, dtype=np.int32), rows.shape)[entries]
    counts = clicked[entries].astype(np.int64)
    return Clicks(lists, offsets, rows[entries], positions, counts, np.ones(len(rows), np.int64)).merge(by="pattern")


def _non_linear(features: Float32, rng: np.random.Generator) -> Float64:
    """Return products, absolute values and steps of random features, without the part that is linear in features."""
    first, second, third = rng.integers(0, features.shape[1], (3, 4))
    partner = (first + rng.integers(1, features.shape[1], 4)) % features.shape[1]
    products, steps = features[:, first] * features[:, partner], features[:, third] > rng.normal(0, 0.7, 4)
    value = np.hstack([products, np.abs(features[:, second]), 1.5 * steps]) @ rng.choice([-1.0, 1.0], 12)
    value -= value.mean()
    coefficients = np.linalg.solve(features.T @ features.astype(np.float64), features.T @ value)
    return np.asarray(value - features @ coefficients, dtype=np.float64)


def _lists(features: Float32, candidates: int, prefix: str) -> Lists:
    queries = len(features) // candidates
    names = [f"{prefix}{query}" for query in range(queries)]
    ids = [f"{name}d{document}" for name in names for document in range(candidates)]
    offsets = np.arange(queries + 1, dtype=np.int64) * candidates
    return Lists(features, offsets, np.array(names), np.array(ids))


def _within_lists(values: Float64, lists: Lists) -> Float64:
    """Subtract the mean of each list from each column, [documents, columns]."""
    mean = np.add.reduceat(values, lists.offsets[:-1]) / lists.lengths[:, None]
    return np.asarray(values - mean[lists.list_of], dtype=np.float64)


def _scaled(values: Float64) -> Float64:
    """Return the values divided by their standard deviation."""
    return np.asarray(values / values.std(), dtype=np.float64)


def _cells() -> tuple[EngineSettings, ...]:
    """Return the cells of `CELLS`: engines by users first, then one property at a time, then several together."""
    engines = ((0.0, 0.0), (0.3, 0.0), (0.6, 0.0), (0.6, 2.0), (0.9, 0.0), (0.9, 2.0))
    browsing: tuple[Users, ...] = ("pbm", "mix")
    others: tuple[Users, ...] = ("lazy", "cascade", "grid", "trust", "coupled", "popularity", "misclicks", "logit")
    cells = [EngineSettings(users=users, random=True) for users in browsing]
    cells += [EngineSettings(users=users, quality=each, feedback=back) for users in browsing for each, back in engines]
    cells += [EngineSettings(users=users, quality=0.6) for users in others]
    cells += [EngineSettings(users="lazy", quality=0.9, feedback=2.0), EngineSettings(users="trust", quality=0.3)]
    cells += [
        EngineSettings(users="popularity", quality=0.9, feedback=3.0),
        EngineSettings(users="coupled", quality=0.9),
    ]
    # Shown share.
    cells += [EngineSettings(users="mix", quality=each, candidates=15) for each in (0.3, 0.9)]
    cells += [EngineSettings(users="grid", quality=0.3, candidates=150), EngineSettings(quality=0.9, candidates=150)]
    cells += [EngineSettings(users="mix", quality=0.6, feedback=2.0, candidates=150)]
    # Relevance that is not linear in the features.
    cells += [EngineSettings(relevance="mixed", random=True), EngineSettings(relevance="mixed", quality=0.6)]
    cells += [EngineSettings(relevance="mixed", users="mix", quality=0.9, feedback=2.0)]
    cells += [EngineSettings(relevance="mixed", users="cascade", quality=0.3, queries=1000, searches=10)]
    # Searches of a query.
    cells += [EngineSettings(quality=0.6, searches=5), EngineSettings(users="mix", quality=0.9, searches=5)]
    cells += [EngineSettings(users="misclicks", quality=0.3, searches=5)]
    cells += [EngineSettings(users="mix", quality=0.3, searches=80), EngineSettings(quality=0.9, searches=80)]
    # Queries.
    cells += [
        EngineSettings(quality=0.6, queries=5, searches=300),
        EngineSettings(random=True, queries=5, searches=300),
    ]
    cells += [EngineSettings(users="mix", quality=0.9, queries=5), EngineSettings(quality=0.3, queries=20)]
    cells += [EngineSettings(users="lazy", quality=0.6, queries=20, searches=200)]
    cells += [EngineSettings(users="mix", quality=0.6, feedback=2.0, queries=60, searches=200)]
    cells += [EngineSettings(users="logit", quality=0.9, queries=60), EngineSettings(users="trust", queries=60)]
    cells += [EngineSettings(quality=0.3, queries=2000, searches=5)]
    cells += [EngineSettings(users="mix", quality=0.9, queries=2000, searches=5)]
    cells += [EngineSettings(users="coupled", quality=0.6, feedback=2.0, queries=1000, searches=15)]
    # Never-shown candidates in the log.
    cells += [EngineSettings(users=users, quality=0.9, log_candidates=True) for users in browsing]
    cells += [EngineSettings(users="cascade", quality=0.0, candidates=150, log_candidates=True)]
    return tuple(cells)


CELLS: Final = _cells()
"""Chosen worlds over the quality of engines, users, shown share, relevance, and the size of the log, seed 0."""
