"""The data types of clickprism: lists of documents, grades, clicks on ranked lists, padded batches, simulated truth.

Three rules hold. Features are stored once, in one matrix; everything else refers to its rows. What a learner receives
(`Lists`, `Clicks`, `Batch`) has no grades: `JudgedLists` contains a `Lists` and is not one, so that passing labels to a
learner is a type error. Every value is checked when it is constructed, so that later stages need not check it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError

if TYPE_CHECKING:
    import torch

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
Bool: TypeAlias = NDArray[np.bool_]
Text: TypeAlias = NDArray[np.str_]


def check(condition: bool, problem: str) -> None:
    """Raise a DataError with this text unless the condition holds."""
    if not condition:
        raise DataError(problem)


def _check_whole(name: str, values: Int64) -> None:
    check(bool(np.issubdtype(values.dtype, np.integer)), f"{name} must be whole numbers, got {values.dtype}")


def _check_offsets(name: str, offsets: Int64, end: int) -> None:
    check(offsets.ndim == 1 and offsets.size >= 1, f"{name} must be a vector with at least one entry")
    check(int(offsets[0]) == 0 and int(offsets[-1]) == end, f"{name} must run from 0 to {end}")
    check(bool((np.diff(offsets) >= 0).all()), f"{name} must not decrease")


@dataclass(frozen=True, eq=False)
class Lists:
    """The documents of each query, with features and without grades.

    Attributes:
        features: one row per document, [documents, features]; may be memory-mapped.
        offsets: list i has the rows from `offsets[i]` up to `offsets[i + 1]`, exclusive, [lists + 1].
        query_ids: the query of each list, [lists].
        document_ids: the id of each document, [documents]; None if the data has no ids.
    """

    features: Float32
    offsets: Int64
    query_ids: Text
    document_ids: Text | None = None

    def __post_init__(self) -> None:
        check(self.features.ndim == 2, f"features must be a matrix, got {self.features.ndim} dimensions")
        check(self.features.dtype == np.float32, f"features must be float32, got {self.features.dtype}")
        _check_offsets("offsets", self.offsets, len(self.features))
        check(len(self.query_ids) == len(self), f"{len(self)} lists but {len(self.query_ids)} query ids")
        if self.document_ids is not None:
            documents = len(self.features)
            check(len(self.document_ids) == documents, f"{documents} documents, {len(self.document_ids)} document ids")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Lists({len(self)} lists, {self.documents} documents, {self.features.shape[1]} features)"

    @property
    def documents(self) -> int:
        """Return the number of documents in all lists together."""
        return len(self.features)

    @cached_property
    def lengths(self) -> Int64:
        """Return the number of documents of each list, [lists]."""
        return np.diff(self.offsets)

    @cached_property
    def list_of(self) -> Int64:
        """Return the index of the list that each document belongs to, [documents]."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def take(self, lists: Int64 | Bool | Sequence[int]) -> Lists:
        """Return these lists, in this order; the features are copied."""
        chosen = _as_indices(lists, len(self))
        rows, offsets = slices(self.offsets, chosen)
        ids = None if self.document_ids is None else self.document_ids[rows]
        return Lists(self.features[rows], offsets, self.query_ids[chosen], ids)

    def with_features(self, features: Float32) -> Lists:
        """Return the same lists with other features, such as normalised ones."""
        return Lists(features, self.offsets, self.query_ids, self.document_ids)


