"""The raw log of the demo: a small search engine, users with several biases at once, and the truth.

The engine has many candidates for a query and shows the best ten by its own score, which also knows a part of relevance
that no feature shows. Most queries are rare. The result d at position k is observed with probability

    o_k(d) = k^(-s max(1 + w.x_d - a pop_d, .05))

where x_d are its features (document-dependent observation) and pop_d is the share of results that had fewer clicks on
earlier days (popularity). An observed result is clicked with a probability that depends on its relevance only.

The model of a log has this form. A second kind of users has another one (`_browse`), to see what happens then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import expit

from clickprism.click_models.popularity import percentiles
from clickprism.simulation.raw_searches import display_ms
from clickprism.simulation.raw_settings import DemoSettings
from clickprism.types import Bool, Float32, Float64, Int64, JudgedLists, Lists

START: Final = np.datetime64("2026-01-05", "ms")
SHOWN: Final = 10
GRADES: Final = (0.8, 1.4, 1.9, 2.4)  # utility from which a document has grade 1, 2, 3, 4
UNEXPLAINED: Final = 0.5  # standard deviation of the relevance that no feature explains; the explained part has 1
SEVERITY: Final = 0.8  # s
COUPLED: Final = 3  # number of features on which observation depends
COUPLING: Final = 0.35  # their weights w, with a random sign
POPULARITY: Final = 0.5  # a
ZIPF: Final = 0.7  # the query of rank r is asked in proportion to r^-ZIPF
QUALITY: Final = 0.7  # correlation of the engine's score with relevance
NOISE: Final = 0.4  # standard deviation of the noise in the engine's score, new each day; the score has 1
RANDOMISED: Final = 0.05  # share of the searches whose first result is drawn from the ten
USERS: Final = 2_000
FEATURES: Final = (  # in alphabetical order, as an ingested log has them
    *("age", "brand_match", "category_match", "delivery", "discount", "picture", "price", "rating", "reviews"),
    *("stock", "text_match", "title_match"),
)


@final
@dataclass(frozen=True, eq=False)
class DemoLog:
    """The truth about the raw log.

    Attributes:
        train: All candidates of the queries of the log, with grades.
        test: All candidates of other queries.
        engine: The engine's score of the documents of `test`, without the noise of a day, [documents].
        observation: Observation by position of the average shown document while it has no clicks, [positions].
        coupling: Standard deviation of w.x over the shown documents.
        searches: Number of searches for each query of the log, [queries].
        clicks: Number of clicks.
    """

    train: JudgedLists
    test: JudgedLists
    engine: Float64
    observation: Float64
    coupling: float
    searches: Int64
    clicks: int


def write_demo_log(folder: Path, settings: DemoSettings, *, browsing: bool = False) -> DemoLog:
    """Simulate the log and write one Parquet file for each day, with a row for each result that was shown.

    Args:
        folder: Folder for the files.
        settings: Size of the log, and the seed.
        browsing: Whether users browse as `_browse` says, instead of the form above; the truth about observation and
            coupling is then not that of these users.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     log = write_demo_log(Path(scratch), DemoSettings(searches=100, queries=20, days=2))
    ...     len(list(Path(scratch).iterdir())), int(log.searches.sum()), len(log.observation)
    (2, 100, 10)
    """
    rng = np.random.default_rng([settings.seed, 21])
    queries, each = settings.queries, settings.candidates
    size, cut = (queries + settings.test_queries) * each, queries * each
    features = rng.standard_normal((size, len(FEATURES)), dtype=np.float32)
    weights, other = rng.normal(size=(2, len(FEATURES)))
    other -= weights * (other @ weights) / (weights @ weights)  # a direction without relevance, which the engine uses
    explained, irrelevant = (features @ direction / np.linalg.norm(direction) for direction in (weights, other))
    utility = explained + rng.normal(0, UNEXPLAINED, size)
    engine = QUALITY * utility / utility.std() + np.sqrt(1 - QUALITY**2) * irrelevant
    grades = np.digitize(utility, GRADES).astype(np.int32)
    train, test = (
        JudgedLists(_lists(features[part], each, prefix), grades[part])
        for part, prefix in ((slice(0, cut), "q"), (slice(cut, size), "test-"))
    )
    coupled = np.zeros(len(FEATURES))
    coupled[rng.permutation(len(FEATURES))[:COUPLED]] = rng.choice([-COUPLING, COUPLING], COUPLED)
    steepness, attraction = 1 + features[:cut] @ coupled, expit(1.6 * utility[:cut] - 2.6)
    shares = np.arange(1, queries + 1) ** -ZIPF
    query_of = rng.choice(queries, settings.searches, p=shares / shares.sum())
    day_of = np.sort(rng.integers(0, settings.days, settings.searches))
    position, past, shown = np.arange(1.0, SHOWN + 1), np.zeros(cut), np.zeros(cut, dtype=np.bool_)
    for day in range(settings.days):
        today = np.flatnonzero(day_of == day)
        score = (engine[:cut] + NOISE * rng.normal(size=cut)).reshape(queries, each)
        best = np.argsort(-score, axis=1)[:, :SHOWN] + each * np.arange(queries)[:, None]
        rows, randomised = _randomised(best[query_of[today]], rng)
        exponent = np.maximum(steepness - POPULARITY * percentiles(past), 0.05)
        observed = rng.random(rows.shape) < position ** (-SEVERITY * exponent[rows])
        attracted = rng.random(rows.shape) < attraction[rows]
        if browsing:
            observed = _browse(attracted, rng)
        clicked = observed & attracted
        past += np.bincount(rows[clicked], minlength=cut)
        shown[rows] = True
        events = _events(train.lists, today, rows, (clicked, observed, randomised), day=day, rng=rng)
        pq.write_table(events, folder / f"{START.astype('datetime64[D]') + day}.parquet")
    observation = position ** (-SEVERITY * steepness[shown].mean())
    coupling = float(steepness[shown].std())
    searches = np.bincount(query_of, minlength=queries)
    return DemoLog(train, test, engine[cut:], observation, coupling, searches, int(past.sum()))


def _browse(attracted: Bool, rng: np.random.Generator) -> Bool:
    """Return what users observe if they read from the top: half stop after a click, the others after three results.

    Before that, each result is the last one with probability .05.
    """
    observed, looking = np.zeros_like(attracted), np.ones(len(attracted), dtype=np.bool_)
    brief = rng.random(len(attracted)) < 0.5
    for place in range(attracted.shape[1]):
        observed[:, place] = looking
        stops = np.where(brief, place == 2, attracted[:, place]) | (rng.random(len(attracted)) < 0.05)
        looking &= ~stops
    return observed


def _randomised(rows: Int64, rng: np.random.Generator) -> tuple[Int64, Bool]:
    """Swap the first result with a random one in some searches; return the results, and which are randomised."""
    rows, chosen = rows.copy(), np.flatnonzero(rng.random(len(rows)) < RANDOMISED)
    other = rng.integers(0, SHOWN, len(chosen))
    rows[chosen, 0], rows[chosen, other] = rows[chosen, other], rows[chosen, 0]
    randomised = np.zeros(rows.shape, dtype=np.bool_)
    randomised[chosen, 0] = True
    return rows, randomised


def _events(
    lists: Lists, searches: Int64, rows: Int64, flags: tuple[Bool, Bool, Bool], *, day: int, rng: np.random.Generator
) -> pa.Table:
    """Return the events of a day; the flags say which results are clicked, observed and randomised."""
    clicked, observed, randomised = (flag.reshape(-1) for flag in flags)
    search, document = np.repeat(searches, SHOWN), rows.reshape(-1)
    position = np.tile(np.arange(1, SHOWN + 1, dtype=np.int32), len(rows))
    passed = np.sort(rng.integers(0, 86_000_000, len(rows))).astype("timedelta64[ms]")
    user = rng.integers(0, USERS, len(rows))
    names = np.asarray(lists.document_ids)
    values = [pa.array(column) for column in np.round(lists.features[document].astype(np.float64), 3).T]
    return pa.table(
        {
            "event_id": np.char.add(np.char.add(search.astype(np.str_), "-"), position.astype(np.str_)),
            "time": np.repeat(START + np.timedelta64(day, "D") + passed, SHOWN),
            "search_id": np.char.add("s", search.astype(np.str_)),
            "query_id": lists.query_ids[lists.list_of[document]],
            "document_id": names[document],
            "position": position,
            "click": clicked,
            "display_ms": display_ms(observed, rng),
            "user_id": np.repeat(np.char.add("u", user.astype(np.str_)), SHOWN),
            "randomised": randomised,
            "features": pa.StructArray.from_arrays(values, list(FEATURES)),
        }
    )


def _lists(features: Float32, candidates: int, prefix: str) -> Lists:
    queries = len(features) // candidates
    names = [f"{prefix}{query}" for query in range(1, queries + 1)]
    ids = [f"{name}-d{document}" for name in names for document in range(1, candidates + 1)]
    return Lists(features, np.arange(queries + 1, dtype=np.int64) * candidates, np.array(names), np.array(ids))
