"""What the competitors of the doubly robust estimate see of a pair (§7.3): its text, or its text and its clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.data.normalise import fit
from clickprism.errors import DataError
from clickprism.relevance.click_vectors import ClickVectors, VectorScale
from clickprism.types import Float32, Lists, Text


@final
@dataclass(frozen=True, eq=False)
class Backbone:
    """The features of every pair, as they were when it was clicked, and as they are when it is ranked.

    Attributes:
        learned: what a method learns from.
        ranked: what its model then scores; the same pairs.
    """

    learned: Lists
    ranked: Lists

    def __post_init__(self) -> None:
        if len(self.learned.features) != len(self.ranked.features):
            raise DataError("a backbone must have the same pairs when it learns and when it ranks")

    @property
    def pairs(self) -> tuple[Text, Text]:
        """The ids of each pair."""
        return pair_ids(self.learned)


def cross_encoder(lists: Lists, representation: Float32) -> Backbone:
    """The representation h of each document for its query alone, standardised, [documents, width]."""
    features = _standardised(lists, representation)
    return Backbone(features, features)


def vanilla_mix(lists: Lists, representation: Float32, *, before: ClickVectors, now: ClickVectors) -> Backbone:
    """The representation joined with the click vector (Vanilla-Mix): [h, x].

    Args:
        lists: the documents of each query, with ids.
        representation: of each document for its query, [documents, width].
        before: click vectors that end before the clicks that are learned from: else a click is in its own features.
        now: those to rank by.
    """
    h = _standardised(lists, representation)
    then, later = (vectors.of(*pair_ids(lists)) for vectors in (before, now))
    scale = VectorScale.fit(then, before.fields, before.empty)
    learned, ranked = (np.concatenate([h.features, scale(x)], axis=1) for x in (then, later))
    return Backbone(lists.with_features(learned), lists.with_features(ranked))


def pair_ids(lists: Lists) -> tuple[Text, Text]:
    """The query id and the document id of each document."""
    if lists.document_ids is None:
        raise DataError("the lists have no document ids", remedy="Give them: clicks of a log are joined by ids")
    return lists.query_ids[lists.list_of], lists.document_ids


def _standardised(lists: Lists, representation: Float32) -> Lists:
    if representation.shape[:1] != (lists.documents,):
        raise DataError(f"{lists.documents} documents but representations of shape {representation.shape}")
    raw = lists.with_features(np.asarray(representation, dtype=np.float32))
    return fit("standard", raw)(raw)
