"""What the page shows: a chart, the diagnosis of the log, and the three rankings of one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, final

import msgspec

from clickprism.errors import DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.examples import Example, Examples, Shown

CHART: Final = {"width": 320, "height": 150, "left": 34, "right": 8, "top": 8, "bottom": 24}
"""Size and margins of the chart of the observation curve, in units of its drawing."""


def curve_points(values: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return where the value of each position is in the chart, and the value; the axis starts at 0.

    >>> curve_points([1.0, 0.5])
    [(34.0, 8.0, 1.0), (312.0, 67.0, 0.5)]
    """
    top, last = max(1.0, *values), max(len(values) - 1, 1)
    across = CHART["width"] - CHART["left"] - CHART["right"]
    down = CHART["height"] - CHART["top"] - CHART["bottom"]
    return [
        (CHART["left"] + across * place / last, CHART["top"] + down * (1 - value / top), value)
        for place, value in enumerate(values)
    ]


FILE: Final = "diagnosis.json"
LARGEST: Final = 1 << 20
NONE: Final = "No diagnosis. Start the service with --log DIR, a log that `clickprism diagnose` was run on."


class Finding(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        name: Name of the finding, such as "position".
        verdict: "present", "absent" or "inconclusive".
        advice: What to do.
        sentence: The finding in words.
        title: Heading of the finding.
        word: The verdict as readers see it.
    """

    name: str
    verdict: str
    advice: str = ""
    sentence: str = ""
    title: str = ""
    word: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings, and when they were made."""

    findings: list[Finding]
    as_of: str | None = None


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


SUGGESTED: Final = 6
SCANNED: Final = 1000
WIDTH: Final = 100


@final
@dataclass(frozen=True)
class Bar:
    """A number with a bar: `width` in hundredths of the longest, `text` for people."""

    width: float
    text: str


@final
@dataclass(frozen=True)
class Row:
    """A document in the three rankings.

    Attributes:
        key: its place among the logged, from 0, which ties its marks together on the page.
        name: its title, or its id.
        id: of the document.
        logged: its rank in the log, from 1.
        naive: its rank by a ranker that took clicks for relevance, re-ranked as deep; None without one.
        debiased: its rank by the ranker that is served.
        score: the served ranker's score, from the lowest of the query to the highest.
        relevance: the click rate divided by the observation, which estimates the click rate at position 1.
        naive_score: the same of the naive ranker.
        observation: how often its positions are observed, relative to position 1.
        click_rate: clicks by impression.
        impressions: how often it was shown.
    """

    key: int
    name: str
    id: str
    logged: int
    naive: int | None
    debiased: int
    score: Bar
    relevance: Bar
    naive_score: Bar
    observation: Bar
    click_rate: Bar
    impressions: Bar

    @property
    def moved(self) -> int:
        """How many places it rose from the log to the served ranking; below 0 where it fell."""
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
    rows: tuple[Row, ...]
    naive: tuple[Row, ...]
    debiased: tuple[Row, ...]
    notices: tuple[str, ...]


def view_of(
    query: Example, live: Mapping[str, tuple[int, int]] | None = None, *, rerank_depth: int | None = None
) -> View:
    """Lay out a query.

    Args:
        query: of the examples.
        live: impressions and clicks by document id, where the online store has them: they are shown instead.
        rerank_depth: number of documents that the service re-ranks, from the first of the log; None for all.
    """
    documents = query.documents
    counts = [(live or {}).get(each.id, (each.impressions, each.clicks)) for each in documents]
    rates = [clicks / shown if shown else 0.0 for shown, clicks in counts]
    ranks = _ranks([each.debiased for each in documents], rerank_depth)
    with_naive = bool(documents) and all(each.naive is not None for each in documents)
    naive = _ranks([each.naive or 0.0 for each in documents], rerank_depth) if with_naive else None
    served = _scaled([each.debiased for each in documents])
    estimates = [
        rate / each.observation if each.observation else 0.0 for rate, each in zip(rates, documents, strict=True)
    ]
    top = min(1.0, max(estimates, default=0.0))
    scores = _scaled([each.naive or 0.0 for each in documents])
    top_rate, top_shown = max(rates, default=0.0), max((shown for shown, _ in counts), default=0)
    rows = tuple(
        Row(
            key=place,
            name=each.title or each.id,
            id=each.id,
            logged=place + 1,
            naive=None if naive is None else naive[place],
            debiased=ranks[place],
            score=Bar(served[place] * WIDTH, f"{served[place]:.2f}"),
            relevance=Bar(_part(min(estimates[place], 1.0), top), _share(estimates[place])),
            naive_score=Bar(scores[place] * WIDTH, f"{scores[place]:.2f}"),
            observation=Bar(min(each.observation, 1.0) * WIDTH, f"{100 * each.observation:.1f} %"),
            click_rate=Bar(_part(rates[place], top_rate), f"{100 * rates[place]:.1f} %"),
            impressions=Bar(_part(counts[place][0], top_shown), f"{counts[place][0]:,}"),
        )
        for place, each in enumerate(documents)
    )
    return View(
        query,
        rows,
        tuple(sorted(rows, key=lambda row: row.naive or 0)) if with_naive else (),
        tuple(sorted(rows, key=lambda row: row.debiased)),
        _notices(rows, documents, counts),
    )


def find(examples: Examples, wanted: str) -> Example | None:
    """The query of this text or id, whatever its case; else the only one that begins so.

    >>> from clickprism.serve.bundle.examples import Example
    >>> known = Examples(1, [Example("1", [], text="Red shoes"), Example("2", [], text="blue shoes")])
    >>> find(known, "red SHOES ").id, find(known, "blu").id, find(known, "green")
    ('1', '2', None)
    """
    text = wanted.strip().casefold()
    if not text:
        return None
    names = [(query, {query.id.casefold(), query.name.casefold()}) for query in examples.queries]
    for query, known in names:
        if text in known:
            return query
    begun = [query for query, known in names if any(name.startswith(text) for name in known)]
    return begun[0] if len(begun) == 1 else None


def suggestions(examples: Examples, wanted: str = "", *, most: int = SUGGESTED) -> list[Example]:
    """Queries like this one, the most alike first; without one, those shown most often."""
    text = wanted.strip().casefold()[:200]
    by_name = {query.name.casefold(): query for query in reversed(examples.queries)}
    within = [query for query in examples.queries if text and text in query.name.casefold()]
    close = [by_name[name] for name in get_close_matches(text, by_name, n=most, cutoff=0.4)] if text else []
    found = {query.id: query for query in [*within, *close, *(() if within or close else examples.queries)]}
    return list(found.values())[:most]


def _ranks(scores: Sequence[float], depth: int | None = None) -> list[int]:
    """Return the rank of each, from 1, the highest first; equal ones, and those below the depth, as in the log.

    >>> _ranks([0.1, 0.2, 0.9]), _ranks([0.1, 0.2, 0.9], 2)
    ([3, 2, 1], [2, 1, 3])
    """
    count = len(scores)
    first = count if depth is None else min(depth, count)
    order = [*sorted(range(first), key=lambda place: -scores[place]), *range(first, count)]
    ranks = [0] * len(scores)
    for rank, place in enumerate(order, start=1):
        ranks[place] = rank
    return ranks


def _scaled(scores: Sequence[float]) -> list[float]:
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 0.5 for score in scores]