@dataclass(frozen=True, eq=False)
class JudgedLists:
    """Lists with a relevance grade for every document: for evaluation and simulated users, never for a learner."""

    lists: Lists
    grades: Int32

    def __post_init__(self) -> None:
        documents = self.lists.documents
        check(self.grades.shape == (documents,), f"{documents} documents but grades of shape {self.grades.shape}")
        check(self.grades.dtype == np.int32, f"grades must be int32, got {self.grades.dtype}")
        check(documents == 0 or int(self.grades.min()) >= 0, "grades must not be negative")

    def __len__(self) -> int:
        return len(self.lists)

    def __repr__(self) -> str:
        return f"JudgedLists({self.lists!r}, grades 0 to {self.max_grade})"

    @property
    def max_grade(self) -> int:
        """Return the highest grade; 0 if there are no documents."""
        return int(self.grades.max(initial=0))

    def take(self, lists: Int64 | Bool | Sequence[int]) -> JudgedLists:
        """Return these lists, in this order."""
        chosen = _as_indices(lists, len(self))
        rows, _ = slices(self.lists.offsets, chosen)
        return JudgedLists(self.lists.take(chosen), self.grades[rows])

    def with_relevant(self) -> JudgedLists:
        """Return the lists that have at least one document of grade 1 or higher."""
        relevant = np.bincount(self.lists.list_of, weights=self.grades > 0, minlength=len(self))
        return self.take(relevant > 0)

    def with_features(self, features: Float32) -> JudgedLists:
        """Return the same judgements with other features, such as normalised ones."""
        return JudgedLists(self.lists.with_features(features), self.grades)


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training, validation and test part of a data set, with the same features."""

    name: str
    train: JudgedLists
    validation: JudgedLists
    test: JudgedLists

    def __post_init__(self) -> None:
        widths = {part.lists.features.shape[1] for part in (self.train, self.validation, self.test)}
        check(len(widths) == 1, f"the parts of {self.name} have different numbers of features: {sorted(widths)}")

    def map(self, function: Callable[[JudgedLists], JudgedLists]) -> Dataset:
        """Return the data set with `function` applied to each part."""
        return Dataset(self.name, function(self.train), function(self.validation), function(self.test))


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks on ranked lists: which documents were shown, at which positions, how often, and how often clicked.

    An entry is one document in one ranked list. Sessions with the same ranked list may be merged into one ranked list
    with counts (see `merge`); every loss that is linear in clicks has the same value either way.

    Attributes:
        lists: the documents and their features.
        offsets: ranked list i has the entries from `offsets[i]` up to `offsets[i + 1]`, exclusive, [ranked lists + 1].
        rows: the row of each entry's document in `lists`, [entries].
        positions: the position at which it was shown, from 1, increasing within a ranked list, [entries].
        clicks: the number of impressions with a click, [entries].
        impressions: the number of sessions in which the ranked list was shown, [ranked lists].
        weights: the weight of each click of an entry, [entries]; None if all are 1. Only methods whose loss is linear
            in clicks accept weights.
        seen: the number of impressions in which the document was observed, if the site logs that (for example, by a
            viewport beacon), [entries]; otherwise None. Clicked documents count as observed.
    """

    lists: Lists
    offsets: Int64
    rows: Int64
    positions: Int32
    clicks: Int64
    impressions: Int64
    weights: Float64 | None = None
    seen: Int64 | None = None

    def __post_init__(self) -> None:
        entries = len(self.rows)
        for name in ("offsets", "rows", "positions", "clicks", "impressions"):
            _check_whole(name, getattr(self, name))
        _check_offsets("offsets of clicks", self.offsets, entries)
        check(len(self.positions) == entries, f"{entries} rows but {len(self.positions)} positions")
        check(len(self.clicks) == entries, f"{entries} rows but {len(self.clicks)} click counts")
        check(len(self.impressions) == len(self), f"{len(self)} ranked lists, {len(self.impressions)} impressions")
        if self.weights is not None:
            check(self.weights.shape == (entries,), f"{entries} rows but weights of shape {self.weights.shape}")
            check(self.weights.dtype == np.float64, f"weights must be float64, got {self.weights.dtype}")
            sound = bool((np.isfinite(self.weights) & (self.weights >= 0)).all())
            check(sound, "weights must be finite and not negative")
        if self.seen is not None:
            check(self.seen.shape == (entries,), f"{entries} rows but seen of shape {self.seen.shape}")
            _check_whole("seen", self.seen)
            check(bool((self.clicks <= self.seen).all()), "what was clicked was seen: seen must be at least clicks")
        if entries == 0:
            return
        check(int(self.rows.min()) >= 0, "rows must not be negative")
        check(int(self.rows.max()) < self.lists.documents, f"rows must be below {self.lists.documents}")
        check(int(self.positions.min()) >= 1, "positions start from 1")
        inner = self.offsets[1:-1]
        last = inner[(inner > 0) & (inner < entries)] - 1
        rising, query = np.diff(self.positions) > 0, self.lists.list_of[self.rows]
        same = query[1:] == query[:-1]
        rising[last] = same[last] = True
        check(bool(rising.all()), "positions must increase within a ranked list")
        check(bool(same.all()), "the documents of a ranked list must be of one query")
        check(int(self.impressions.min()) >= 1, "every ranked list must have been shown at least once")
        check(int(self.clicks.min()) >= 0, "click counts must not be negative")
        shown = self.list_impressions
        check(bool((self.clicks <= shown).all()), "a document cannot be clicked in more sessions than showed it")
        if self.seen is not None:
            check(bool((self.seen <= shown).all()), "a document cannot be seen in more sessions than showed it")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Clicks({len(self)} ranked lists, {self.sessions} sessions, {self.clicks.sum()} clicks)"

    @property
    def sessions(self) -> int:
        """Return the number of sessions, before merging."""
        return int(self.impressions.sum())

    @property
    def max_position(self) -> int:
        """Return the largest position at which a document was shown."""
        return int(self.positions.max(initial=0))

    @property
    def list_impressions(self) -> Int64:
        """Return the impressions of each entry, which are those of its ranked list, [entries]."""
        return np.repeat(self.impressions, np.diff(self.offsets))

    @property
    def weighted_clicks(self) -> Float64:
        """Return the clicks of each entry times their weight, [entries]."""
        return self.clicks.astype(np.float64) if self.weights is None else self.clicks * self.weights

    @property
    def are_patterns(self) -> bool:
        """Return whether every entry was clicked in all impressions or in none, so that click patterns are known."""
        return bool(((self.clicks == 0) | (self.clicks == self.list_impressions)).all())

    def take(self, ranked_lists: Int64 | Bool | Sequence[int]) -> Clicks:
        """Return these ranked lists, in this order."""
        chosen = _as_indices(ranked_lists, len(self))
        entries, offsets = slices(self.offsets, chosen)
        return Clicks(
            self.lists,
            offsets,
            self.rows[entries],
            self.positions[entries],
            self.clicks[entries],
            self.impressions[chosen],
            None if self.weights is None else self.weights[entries],
            None if self.seen is None else self.seen[entries],
        )

    def weighted(self, weights: Float64) -> Clicks:
        """Return the same clicks with these weights, [entries], instead of the present ones."""
        return replace(self, weights=np.asarray(weights, dtype=np.float64))

    def with_clicks(self) -> Clicks:
        """Return the ranked lists with a click; those without one change a pointwise loss, but not a listwise one."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return self.take(np.bincount(owner, weights=self.clicks, minlength=len(self)) > 0)

    def merge(self, *, by: Literal["list", "pattern"] = "list") -> Clicks:
        """Merge sessions with the same ranked list, adding up clicks and impressions.

        This is exact for every loss that is linear in clicks. With `by="pattern"`, only sessions with the same clicks
        are merged, which is exact for every model of sessions (UBM, cascades) too; `clicks` is then 0 or the
        impressions. Weights are averaged over the merged clicks. Ranked lists are in the order of first appearance.
        """
        return merged(self, (), by)[0]


@dataclass(frozen=True, eq=False)
class Batch:
    """Ranked lists padded to the same length, as tensors: the input of a method's loss.

    Clicks and impressions are divided by the mean number of impressions per ranked list of the log, so that repeating
    a log does not change the loss, and `loss.sum(-1).mean()` is a mean over sessions.

    Attributes:
        features: [lists, length, features], 0 where masked.
        mask: True where there is a document, [lists, length].
        positions: from 1; 1 where masked, [lists, length].
        clicks: scaled click counts, 0 where masked, [lists, length].
        impressions: scaled impressions, [lists].
        seen: scaled counts of observed impressions, 0 where masked, [lists, length]; None if the log does not have
            them.
    """

    features: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    clicks: torch.Tensor
    impressions: torch.Tensor
    seen: torch.Tensor | None = None


def concatenate(parts: Sequence[Clicks]) -> Clicks:
    """Return the ranked lists of several logs over the same documents, one log after another."""
    check(len(parts) > 0, "nothing to concatenate")
    check(all(part.lists is parts[0].lists for part in parts), "only clicks on the same documents can be concatenated")
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([np.ones(len(part.rows)) if part.weights is None else part.weights for part in parts])
    seen = [part.seen for part in parts if part.seen is not None]
    problem = "logs with observation counts (seen) cannot be joined with logs without"
    check(len(seen) in (0, len(parts)), problem)
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return Clicks(
        parts[0].lists,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.clicks for part in parts]),
        np.concatenate([part.impressions for part in parts]),
        weights,
        np.concatenate(seen) if seen else None,
    )


def slices(offsets: Int64, chosen: Int64) -> tuple[Int64, Int64]:
    """Return the indices of the entries of the chosen lists, and the offsets of these lists in the result.

    >>> slices(np.array([0, 2, 5]), np.array([1, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 3, 5]))
    """
    lengths = offsets[chosen + 1] - offsets[chosen]
    ends = np.zeros(len(chosen) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    return np.arange(ends[-1], dtype=np.int64) + np.repeat(offsets[chosen] - ends[:-1], lengths), ends


def _as_indices(chosen: Int64 | Bool | Sequence[int], lists: int) -> Int64:
    array = np.asarray(chosen)
    if array.dtype == np.bool_:
        check(len(array) == lists, f"a mask over {lists} lists has {len(array)} entries")
        return np.flatnonzero(array).astype(np.int64)
    indices = array.astype(np.int64)
    known = bool(((indices >= 0) & (indices < lists)).all())
    check(known, f"lists are numbered from 0 to {lists - 1}")
    return indices


def merged(clicks: Clicks, counts: tuple[Int64, ...], by: Literal["list", "pattern"]) -> tuple[Clicks, list[Int64]]:
    """Return the merged clicks, and other counts of each entry merged in the same way."""
    from clickprism._util.grouping import add, same_lists

    check(by in ("list", "pattern"), f"sessions are merged by 'list' or by 'pattern', not by {by!r}")
    pattern = np.zeros(0, dtype=np.int64)
    if by == "pattern":
        check(clicks.are_patterns, "sessions merged by list cannot be split by pattern")
        pattern = (clicks.clicks > 0).astype(np.int64)
    group, first = same_lists(clicks.offsets, clicks.rows, clicks.positions, pattern)
    entries, offsets = slices(clicks.offsets, first)
    impressions = np.zeros(len(first), dtype=np.int64)
    np.add.at(impressions, group, clicks.impressions)
    sums = []
    for values in (clicks.clicks, *counts, *(() if clicks.seen is None else (clicks.seen,))):
        sums.append(np.zeros(len(entries), dtype=np.int64))
        add(clicks.offsets, offsets[:-1][group], values, sums[-1])
    weights = None
    if clicks.weights is not None:
        total, mean = np.zeros((2, len(entries)))
        add(clicks.offsets, offsets[:-1][group], clicks.weighted_clicks, total)
        add(clicks.offsets, offsets[:-1][group], clicks.weights, mean)
        mean /= np.repeat(np.bincount(group, minlength=len(first)), np.diff(offsets))
        weights = np.divide(total, sums[0], out=mean, where=sums[0] > 0)
    rows, positions = clicks.rows[entries], clicks.positions[entries]
    seen = None if clicks.seen is None else sums.pop()
    return Clicks(clicks.lists, offsets, rows, positions, sums[0], impressions, weights, seen), sums[1:]


@dataclass(frozen=True, eq=False)
class Truth:
    """What only a simulation knows about each entry of its `Clicks`; for tests and measures, never for a learner.

    Attributes:
        observed: the number of impressions in which the document was observed, [entries].
        attracted: the number in which it would be clicked if observed, [entries].
    """

    observed: Int64
    attracted: Int64

    def __post_init__(self) -> None:
        for name in ("observed", "attracted"):
            _check_whole(name, getattr(self, name))


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clicks of simulated users together with the truth; only the clicks may be passed to a learner."""

    clicks: Clicks
    truth: Truth

    def __post_init__(self) -> None:
        entries = len(self.clicks.rows)
        for name in ("observed", "attracted"):
            counts = getattr(self.truth, name)
            check(counts.shape == (entries,), f"{entries} entries but {name} of shape {counts.shape}")

    def merge(self, *, by: Literal["list", "pattern"] = "list") -> Simulation:
        """Merge sessions as `Clicks.merge` does, and the truth with them."""
        clicks, (observed, attracted) = merged(self.clicks, (self.truth.observed, self.truth.attracted), by)
        return Simulation(clicks, Truth(observed, attracted))

    def with_seen(self) -> Simulation:
        """Return the same simulation for a site that logs which documents were observed."""
        return Simulation(replace(self.clicks, seen=self.truth.observed), self.truth)

    @cached_property
    def observation(self) -> Float64:
        """Return the share of impressions that was observed at each position: the true propensities, [positions]."""
        places = self.clicks.positions - 1
        shown = np.bincount(places, weights=self.clicks.list_impressions)
        return np.bincount(places, weights=self.truth.observed) / np.maximum(shown, 1)
