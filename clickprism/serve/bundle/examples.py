"""Example queries of a log for the page of the service: what was shown and clicked, and two rankings.

They are a JSON file of the bundle, `examples.json`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import numpy as np

from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int64

MOST: Final = 200
MOST_QUERIES: Final = 10_000
Count = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(max_length=2_000)]


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document of a query, as in the log and as two rankers score it.

    Attributes:
        id: Id of the document.
        position: Position, from 1; the mean if it was shown at several.
        impressions: Number of impressions.
        clicks: Number of clicks.
        observation: Observation at its positions, relative to the first one; the mean over its impressions.
        debiased: Score of the ranker in the bundle.
        naive: Score of a ranker that was trained on raw clicks; None without one.
        title: Title for people.
    """

    id: Name
    position: Annotated[float, msgspec.Meta(ge=1)]
    impressions: Count
    clicks: Count
    observation: Share
    debiased: float
    naive: float | None = None
    title: Name | None = None

    @property
    def click_rate(self) -> float:
        """Clicks per impression; 0 without impressions."""
        return self.clicks / self.impressions if self.impressions else 0.0


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query and its documents, by position."""

    id: Name
    documents: Annotated[list[Shown], msgspec.Meta(max_length=1_000)]
    text: Name | None = None

    @property
    def name(self) -> str:
        """The text, or else the id."""
        return self.text or self.id


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page shows.

    Attributes:
        queries: Queries, most impressions first.
        observation: Observation by position, relative to the first; empty if the method has no curve.
        source: What the clicks are of, for people.
    """

    queries: Annotated[list[Example], msgspec.Meta(max_length=MOST_QUERIES)]
    observation: list[Share] = []
    source: Name = ""

    def bytes(self) -> bytes:
        """Return the content of the file."""
        return msgspec.json.encode(self)


def read_examples(content: bytes, *, file: object = "examples.json") -> Examples:
    """Return the examples of a file; raise a DataError if it is damaged."""
    try:
        return msgspec.json.decode(content, type=Examples)
    except msgspec.DecodeError as error:
        problem = f"is not a file of examples ({error})"
        raise DataError(problem, file=str(file), remedy="Create the bundle again") from None


def examples_of(
    clicks: Clicks,
    debiased: Float64,
    naive: Float64 | None = None,
    *,
    observation: Float64 | None = None,
    source: str = "",
    most: int = MOST,
) -> Examples:
    """Return the queries of a log that were shown most often, with the documents that were shown.

    Args:
        clicks: The log; documents without ids are d1, d2, ..., in the order of the list.
        debiased: Scores of the documents of `clicks.lists`, [documents].
        naive: The same by a ranker that was trained on raw clicks.
        observation: Observation by position, relative to the first, [positions]; the last value counts for all below.
        source: What the clicks are of.
        most: Maximum number of queries.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["shoes"]))
    >>> counts = np.array([3, 1]), np.array([10])
    >>> log = Clicks(lists, np.array([0, 2]), np.array([0, 1]), np.array([1, 2], np.int32), *counts)
    >>> made = examples_of(log, np.array([0.5, 1.5]), observation=np.array([1.0, 0.25]))
    >>> [(each.id, each.click_rate, each.observation) for each in made.queries[0].documents]
    [('d1', 0.3, 1.0), ('d2', 0.1, 0.25)]
    """
    lists = clicks.lists
    shown = clicks.list_impressions.astype(np.float64)
    curve = np.ones(1) if observation is None or not len(observation) else np.asarray(observation, np.float64)
    observed = curve[np.minimum(clicks.positions - 1, len(curve) - 1)]

    def total(values: Float64) -> Float64:
        return np.bincount(clicks.rows, weights=values, minlength=lists.documents).astype(np.float64, copy=False)

    impressions, clicked = total(shown), total(clicks.clicks.astype(np.float64))
    once = np.maximum(impressions, 1)
    position, observed = total(shown * clicks.positions) / once, total(shown * observed) / once
    by_query = np.bincount(lists.list_of, weights=impressions, minlength=len(lists))
    chosen = np.argsort(-by_query, kind="stable")[:most]
    queries = []
    for query in chosen[by_query[chosen] > 0].tolist():
        rows: Int64 = np.arange(lists.offsets[query], lists.offsets[query + 1])
        rows = rows[impressions[rows] > 0]
        rows = rows[np.argsort(position[rows], kind="stable")]
        places = (rows - lists.offsets[query] + 1).tolist()
        names = [f"d{place}" for place in places] if lists.document_ids is None else lists.document_ids[rows].tolist()
        documents = [
            Shown(
                id=str(name),
                position=float(position[row]),
                impressions=int(impressions[row]),
                clicks=int(clicked[row]),
                observation=round(float(observed[row]), 6),
                debiased=float(debiased[row]),
                naive=None if naive is None else float(naive[row]),
            )
            for row, name in zip(rows.tolist(), names, strict=True)
        ]
        queries.append(Example(str(lists.query_ids[query]), documents))
    return Examples(queries, [] if observation is None else curve.tolist(), source)
