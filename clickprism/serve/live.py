"""A model that answers: its bundle, its scorer, and which columns of the store it takes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

import numpy as np

from clickprism.errors import DataError
from clickprism.serve.bundle import Bundle
from clickprism.serve.deployment import Deployment, warmed
from clickprism.serve.feature_scorer import FeatureScorer
from clickprism.serve.scorer import Scorer
from clickprism.serve.store import FeatureStore
from clickprism.types import Float32, Int64


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """Where in a store's rows the features and the click vector of a model are; None where the store lacks some."""

    features: slice | Int64 | None
    clicks: slice | Int64 | None


@final
class Live:
    """A model that is verified and warm, with the version that every answer of it carries.

    A request takes one at its start and keeps it to its end, whatever is promoted meanwhile.

    Attributes:
        rerank_depth: number of documents of a request that it re-ranks; None for all.
    """

    def __init__(
        self, bundle: Bundle, scorer: Scorer, *, previous: tuple[str, ...] = (), rerank_depth: int | None = None
    ) -> None:
        self.bundle = bundle
        self.scorer = scorer
        self.version = bundle.version
        self.since = datetime.now(UTC)
        self.previous = previous
        self.rerank_depth = rerank_depth
        self.needs_clicks = "clicks" in scorer.needs
        self.needs_features = "features" in scorer.needs
        self.needs_texts = "texts" in scorer.needs
        self.refuses_missing = bundle.manifest.missing == "refuse"
        self.small = scorer.small if isinstance(scorer, FeatureScorer) else None
        self._columns: tuple[tuple[str, ...], Columns] = ((), Columns(None, None))

    def reranked(self, documents: int) -> int | None:
        """Return how many of these documents it re-ranks; None for all."""
        depth = self.rerank_depth
        return depth if depth is not None and depth < documents else None

    def columns(self, fields: tuple[str, ...]) -> Columns:
        """The columns among these fields, found once for each snapshot."""
        known, columns = self._columns
        if known is not fields:
            columns = Columns(_columns(fields, self.scorer.feature_names), _columns(fields, self.scorer.click_fields))
            self._columns = (fields, columns)
        return columns


def enforced_depth(bundle: Bundle, setting: int | None) -> int | None:
    """Return how many documents of a request are re-ranked, None for all: the setting, or the scope of the bundle."""
    if setting is not None:
        return setting or None
    scope = bundle.manifest.scope
    return None if scope is None else scope.rerank_depth


def go_live(source: Path, store: FeatureStore | None, *, rerank_depth: int | None = None) -> Live:
    """Load a bundle, or the current one of a deployment; verify it, warm it, see that the store has its clicks.

    Args:
        source: a bundle or a deployment.
        store: where the click vectors are.
        rerank_depth: that of `ServeSettings`: None takes the scope of the bundle, 0 is no limit.
    """
    deployment = Deployment(source)
    pointer = deployment.pointer() if deployment.exists() else None
    bundle = Bundle.load(source) if pointer is None else deployment.bundle(pointer.version)
    previous, depth = pointer.previous if pointer else (), enforced_depth(bundle, rerank_depth)
    live = Live(bundle, warmed(bundle), previous=previous, rerank_depth=depth)
    if live.needs_clicks:
        if store is None:
            raise DataError("needs click vectors", file=source, remedy="Give the store that has them: --store")
        lacking = [name for name in live.scorer.click_fields if name not in store.info.fields]
        if lacking:
            problem = f"needs click fields that the store does not have: {', '.join(lacking[:5])}"
            raise DataError(problem, file=source, remedy="Publish them: clickprism store publish LOG --to STORE")
    return live


def taken(rows: Float32, columns: slice | Int64) -> Float32:
    """These columns of the store's rows, [n, wanted]; no copy where they stand side by side."""
    return rows[:, columns]


def _columns(fields: tuple[str, ...], wanted: tuple[str, ...]) -> slice | Int64 | None:
    """The places of names among fields: a slice where they are side by side, None where one is missing.

    >>> _columns(("a", "b", "c"), ("b", "c")), _columns(("a", "b", "c"), ("c", "a")), _columns(("a",), ("b",))
    (slice(1, 3, None), array([2, 0]), None)
    """
    places = {name: place for place, name in enumerate(fields)}
    if not all(name in places for name in wanted):
        return None
    found = np.array([places[name] for name in wanted], np.int64)
    if len(found) and np.array_equal(found, np.arange(found[0], found[0] + len(found))):
        return slice(int(found[0]), int(found[0]) + len(found))
    return found
