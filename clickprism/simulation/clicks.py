"""Simulate a click log on judged lists: which queries are asked, what is shown, and what users click."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np

from clickprism.click_models.users import Gain, Shown, User, adapted, attraction, check_probability, highest_grade
from clickprism.errors import DataError, SettingError
from clickprism.settings import check_fields
from clickprism.simulation.rankings import InitialRanker, Intervention, rank
from clickprism.types import Clicks, Float64, Int64, JudgedLists, Simulation, Truth, concatenate, slices

CHUNK = 2**18  # sessions simulated at a time; limits memory, does not change the result

Frequency = Literal["uniform", "zipf", "each"]
Merge = Literal["list", "pattern", "none"]


@final
@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """Settings of a simulated log; the defaults are common in the field.

    Attributes:
        frequency: How often each query is searched: "uniform" (all equally probable), "zipf" (proportional to
            rank^-exponent, with random ranks) or "each" (every query exactly as often).
        exponent: Exponent of "zipf".
        length: Number of documents that users are shown.
        noise: Probability that an observed document of grade 0 is clicked.
        gain: How attraction grows with the grade.
        max_grade: Highest grade of the grading scale; the highest grade in the data if not given.
        initial: Settings of the ranker that orders the lists.
        rankers: Number of initial rankers, each trained on its own sample of labels; a session uses a random one.
        intervention: Change to the rankings before they are shown.
        merge: Which sessions are stored as one row: those with the same ranked list ("list"), those with the same list
            and the same clicks ("pattern"), or none ("none").
        seen: Whether the log records which documents were observed, as a site with a viewport beacon does.
    """

    frequency: Frequency = "uniform"
    exponent: float = 1.0
    length: int = 10
    noise: float = 0.1
    gain: Gain = "exponential"
    max_grade: int | None = None
    initial: InitialRanker = field(default_factory=InitialRanker)
    rankers: int = 1
    intervention: Intervention = field(default_factory=Intervention)
    merge: Merge = "list"
    seen: bool = False

    def __post_init__(self) -> None:
        check_fields(self, frequency=Frequency, gain=Gain, merge=Merge)
        check_fields(self, exponent=(0, 100), length=(1, None), rankers=(1, None))
        check_probability("noise", self.noise)


def simulate(
    judged: JudgedLists,
    user: User,
    *,
    sessions: int,
    seed: int,
    settings: SimulationSettings | None = None,
    scores: Float64 | None = None,
    shares: Float64 | None = None,
) -> Simulation:
    """Simulate clicks on judged lists and return them with the truth; the same seed gives the same log.

    Args:
        judged: the lists; their grades determine the attraction of documents.
        user: the user model. A model such as `CoupledUser` is adapted to the lists first, with the same seed.
        sessions: number of sessions; with frequency "each", number of sessions per query.
        seed: random seed.
        settings: how the log is simulated.
        scores: scores of the documents to rank by instead of training an initial ranker, [documents], or
            [rankers, documents] for several rankers.
        shares: share of the sessions of each query instead of `settings.frequency`, [lists]; the sum is 1.
    """
    settings = settings or SimulationSettings()
    if sessions < 0:
        raise SettingError("sessions", sessions, "not be negative")
    if seed < 0:
        raise SettingError("seed", seed, "not be negative")
    if len(judged) == 0:
        raise DataError("there are no judged lists to simulate clicks on")
    if shares is not None and (shares.shape != (len(judged),) or not abs(float(shares.sum()) - 1) < 1e-6):
        raise DataError(f"shares must be {len(judged)} numbers whose sum is 1")
    user = adapted(user, judged, seed=seed)
    seeds = np.random.SeedSequence(seed).spawn(6)
    offsets, rows = _rankings(judged, settings, scores, seeds[0])
    attractive = attraction(judged, noise=settings.noise, max_grade=settings.max_grade, gain=settings.gain)
    rankers = (len(offsets) - 1) // len(judged)
    treat, choose = (np.random.default_rng(seed) for seed in seeds[3:5])
    click_seed = int(seeds[5].generate_state(1, np.uint64)[0])
    log = _Log(settings.merge)
    start = 0
    for chosen in _choose_rankings(len(judged), rankers, sessions, settings, seeds[1:3], shares=shares):
        entries, ends = slices(offsets, chosen)
        shown_rows = settings.intervention.apply(ends, rows[entries], treat=treat, choose=choose)
        ends, shown_rows = _truncate(ends, shown_rows, settings.length)
        shown = Shown(judged.lists, ends, shown_rows, attractive[shown_rows], start)
        log.add(_click(shown, user, click_seed))
        start += len(chosen)
    simulation = log.result(judged)
    return simulation.with_seen() if settings.seen else simulation


def frequencies(queries: int, *, exponent: float, rng: np.random.Generator) -> Float64:
    """Return the probability of each query under Zipf's law, in proportion to rank^-exponent with random ranks."""
    weights = np.arange(1, queries + 1, dtype=np.float64) ** -exponent
    return rng.permutation(weights / weights.sum())


