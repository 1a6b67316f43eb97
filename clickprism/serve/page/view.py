"""What the page shows: a chart, the diagnosis of the log, and the three rankings of one query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple, final

import msgspec
import numpy as np

from clickprism._util.files import read_json
from clickprism.errors import ClickprismError, DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.examples import Example, Examples
from clickprism.serve.http.ranking import order
from clickprism.types import Float64

CHART: Final = {"width": 320, "height": 150, "left": 34, "right": 8, "top": 8, "bottom": 24}
"""Size and margins of the chart of the observation curve, in units of its drawing."""
FILE: Final = "diagnosis.json"
LARGEST: Final = 1 << 20
NONE: Final = "No diagnosis. Start the service with --log DIR, a log that `clickprism diagnose` was run on."
SCANNED: Final = 1000
"""Number of queries among which those are found whose ranking changed most."""


def curve_points(values: Sequence[float], *, top: float = 1.0) -> list[tuple[float, float, float]]:
    """Return where the value of each position is in the chart, and the value; the axis goes from 0 to `top`.

    >>> curve_points([1.0, 0.5])
    [(34.0, 8.0, 1.0), (312.0, 67.0, 0.5)]
    """
    last = max(len(values) - 1, 1)
    across = CHART["width"] - CHART["left"] - CHART["right"]
    down = CHART["height"] - CHART["top"] - CHART["bottom"]
    return [
        (CHART["left"] + across * place / last, CHART["top"] + down * (1 - value / top), value)
        for place, value in enumerate(values)
    ]


class Finding(msgspec.Struct, frozen=True):
    """One finding of `clickprism diagnose`; `word` is the verdict as readers see it."""

    name: str
    verdict: str
    advice: str = ""
    sentence: str = ""
    title: str = ""
    word: str = ""


class Curve(msgspec.Struct, frozen=True):
    """How often each position is observed, relative to position 1, with an interval."""

    values: list[float]
    lower: list[float] = []
    upper: list[float] = []


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings, the position curve, and when they were made."""

    findings: list[Finding]
    as_of: str | None = None
    curve: Curve | None = None


def read_diagnosis(log: Path | None, bundle: Bundle | None = None) -> tuple[Diagnosis | None, str]:
    """Return the diagnosis of the log, else that of the bundle; or None and a sentence that says why there is none.

    >>> read_diagnosis(None)
    (None, 'No diagnosis. Start the service with --log DIR, a log that `clickprism diagnose` was run on.')
    """
    try:
        if log is not None and (log / FILE).is_file():
            if (log / FILE).stat().st_size > LARGEST:
                return None, f"{FILE} of the log is too large to be a diagnosis."
            return msgspec.json.decode((log / FILE).read_bytes(), type=Diagnosis), ""
        if bundle is not None and FILE in bundle.manifest.files:
            return msgspec.json.decode(bundle.read(FILE), type=Diagnosis), ""
    except (OSError, msgspec.DecodeError, DataError) as error:
        return None, f"{FILE} cannot be read ({error})."
    return None, NONE if log is None else "The log has no diagnosis yet. Run: clickprism diagnose LOG"


def read_project(folder: Path | None) -> list[tuple[str, str]]:
    """Return the record of the last run of a project; empty without a project, or if the record cannot be read."""
    if folder is None:
        return []
    try:
        status = read_json(max(folder.glob("runs/*/record.json")))["status"]
        searches, clicks, attention = int(status["searches"]), int(status["clicks"]), status["attention"]
        return [
            ("last run", str(status["last_run"])),
            ("log", f"{searches:,} searches, {clicks:,} clicks"),
            ("training", str(status["decision"])),
            *([("newer ranker", str(status["shadow_reason"]))] if status["shadow"] else []),
            ("needs attention", " ".join(map(str, attention)) or "nothing"),
        ]
    except (ClickprismError, KeyError, TypeError, ValueError):
        return []


class Bar(NamedTuple):
    """A number with a bar: `width` in hundredths of the longest, `text` for people."""

    width: float
    text: str


@final
@dataclass(frozen=True)
class Row:
    """A document in the three rankings."""

    key: int  # Its place in the log, from 0, which connects its marks on the page
    name: str
    id: str
    logged: int
    naive: int | None  # Rank by a ranker on raw clicks, re-ranked as deep; None without one
    debiased: int  # Rank by the ranker that is served
    score: Bar  # Score of the served ranker, from the lowest of the query to the highest
    relevance: Bar  # Click rate divided by the observation, which estimates the click rate at position 1
    naive_score: Bar
    observation: Bar  # How often its positions are observed, relative to position 1
    click_rate: Bar
    impressions: Bar

    @property
    def moved(self) -> int:
        """Number of places that it rose from the log to the served ranking; below 0 if it fell."""
        return self.logged - self.debiased

    @property
    def naive_moved(self) -> int:
        """The same of the naive ranking."""
        return 0 if self.naive is None else self.logged - self.naive


@final
@dataclass(frozen=True)
class View:
    """One query: its rows as logged, the two other orders, and what to notice."""

    query: Example
    rows: list[Row]
    naive: list[Row]
    debiased: list[Row]
    notices: list[str]


