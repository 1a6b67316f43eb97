"""Simulate the searches of a raw log: the search engine, who searches for what and when, what is observed and clicked.

People stay far below the limits of the robot filters and robots exceed them by far, so the rows that a filter removes
are known in advance. A person who would exceed a limit continues under a new user id, as after deleting cookies.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, final

import numpy as np
import pyarrow as pa

from clickprism.click_models.trust import TrustUser
from clickprism.click_models.users import Shown, User, attraction
from clickprism.simulation.clicks import frequencies
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Bool, Float32, Float64, Int64, JudgedLists, Lists

GRADE_SHARES: Final = (0.50, 0.27, 0.16, 0.05, 0.02)
FEATURES: Final = 4  # features of a document: its relevance plus noise
MAX_QUERIES: Final = 200_000  # unless the settings ask for more
FIRST_DOCUMENT: Final = 100_000  # the lowest document id
WORDS: Final = (
    *("red", "blue", "green", "black", "small", "large", "cheap", "new", "used"),
    *("best", "summer", "winter", "garden", "kitchen", "office", "travel", "running", "wooden"),
    *("leather", "cotton", "wool", "steel", "glass", "paper", "solar", "electric", "manual"),
    *("folding", "portable", "wireless", "waterproof", "vintage", "modern", "classic", "organic", "shoes"),
    *("shirt", "jacket", "table", "chair", "lamp", "desk", "phone", "camera", "laptop"),
    *("bicycle", "tent", "knife", "bottle", "mug", "watch", "ring", "book", "guide"),
    *("map", "recipe", "ticket", "hotel", "flight", "train", "insurance", "loan", "café"),
    *("crème", "naïve", "smörgåsbord", "東京", "дом"),
)

MINUTE: Final = 60_000_000  # all times are in µs unless their name says ms
DAY: Final = 24 * 60 * MINUTE
LAST_SEARCH: Final = DAY - 2 * MINUTE  # no search is later, so that all pages of a search are shown on the same day
HOURS: Final = (3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 10, 10, 11, 11, 10, 10, 10, 10, 11, 12, 12, 10, 7, 5)  # searches by hour
LIMITS: Final = {"day": 40, "minute": 3, "query": 2}  # searches of one user id: per day, per minute, per query and day
ROBOTS: Final = {
    "fast": (90, MINUTE),
    "crawler": (40, 600 * MINUTE),
    "spammer": (40, 120 * MINUTE),
    "repeat": (50, 90 * MINUTE),
}
"""Kinds of robots, with the number of searches in a burst and its duration. Bursts lie between 2 and 22 o'clock."""
KINDS: Final = tuple(ROBOTS)
AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/131.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/129.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_6 like Mac OS X) Safari/604.1",
    "shop-app/4.2 (Android 14)",
    "Mozilla/5.0 (compatible; IndexBot/2.1; +https://example.org/bot)",  # of crawlers only
)
NEXT_PAGE: Final = 25_000_000  # from one page of results to the next

# Log-normal times in ms: median and standard deviation of the logarithm.
DISPLAY_READ: Final = (9_000.0, 0.7)  # observed documents
DISPLAY_GLANCED: Final = (900.0, 0.6)  # a share of the observed documents
DISPLAY_SCROLLED: Final = (350.0, 0.8)  # documents that are on screen but not observed
DWELL_RELEVANT: Final = (60_000.0, 0.9)
DWELL_IRRELEVANT: Final = (6_000.0, 1.0)
GLANCED: Final = 0.1  # share of the observed documents
OFF_SCREEN: Final = 0.6  # share of the documents that are not observed