def _rankings(
    judged: JudgedLists, settings: SimulationSettings, scores: Float64 | None, seed: np.random.SeedSequence
) -> tuple[Int64, Int64]:
    """Return the rankings of all lists by the first ranker, then by the second, and so on: (offsets, rows)."""
    seeds = seed.generate_state(2 * max(settings.rankers, 1 if scores is None else len(np.atleast_2d(scores))))
    if scores is None:
        rankers = [settings.initial.fit(judged, seed=int(seeds[2 * i])) for i in range(settings.rankers)]
        scores = np.stack([ranker(judged.lists.features) for ranker in rankers])
    depth = settings.intervention.required_depth(settings.length)
    parts = [
        rank(judged.lists, row, length=depth, seed=int(seeds[2 * i + 1]))
        for i, row in enumerate(np.atleast_2d(np.asarray(scores, dtype=np.float64)))
    ]
    lengths = np.concatenate([np.diff(ends) for ends, _ in parts])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.concatenate([rows for _, rows in parts])


def _choose_rankings(
    queries: int,
    rankers: int,
    sessions: int,
    settings: SimulationSettings,
    seeds: list[np.random.SeedSequence],
    *,
    shares: Float64 | None,
) -> Iterator[Int64]:
    """Yield the number of the ranking of each session, ranker * queries + query, in chunks."""
    rng, choice = (np.random.default_rng(seed) for seed in seeds)
    each = settings.frequency == "each" and shares is None
    total = sessions * queries if each else sessions
    edges = np.arange(1, queries + 1) / queries
    if shares is not None:
        edges = np.cumsum(shares)
    elif settings.frequency == "zipf":
        edges = np.cumsum(frequencies(queries, exponent=settings.exponent, rng=rng))
    for start in range(0, total, CHUNK):
        size = min(CHUNK, total - start)
        if each:
            query = np.arange(start, start + size, dtype=np.int64) % queries
        else:
            query = np.minimum(np.searchsorted(edges, rng.random(size), side="right"), queries - 1)
        yield query + queries * (choice.random(size) * rankers).astype(np.int64)


def _truncate(offsets: Int64, rows: Int64, length: int) -> tuple[Int64, Int64]:
    """Return the rankings with at most `length` documents each: (offsets, rows)."""
    lengths = np.diff(offsets)
    if lengths.max(initial=0) <= length:
        return offsets, rows
    within = np.arange(len(rows)) - np.repeat(offsets[:-1], lengths)
    return np.concatenate([[0], np.cumsum(np.minimum(lengths, length))]).astype(np.int64), rows[within < length]


def _click(shown: Shown, user: User, seed: int) -> Simulation:
    response = user.click(shown, seed=seed)
    clicks = Clicks(
        shown.lists,
        shown.offsets,
        shown.rows,
        shown.positions.astype(np.int32),
        response.clicks.astype(np.int64),
        np.ones(len(shown), dtype=np.int64),
    )
    return Simulation(clicks, Truth(response.observed.astype(np.int64), response.attracted.astype(np.int64)))


class _Log:
    """Collect chunks, and merge them whenever they have doubled, so that merging is cheap and memory stays low."""

    def __init__(self, merge: Merge) -> None:
        self.merge = merge
        self.parts: list[Simulation] = []
        self.joined = 0

    def add(self, part: Simulation) -> None:
        self.parts.append(self._merged(part))
        if self.merge != "none" and sum(len(part.clicks) for part in self.parts) > 2 * max(self.joined, CHUNK):
            self._join()

    def result(self, judged: JudgedLists) -> Simulation:
        if not self.parts:
            none = np.zeros(0, dtype=np.int64)
            clicks = Clicks(judged.lists, np.zeros(1, dtype=np.int64), none, none.astype(np.int32), none, none)
            return Simulation(clicks, Truth(none, none))
        self._join()
        return self.parts[0]

    def _join(self) -> None:
        if len(self.parts) > 1:
            clicks = concatenate([part.clicks for part in self.parts])
            observed, attracted = (
                np.concatenate([getattr(part.truth, name) for part in self.parts]) for name in ("observed", "attracted")
            )
            self.parts = [self._merged(Simulation(clicks, Truth(observed, attracted)))]
        self.joined = len(self.parts[0].clicks)

    def _merged(self, simulation: Simulation) -> Simulation:
        return simulation if self.merge == "none" else simulation.merge(by=self.merge)


def ideal_clicks(judged: JudgedLists, *, max_grade: int | None = None) -> Clicks:
    """Return the clicks of users who observe everything and click by grade alone, as exact counts. Uses the labels.

    Every list is shown completely, in file order, in 2^ymax - 1 sessions, and a document of grade y is clicked in
    2^y - 1 of them, so that clicks per impression are the gain of nDCG.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> clicks = ideal_clicks(JudgedLists(lists, np.array([0, 2, 1], np.int32)))
    >>> clicks.clicks.tolist(), clicks.impressions.tolist()
    ([0, 3, 1], [3])
    """
    top = highest_grade(judged, max_grade)
    if top > 30:
        raise DataError(f"grade {top} is too high: its gain 2^{top} - 1 is too large", remedy="Use grades up to 30")
    lists = judged.lists
    rows = np.arange(lists.documents, dtype=np.int64)
    return Clicks(
        lists,
        lists.offsets,
        rows,
        (rows - lists.offsets[lists.list_of] + 1).astype(np.int32),
        np.left_shift(np.int64(1), judged.grades.astype(np.int64)) - 1,
        np.full(len(lists), max(2**top - 1, 1), dtype=np.int64),
    )