def _part(value: float, top: float) -> float:
    return WIDTH * value / top if top else 0.0


def most_changed(examples: Examples, *, most: int, rerank_depth: int | None = None) -> list[tuple[Example, int]]:
    """Return the queries whose served ranking differs most from the log, with the number of documents that moved."""
    counts = []
    for query in examples.queries[:SCANNED]:
        ranks = _ranks([each.debiased for each in query.documents], rerank_depth)
        counts.append((query, sum(rank != place for place, rank in enumerate(ranks, start=1))))
    return sorted((each for each in counts if each[1]), key=lambda each: -each[1])[:most]


def _notices(rows: Sequence[Row], documents: Sequence[Shown], counts: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Return a sentence on the document that moved up most and on the one that moved down most."""
    if not rows:
        return ("The log has no document of this query.",)
    up, down = max(rows, key=lambda row: row.moved), min(rows, key=lambda row: row.moved)
    moved = [(up, "up")] if up.moved > 0 else []
    moved += [(down, "down")] if down.moved < 0 else []
    return tuple(
        f"{row.name} moves {way} from position {row.logged} to {row.debiased}. "
        + _evidence(*counts[row.key], documents[row.key].observation)
        for row, way in moved
    ) or ("The served ranking is that of the log.",)


def _evidence(shown: int, clicks: int, seen: float) -> str:
    """Return what the log says of a document.

    >>> _evidence(100, 2, 0.25)
    'It was clicked in 2 of 100 impressions, at positions observed 25 % as often as position 1: relevance 8.0 %.'
    >>> _evidence(1, 0, 0.31)
    'It was not clicked in 1 impression: the ranker places it by its features.'
    """
    where = f"{shown:,} impression{'' if shown == 1 else 's'}"
    if clicks == 0 or seen <= 0 or not shown:
        return f"It was not clicked in {where}: the ranker places it by its features."
    observed = f"at positions observed {100 * seen:.0f} % as often as position 1"
    return f"It was clicked in {clicks:,} of {where}, {observed}: relevance {_share(clicks / shown / seen)}."


def _share(value: float) -> str:
    """Return a share in percent; an estimate above 1 comes from few impressions and says no more than that.

    >>> _share(0.08), _share(18.0)
    ('8.0 %', 'over 100 %')
    """
    return f"{100 * value:.1f} %" if value <= 1 else "over 100 %"