def view_of(query: Example, *, rerank_depth: int | None = None) -> View:
    """Return the rankings of a query; of the documents in the order of the log, the first few may be re-ranked."""
    documents = query.documents
    shown, clicks, observation, debiased, naive = (
        np.array([getattr(each, name) or 0.0 for each in documents], np.float64)
        for name in ("impressions", "clicks", "observation", "debiased", "naive")
    )
    rates = _ratio(clicks, shown)
    relevance = _ratio(rates, observation)
    naive_ranks: list[int | None] = [None] * len(documents)
    if all(each.naive is not None for each in documents):
        naive_ranks = list(_ranks(naive, rerank_depth))
    bars = zip(
        _bars(_scaled(debiased), map("{:.2f}".format, _scaled(debiased))),
        _bars(relevance, map("{:.1%}".format, relevance), longest=min(1.0, relevance.max(initial=0.0))),
        _bars(_scaled(naive), map("{:.2f}".format, _scaled(naive))),
        _bars(observation, map("{:.1%}".format, observation)),
        _bars(rates, map("{:.1%}".format, rates), longest=rates.max(initial=0.0)),
        _bars(shown, map("{:,.0f}".format, shown), longest=shown.max(initial=0.0)),
        strict=True,
    )
    ranks = zip(naive_ranks, _ranks(debiased, rerank_depth), strict=True)
    rows = [
        Row(place, each.title or each.id, each.id, place + 1, *both, *own)
        for place, (each, both, own) in enumerate(zip(documents, ranks, bars, strict=True))
    ]
    if not rows:
        return View(query, [], [], [], ["The log has no document of this query."])
    up, down = max(rows, key=lambda row: row.moved), min(rows, key=lambda row: row.moved)
    moves = [(row, way) for row, way in ((up, "up"), (down, "down")) if row.moved * (1 if way == "up" else -1) > 0]
    notices = [
        f"{row.name} moves {way} from position {row.logged} to {row.debiased}. "
        + _evidence(round(shown[row.key]), round(clicks[row.key]), observation[row.key])
        for row, way in moves
    ]
    by_naive = sorted(rows, key=lambda row: row.naive or 0) if rows[0].naive is not None else []
    by_score = sorted(rows, key=lambda row: row.debiased)
    return View(query, rows, by_naive, by_score, notices or ["The served ranking is that of the log."])


def find(examples: Examples, wanted: str) -> Example | None:
    """Return the query of this text or id, whatever its case; else the only one that begins so.

    >>> known = Examples([Example("1", [], text="Red shoes"), Example("2", [], text="blue shoes")])
    >>> find(known, "red SHOES ").id, find(known, "blu").id, find(known, "green")
    ('1', '2', None)
    """
    text = wanted.strip().casefold()
    if not text:
        return None
    names = [(query, {query.id.casefold(), query.name.casefold()}) for query in examples.queries]
    same = [query for query, known in names if text in known]
    begun = [query for query, known in names if any(name.startswith(text) for name in known)]
    return same[0] if same else begun[0] if len(begun) == 1 else None


def suggestions(examples: Examples, wanted: str = "", *, most: int = 6) -> list[Example]:
    """Return queries with a similar text, the most similar first; without one, those shown most often."""
    text = wanted.strip().casefold()[:200]
    by_name = {query.name.casefold(): query for query in reversed(examples.queries)}
    within = [query for query in examples.queries if text and text in query.name.casefold()]
    close = [by_name[name] for name in get_close_matches(text, by_name, n=most, cutoff=0.4)] if text else []
    found = {query.id: query for query in [*within, *close, *(() if within or close else examples.queries)]}
    return list(found.values())[:most]


def most_changed(examples: Examples, *, most: int, rerank_depth: int | None = None) -> list[tuple[Example, int]]:
    """Return the queries whose served ranking differs most from the log, each with the number of changed ranks."""
    counts = []
    for query in examples.queries[:SCANNED]:
        ranks = _ranks(np.array([each.debiased for each in query.documents]), rerank_depth)
        counts.append((query, sum(rank != place for place, rank in enumerate(ranks, start=1))))
    return sorted((each for each in counts if each[1]), key=lambda each: -each[1])[:most]


def _ranks(scores: Float64, depth: int | None) -> list[int]:
    """Return the rank of each document, from 1."""
    ranks: list[int] = (np.argsort(order(scores, depth)) + 1).tolist()
    return ranks


def _ratio(part: Float64, whole: Float64) -> Float64:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _scaled(scores: Float64) -> Float64:
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    return (scores - low) / (high - low) if high > low else np.full(len(scores), 0.5)


def _bars(values: Float64, texts: Iterable[str], *, longest: float = 1.0) -> list[Bar]:
    widths = np.minimum(values / longest, 1.0) if longest else np.zeros(len(values))
    return [Bar(100 * width, text) for width, text in zip(widths.tolist(), texts, strict=True)]


def _evidence(shown: int, clicks: int, observation: float) -> str:
    """Return a sentence on the clicks and impressions of a document in the log.

    >>> _evidence(100, 2, 0.25)
    'It was clicked in 2 of 100 impressions, at positions observed 25% as often as position 1: relevance 8.0%.'
    >>> _evidence(1, 0, 0.31)
    'It was not clicked in 1 impression: the ranker places it by its features.'
    """
    where = f"{shown:,} impression{'' if shown == 1 else 's'}"
    if clicks == 0 or observation <= 0 or not shown:
        return f"It was not clicked in {where}: the ranker places it by its features."
    observed = f"at positions observed {observation:.0%} as often as position 1"
    return f"It was clicked in {clicks:,} of {where}, {observed}: relevance {clicks / shown / observation:.1%}."
