"""A log in memory: ranked lists with clicks, and what the log records about each list. What it lacks is None."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.data.clicks import fingerprint
from clickprism.types import Bool, Clicks, Float64, Int32, Int64, Text, check, slices

if TYPE_CHECKING:
    from clickprism.data.encoding import Encoding

ONLY_CLICKS: Final = (
    "Every result of the log was clicked: it lacks results that were shown but not clicked, so neither position bias"
    " nor relevance can be estimated from it."
)


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """What followed each click of a log.

    Attributes:
        rows: Document of each click, [clicks].
        values: Carts, bookings and so on that followed it, by name, [clicks] each.
    """

    rows: Int64
    values: Mapping[str, Float64]

    def __post_init__(self) -> None:
        for name, values in self.values.items():
            check(values.shape == self.rows.shape, f"outcome {name} must have {len(self.rows)} values")


@final
@dataclass(frozen=True, eq=False)
class Logged:
    """Clicks, and what the log records about each ranked list.

    Attributes:
        clicks: Merged by pattern (`Clicks.merge(by="pattern")`) within a day and a ranker, or one session each. The
            features have no columns if the log has none.
        days: Day of each ranked list, counted from any one, [ranked lists].
        policy: Ranker that made each ranked list, by place in `policies`, [ranked lists].
        policies: Names of the rankers.
        randomised: Whether the document of each entry was placed at random, as the log says, [entries].
        feature_names: One for each column of the features; empty if they have no names.
        account: What was counted while reading, such as rows that were not used, by name.
        columns: Other columns that the reader was asked for, such as the device, by name, [ranked lists] each.
        encoding: How columns of a table became the features; None for a log that did not come from one.
        notes: What the reader assumed or ignored, one sentence each.
        outcomes: What followed the clicks, such as bookings.
        values: Value of a click on each document relative to the average click, [documents]; None if all are equal.
        grades: Relevance grade of each document, for evaluation only, [documents].
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
        lists, documents = len(self.clicks), self.clicks.lists.documents
        sizes = {"days": lists, "policy": lists, "randomised": len(self.clicks.rows), "values": documents}
        given = {name: (getattr(self, name), size) for name, size in sizes.items()}
        for name, (values, size) in (given | {name: (each, lists) for name, each in self.columns.items()}).items():
            check(values is None or values.shape == (size,), f"{name} must have {size} values")
        known = self.policy is None or not lists or 0 <= self.policy.min() <= self.policy.max() < len(self.policies)
        check(bool(known), "policy must be places in policies")
        width = self.clicks.lists.features.shape[1]
        check(len(self.feature_names) in (0, width), f"{width} features but {len(self.feature_names)} names")

    def __len__(self) -> int:
        return len(self.clicks)

    @property
    def has_features(self) -> bool:
        """Return whether documents have any features."""
        return bool(self.clicks.lists.features.shape[1] > 0)

    @property
    def has_only_clicks(self) -> bool:
        """Return whether every result of the log was clicked each time: it holds clicks, but not what was shown."""
        return len(self.clicks.rows) > 0 and bool((self.clicks.clicks == self.clicks.list_impressions).all())

    def take(self, ranked_lists: Int64 | Bool) -> Logged:
        """Return these ranked lists only, in this order; the account is still that of the whole log."""
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
        """Return the rows of the documents that were never shown, [candidates]."""
        return np.setdiff1d(np.arange(self.clicks.lists.documents), self.clicks.rows)


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
