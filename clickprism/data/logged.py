"""A log as diagnosis, choice and counterfactual evaluation see it: ranked lists with clicks, and what is told of each.

What a log does not tell is None, never a guess: a diagnosis then says that it cannot be known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import numpy as np

from clickprism.data.clicks import fingerprint
from clickprism.types import Bool, Clicks, Float64, Int32, Int64, Text, check, slices

if TYPE_CHECKING:
    from clickprism.data.encoding import Encoding


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """What followed each click of a log.

    Attributes:
        rows: document of each click, [clicks].
        values: carts, bookings and so on that followed it, by name, [clicks] each.
    """

    rows: Int64
    values: Mapping[str, Float64]

    def __post_init__(self) -> None:
        for name, values in self.values.items():
            check(values.shape == self.rows.shape, f"outcome {name} must have {len(self.rows)} values")


@final
@dataclass(frozen=True, eq=False)
class Logged:
    """Clicks, and what the log tells of each ranked list.

    Attributes:
        clicks: merged by pattern (`Clicks.merge(by="pattern")`) within a day and a policy, or one session each; the
            documents have features, or a matrix of no columns where the log has none.
        days: the day of each ranked list, counted from any one, [ranked lists]; None where the log does not tell.
        policy: the ranker that made each ranked list, by place in `policies`, [ranked lists]; None if not told.
        policies: the names of the rankers.
        randomised: whether chance filled the slot of each entry, by the log's own word, [entries]; None if not told.
        feature_names: one a column of the features; empty where they have no names.
        columns: values of other columns, such as the device, for each ranked list, by name of the column; only those
            that the reader was asked for, [ranked lists] each.
        account: what was counted on the way in, such as rows quarantined or without a field, by name.
        encoding: how columns of a table became the features; None for a log that did not come from one.
        notes: what the reader assumed or ignored, one sentence each.
        outcomes: what followed the clicks, such as bookings; None if the log does not tell.
        values: value of a click on each document relative to the average click, [documents]; None if all are alike.
        grades: relevance grade of each document, for evaluation only, [documents]; None if the log has none.
    """

    clicks: Clicks
    days: Int64 | None = None
    policy: Int64 | None = None
    policies: tuple[str, ...] = ()
    randomised: Bool | None = None
    feature_names: tuple[str, ...] = ()
    account: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, Text] = field(default_factory=dict)
    encoding: Encoding | None = None
    notes: tuple[str, ...] = ()
    outcomes: Outcomes | None = None
    values: Float64 | None = None
    grades: Int32 | None = None

    def __post_init__(self) -> None:
        lists, entries = len(self.clicks), len(self.clicks.rows)
        for name, size in (("days", lists), ("policy", lists), ("randomised", entries)):
            values = getattr(self, name)
            check(values is None or values.shape == (size,), f"{name} must have {size} values")
        for name, values in self.columns.items():
            check(values.shape == (lists,), f"column {name} must have {lists} values")
        sized = self.values is None or self.values.shape == (self.clicks.lists.documents,)
        check(sized, "there must be a value of a click for each document")
        known = self.policy is None or not lists or 0 <= self.policy.min() <= self.policy.max() < len(self.policies)
        check(bool(known), "policy must be places in policies")
        width = self.clicks.lists.features.shape[1]
        check(len(self.feature_names) in (0, width), f"{width} features but {len(self.feature_names)} names")

    def __len__(self) -> int:
        return len(self.clicks)

    @property
    def has_features(self) -> bool:
        """Whether documents have any feature to learn from."""
        return bool(self.clicks.lists.features.shape[1] > 0)

    def take(self, ranked_lists: Int64 | Bool) -> Logged:
        """These ranked lists only, in this order; the account stays that of the whole log."""
        chosen = np.arange(len(self))[ranked_lists]
        entries, _ = slices(self.clicks.offsets, chosen)
        return replace(
            self,
            clicks=self.clicks.take(chosen),
            days=None if self.days is None else self.days[chosen],
            policy=None if self.policy is None else self.policy[chosen],
            randomised=None if self.randomised is None else self.randomised[entries],
            columns={name: values[chosen] for name, values in self.columns.items()},
        )

    @property
    def candidates(self) -> Int64:
        """Return the rows of the documents that the log names and that were never shown, [candidates]."""
        return np.setdiff1d(np.arange(self.clicks.lists.documents), self.clicks.rows)

    def of_queries(self, queries: Bool) -> Logged:
        """The ranked lists of these queries only, [lists of documents]; the documents stay all."""
        firsts = self.clicks.rows[np.minimum(self.clicks.offsets[:-1], max(len(self.clicks.rows) - 1, 0))]
        return self.take(queries[self.clicks.lists.list_of[firsts]])


def log_fingerprint(logged: Logged) -> str:
    """Return 16 digits of a SHA-256 over everything in a log.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> clicks = Clicks(lists, np.array([0, 2]), np.array([0, 1]), np.array([1, 2]), np.array([3, 0]), np.array([9]))
    >>> log_fingerprint(Logged(clicks)) == log_fingerprint(Logged(clicks, days=np.array([0])))
    False
    """
    clicks = logged.clicks
    digest = hashlib.sha256(fingerprint(clicks.lists).encode())
    known = (logged.days, logged.policy, logged.randomised, clicks.weights, clicks.seen)
    for values in (clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions, *known):
        if values is None:
            digest.update(b"none")
            continue
        digest.update(repr(values.shape).encode())
        digest.update(values.astype("<f8" if values.dtype.kind == "f" else "<i8").tobytes())
    ids = () if clicks.lists.document_ids is None else clicks.lists.document_ids.tolist()
    for names in (logged.policies, logged.feature_names, ids):
        digest.update("\0".join(map(str, names)).encode() + b"\1")
    if logged.outcomes is not None:
        for name, values in sorted(logged.outcomes.values.items()):
            digest.update(name.encode() + logged.outcomes.rows.tobytes() + values.tobytes())
    return digest.hexdigest()[:16]