@final
@dataclass(frozen=True, eq=False)
class Catalogue:
    """What a search engine finds, and how well its rankers know it.

    Attributes:
        judged: One list per query. A document has the same id in all lists that contain it.
        documents: Number of the document of each row, its id in the log, [rows].
        texts: Text of each query.
        shares: Share of the searches for each query, [queries].
        scores: Scores of each ranker, the first one first, [rankers, rows].
        randomised: Share of the searches for each query whose first document is chosen at random, [queries].
    """

    judged: JudgedLists
    documents: Int64
    texts: list[str]
    shares: Float64
    scores: Float32
    randomised: Float64

    @classmethod
    def random(cls, settings: RawLogSettings) -> Catalogue:
        """Return a catalogue that is determined by the seed."""
        random = np.random.default_rng([settings.seed, 0])
        queries = settings.queries or min(max(20, settings.searches // 6), MAX_QUERIES)
        lengths = random.integers(settings.min_documents, settings.max_documents + 1, queries)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = int(offsets[-1])
        documents = _documents(lengths, catalogue=4 * queries + 8 * settings.max_documents, random=random)
        quality = random.standard_normal(documents.max() + 1, dtype=np.float32)[documents]
        relevance = np.float32(0.5) * quality + random.standard_normal(rows, dtype=np.float32)
        grades = np.searchsorted(np.quantile(relevance, np.cumsum(GRADE_SHARES)[:-1]), relevance).astype(np.int32)
        features = relevance[:, None] + random.standard_normal((rows, FEATURES), dtype=np.float32)
        query_ids = np.char.add("q", np.arange(1, queries + 1).astype(np.str_))
        documents += FIRST_DOCUMENT
        judged = JudgedLists(Lists(features, offsets, query_ids, documents.astype(np.str_)), grades)
        texts = _texts(queries, random)
        shares = frequencies(queries, exponent=settings.exponent, rng=random)
        noise = np.linspace(1.6, 0.8, settings.rankers, dtype=np.float32)[:, None]  # later rankers are better
        scores = relevance + noise * random.standard_normal((settings.rankers, rows), dtype=np.float32)
        return cls(judged, documents, texts, shares, scores, np.full(queries, settings.randomised))


@final
class SearchEngine:
    """A catalogue that is searched: who ranks, and how the clicks of earlier days change the order.

    Attributes:
        settings: Settings of the log.
        catalogue: Queries, documents and rankers; by default random ones.
        attraction: Probability of a click on each document if it is observed, before trust bias, [rows].
        clicks: Number of clicks by people on each row on earlier days, [rows]. The caller updates it.
    """

    def __init__(self, settings: RawLogSettings, catalogue: Catalogue | None = None) -> None:
        max_grade = len(GRADE_SHARES) - 1 if catalogue is None else max(int(catalogue.judged.grades.max()), 1)
        self.settings, self.catalogue = settings, catalogue or Catalogue.random(settings)
        self.attraction: Float32 = attraction(self.catalogue.judged, max_grade=max_grade)
        self.clicks = np.zeros(len(self.catalogue.documents), dtype=np.int64)

    def draw_queries(self, count: int, random: np.random.Generator) -> Int64:
        """Return the numbers of random queries, drawn by their share of searches."""
        return _draw(self.catalogue.shares, count, random)

    def draw_rankers(self, count: int, day: int, random: np.random.Generator) -> Int64:
        """Return the numbers of random rankers, drawn by their share of searches on this day."""
        return _draw(self.ranker_shares(day), count, random)

    def ranker_shares(self, day: int) -> Float64:
        """Return the share of searches that each ranker serves on a day, [rankers].

        >>> SearchEngine(RawLogSettings(searches=100, days=5, rankers=3)).ranker_shares(1).tolist()
        [0.5, 0.5, 0.0]
        """
        last = self.settings.rankers - 1
        current = last * day / max(self.settings.days - 1, 1)
        shares: Float64 = np.maximum(1 - np.abs(np.arange(last + 1) - current), 0.0)
        return shares

    def rank(self, queries: Int64, rankers: Int64) -> tuple[Int64, Int64]:
        """Return the top `length` rows of each search, padded, [searches, length], and their number, [searches]."""
        pairs, pair_of = np.unique(queries * self.settings.rankers + rankers, return_inverse=True)
        query, ranker = np.divmod(pairs, self.settings.rankers)
        offsets = self.catalogue.judged.lists.offsets
        lengths = (offsets[query + 1] - offsets[query])[:, None]
        columns = np.arange(max(self.settings.length, int(lengths.max(initial=1))))
        rows = np.minimum(offsets[query][:, None] + columns, len(self.clicks) - 1)
        scores = self.catalogue.scores[ranker[:, None], rows] + self.settings.feedback * np.log1p(self.clicks[rows])
        order = np.argsort(np.where(columns < lengths, -scores, np.inf), axis=1, kind="stable")
        ranked = np.take_along_axis(rows, order[:, : self.settings.length], axis=1)
        return ranked[pair_of], np.minimum(lengths[:, 0], ranked.shape[1])[pair_of]


def _draw(shares: Float64, count: int, random: np.random.Generator) -> Int64:
    return np.searchsorted(np.cumsum(shares), random.random(count)).clip(max=len(shares) - 1)


def _documents(lengths: Int64, *, catalogue: int, random: np.random.Generator) -> Int64:
    """Return a document of the catalogue for each row: each list is a random walk upwards, so none repeats."""
    steps = np.cumsum(random.integers(1, 5, int(lengths.sum())))
    first_rows = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    start = random.integers(0, catalogue, len(lengths)) - steps[first_rows]
    return np.asarray((steps + np.repeat(start, lengths)) % catalogue, dtype=np.int64)


def _texts(queries: int, random: np.random.Generator) -> list[str]:
    """Return a different text for each query. Some texts contain a comma or quotes, to test readers of CSV.

    A text has one to four words, and more if another query has the same text.
    """
    drawn = random.integers(0, len(WORDS), (queries, 4))
    counts = random.choice([1, 2, 2, 3, 3, 4], queries)
    punctuation = random.random(queries)
    texts = [" ".join(WORDS[word] for word in row[:count]) for row, count in zip(drawn.tolist(), counts, strict=True)]
    for i in np.flatnonzero(punctuation < 0.02).tolist():
        texts[i] = f'"{texts[i]}"' if punctuation[i] < 0.01 else f"{texts[i]}, {WORDS[drawn[i, 0]]}"
    known: set[str] = set()
    more = random.spawn(1)[0]  # so that the other draws do not depend on it
    for i in range(queries):
        while texts[i] in known:
            texts[i] += f" {WORDS[more.integers(len(WORDS))]}"
        known.add(texts[i])
    return texts


@final
@dataclass(frozen=True, eq=False)
class Searches:
    """The searches of a day in the order of time; every field has one entry per search.

    Attributes:
        time: Time since midnight.
        query: Number of the query.
        ranker: Number of the ranker.
        user: Number of the user, 0 if unknown.
        robot: Index of the kind of robot in `KINDS`, -1 for people.
        burst: Number of the robot's burst, 0 for people.
    """

    time: Int64
    query: Int64
    ranker: Int64
    user: Int64
    robot: Int64
    burst: Int64

    def __len__(self) -> int:
        return len(self.time)

    def take(self, chosen: slice | Int64) -> Searches:
        """Return some of the searches, in this order."""
        return Searches(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


@final
class Visitors:
    """The people and robots that use a search engine."""

    def __init__(self, engine: SearchEngine) -> None:
        self.engine, settings = engine, engine.settings
        random = np.random.default_rng([settings.seed, 1])
        self.people = settings.people or max(50, settings.searches // 10)
        activity = 1 / (np.arange(self.people) + 10.0)
        self._cumulative_activity = np.cumsum(random.permutation(activity / activity.sum()))
        weekly = 1 + 0.2 * np.sin(2 * np.pi * np.arange(settings.days) / 7)
        self.searches_per_day = random.multinomial(settings.searches, weekly / weekly.sum())
        per_kind = settings.robots * settings.searches / len(KINDS)
        bursts = [int(np.ceil(per_kind / size)) for size, _ in ROBOTS.values()]
        self._burst_kinds = np.repeat(np.arange(len(KINDS)), bursts)
        self._burst_days = random.integers(0, settings.days, sum(bursts))

    def searches(self, day: int) -> Searches:
        """Return all searches of a day."""
        random = np.random.default_rng([self.engine.settings.seed, 2, day])
        parts = [self._people(day, random)]
        parts += [self._burst(int(burst), day, random) for burst in np.flatnonzero(self._burst_days == day)]
        names = [field.name for field in fields(Searches)]
        joined = Searches(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
        return joined.take(np.argsort(joined.time, kind="stable"))

    def _people(self, day: int, random: np.random.Generator) -> Searches:
        count = int(self.searches_per_day[day])
        hour = random.choice(len(HOURS), count, p=np.array(HOURS) / sum(HOURS))
        time = np.minimum((hour * 60 + random.random(count) * 60) * MINUTE, LAST_SEARCH).astype(np.int64)
        user = np.searchsorted(self._cumulative_activity, random.random(count), side="right")
        user = np.minimum(user, self.people - 1) + 1
        query = self.engine.draw_queries(count, random)
        groups = {"day": user, "minute": user * (DAY // MINUTE) + time // MINUTE, "query": user * 2**32 + query}
        over_limit = np.any([_earlier_count(group) >= LIMITS[name] for name, group in groups.items()], axis=0)
        first_new_user = 10 * self.people + len(self._burst_kinds) + int(self.searches_per_day[:day].sum())
        user = np.where(over_limit, first_new_user + np.arange(count), user)
        user[random.random(count) < 0.02] = 0
        ranker = self.engine.draw_rankers(count, day, random)
        zero = np.zeros(count, dtype=np.int64)
        return Searches(time // 1000 * 1000, query, ranker, user, zero - 1, zero)

    def _burst(self, burst: int, day: int, random: np.random.Generator) -> Searches:
        kind = int(self._burst_kinds[burst])
        size, duration = ROBOTS[KINDS[kind]]
        start = random.integers(2 * 60 * MINUTE, 22 * 60 * MINUTE - duration) // MINUTE * MINUTE
        time = np.sort(start + random.integers(0, duration, size)) // 1000 * 1000
        query = self.engine.draw_queries(size, random)
        ranker = self.engine.draw_rankers(size, day, random)
        if KINDS[kind] == "repeat":
            query[:], ranker[:] = query[0], ranker[0]
        ones = np.ones(size, dtype=np.int64)
        return Searches(time, query, ranker, ones * (2 * self.people + burst), ones * kind, ones * burst)


def _earlier_count(values: Int64) -> Int64:
    """Return how many earlier entries have the same value as each entry.

    >>> _earlier_count(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(values, kind="stable")
    _, starts, counts = np.unique(values[order], return_index=True, return_counts=True)
    result = np.empty(len(values), dtype=np.int64)
    result[order] = np.arange(len(values)) - np.repeat(starts, counts)
    return result


def impressions_of(searches: Searches, engine: SearchEngine, user: User, *, day: int, first: int) -> pa.Table:
    """Let the users of some searches look and click; return a row for each shown document, with the truth.

    Args:
        searches: some searches of one day.
        engine: the search engine.
        user: the user model of people.
        day: the number of the day, from 0.
        first: the number of the first search.
    """
    settings, catalogue = engine.settings, engine.catalogue
    random = np.random.default_rng([settings.seed, 3, first])
    ranked, lengths = engine.rank(searches.query, searches.ranker)
    person = searches.robot < 0
    randomised = person & (random.random(len(searches)) < catalogue.randomised[searches.query])
    column = np.floor(random.random(len(searches)) * lengths).astype(np.int64)[randomised]
    ranked[randomised, 0], ranked[randomised, column] = ranked[randomised, column], ranked[randomised, 0]
    lengths = np.where(person, lengths, np.minimum(lengths, settings.page))
    rows = ranked[np.arange(ranked.shape[1]) < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    relevance = engine.attraction[rows]
    positions = np.arange(1, len(rows) + 1) - np.repeat(offsets[:-1], lengths)
    shown = Shown(catalogue.judged.lists, offsets, rows, _trusted(relevance, positions, settings.trust), first)
    response = user.click(shown, seed=settings.seed)

    search, by_person = shown.session_of, person[shown.session_of]
    observed, clicked = response.observed & by_person, response.clicks & by_person
    page = (positions - 1) // settings.page
    last_page = np.zeros(len(searches), dtype=np.int64)
    np.maximum.at(last_page, search, np.where(observed, page, 0))
    page_key = search * (-(-settings.length // settings.page)) + page
    page_clicks = np.bincount(page_key, weights=clicked)[page_key]
    clicked |= _robot_clicks(searches, search, positions)
    display, dwell = display_ms(observed, random), _dwell_ms(relevance, random)
    display = np.where(by_person, display, random.integers(20, 200, len(rows)))
    dwell = np.where(by_person, dwell, random.integers(50, 500, len(rows)))

    crawler = searches.robot == KINDS.index("crawler")
    without_display = (_user_fraction(searches.user, 7) < settings.without_display) | crawler
    with_id = _user_fraction(searches.user, 11) >= settings.without_id
    agent = np.where(crawler, len(AGENTS) - 1, searches.user % (len(AGENTS) - 1))
    rankers = pa.array([f"v{version + 1}" for version in range(settings.rankers)])
    robot = searches.robot[search]
    searched = settings.midnight(day) + searches.time[search]
    columns = {
        "search": search + first,
        "query": searches.query[search] + 1,
        "text": pa.array(catalogue.texts).take(pa.array(searches.query[search])),
        "document": catalogue.documents[rows],
        "position": positions.astype(np.int32),
        "time": pa.array(searched + page * NEXT_PAGE).cast(pa.timestamp("us")),
        "searched": pa.array(searched).cast(pa.timestamp("us")),
        "click": clicked,
        "click_ms": (2_000 + 3_000 * positions + random.integers(0, 2_000, len(rows))).astype(np.int64),
        "display_ms": pa.array(display, mask=without_display[search]),
        "dwell_ms": pa.array(dwell, mask=~clicked),
        "page_skipped": (page < last_page[search]) & (page_clicks == 0),
        "user": pa.array(searches.user[search], mask=searches.user[search] == 0),
        "agent": pa.array(AGENTS).take(pa.array(agent[search])),
        "ranker": rankers.take(pa.array(searches.ranker[search])),
        "randomised": randomised[search] & (positions == 1),
        "with_id": with_id[search],
        "observed": observed,
        "attracted": response.attracted & by_person,
        "relevance": relevance.astype(np.float64),
        "grade": catalogue.judged.grades[rows],
        "robot": pa.array(KINDS).take(pa.array(robot, mask=robot < 0)),
        "row": rows,
    }
    if settings.features:
        values = np.round(catalogue.judged.lists.features[rows].astype(np.float64), 3)
        names = [f"view_{column + 1}" for column in range(FEATURES)]
        columns["features"] = pa.StructArray.from_arrays([pa.array(column) for column in values.T], names)
    return pa.table(columns).filter(pa.array(page <= last_page[search]))


def _trusted(relevance: Float32, positions: Int64, trust: float) -> Float32:
    """Return the probability of a click on each observed document: a mixture of relevance and `TrustUser`'s."""
    plus, minus = TrustUser().trust(positions)
    mixture = (1 - trust) * relevance + trust * (plus * relevance + minus * (1 - relevance))
    return np.clip(mixture, 0, 1).astype(np.float32)


def _robot_clicks(searches: Searches, search: Int64, positions: Int64) -> Bool:
    """Return the clicks of robots: fast ones on positions 1 and 2, spammers on all, repeaters on the same one."""
    kind, burst = searches.robot[search], searches.burst[search]
    fast = (kind == KINDS.index("fast")) & (positions <= 2)
    repeat = (kind == KINDS.index("repeat")) & (positions == 1 + burst % 3)
    return np.asarray(fast | repeat | (kind == KINDS.index("spammer")))


def display_ms(observed: Bool, random: np.random.Generator) -> Int64:
    """Return the time on screen of each document: long if it is observed, short otherwise, with some overlap."""
    chance, normal = random.random(len(observed)), random.standard_normal(len(observed))
    if_observed = np.where(chance < GLANCED, _lognormal(DISPLAY_GLANCED, normal), _lognormal(DISPLAY_READ, normal))
    otherwise = np.where(chance < OFF_SCREEN, 0.0, _lognormal(DISPLAY_SCROLLED, normal))
    return np.where(observed, if_observed, otherwise).astype(np.int64)


def _dwell_ms(relevance: Float32, random: np.random.Generator) -> Int64:
    """Return the time on each document after a click: long with the probability of its relevance."""
    chance, normal = random.random(len(relevance)), random.standard_normal(len(relevance))
    times = np.where(chance < relevance, _lognormal(DWELL_RELEVANT, normal), _lognormal(DWELL_IRRELEVANT, normal))
    return times.astype(np.int64)


def _lognormal(shape: tuple[float, float], normal: Float64) -> Float64:
    median, deviation = shape
    return np.asarray(median * np.exp(deviation * normal))


def _user_fraction(users: Int64, salt: int) -> Float64:
    """Return a fixed pseudo-random number from 0 to 1 for each user, so that a property of a user never changes."""
    mixed = (users.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
