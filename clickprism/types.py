"""What flows through clickprism: documents in lists, grades beside them, clicks on ranked lists, padded batches.

Three rules keep it honest. Features stand once, in one matrix; everything else points into it by row. What a learner
sees (`Lists`, `Clicks`, `Batch`) has no grades: `JudgedLists` holds a `Lists`, it is not one, so handing labels to a
learner is a type error. And every value is checked when it is made, so no later stage has to.
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
    """Refuse data of which the condition does not hold."""
    if not condition:
        raise DataError(problem)


def _check_offsets(name: str, offsets: Int64, end: int) -> None:
    check(offsets.ndim == 1 and offsets.size >= 1, f"{name} must be a vector with at least one entry")
    check(int(offsets[0]) == 0 and int(offsets[-1]) == end, f"{name} must run from 0 to {end}")
    check(bool((np.diff(offsets) >= 0).all()), f"{name} must not decrease")


@dataclass(frozen=True, eq=False)
class Lists:
    """The documents of each query, with features and without grades.

    Attributes:
        features: one row a document, [documents, features]; may be memory-mapped.
        offsets: list i owns the rows `offsets[i]` to `offsets[i + 1]`, [lists + 1].
        query_ids: one a list.
        document_ids: one a document, or None where the data has none.
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
        """How many documents there are in all lists together."""
        return len(self.features)

    @cached_property
    def lengths(self) -> Int64:
        """How many documents each list has."""
        return np.diff(self.offsets)

    @cached_property
    def list_of(self) -> Int64:
        """The list that each document row belongs to, [documents]."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def take(self, lists: Int64 | Bool | Sequence[int]) -> Lists:
        """These lists only, in this order; the features are copied."""
        chosen = _as_indices(lists, len(self))
        rows, offsets = slices(self.offsets, chosen)
        ids = None if self.document_ids is None else self.document_ids[rows]
        return Lists(self.features[rows], offsets, self.query_ids[chosen], ids)

    def with_features(self, features: Float32) -> Lists:
        """The same lists over other features, such as normalised ones."""
        return Lists(features, self.offsets, self.query_ids, self.document_ids)


@dataclass(frozen=True, eq=False)
class JudgedLists:
    """Lists with a grade for every document: for evaluation, for simulated users, never for a learner."""

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
        """The highest grade that occurs; 0 when there are no documents."""
        return int(self.grades.max(initial=0))

    def take(self, lists: Int64 | Bool | Sequence[int]) -> JudgedLists:
        """These lists only, in this order."""
        chosen = _as_indices(lists, len(self))
        rows, _ = slices(self.lists.offsets, chosen)
        return JudgedLists(self.lists.take(chosen), self.grades[rows])

    def with_relevant(self) -> JudgedLists:
        """Only the lists that have at least one document of grade 1 or more."""
        relevant = np.bincount(self.lists.list_of, weights=self.grades > 0, minlength=len(self))
        return self.take(relevant > 0)

    def with_features(self, features: Float32) -> JudgedLists:
        """The same judgements over other features, such as normalised ones."""
        return JudgedLists(self.lists.with_features(features), self.grades)


@dataclass(frozen=True, eq=False)
class Dataset:
    """The three parts of an experiment, over the same features."""

    name: str
    train: JudgedLists
    validation: JudgedLists
    test: JudgedLists

    def __post_init__(self) -> None:
        widths = {part.lists.features.shape[1] for part in (self.train, self.validation, self.test)}
        check(len(widths) == 1, f"the parts of {self.name} have different numbers of features: {sorted(widths)}")

    def map(self, function: Callable[[JudgedLists], JudgedLists]) -> Dataset:
        """The dataset with `function` applied to each part."""
        return Dataset(self.name, function(self.train), function(self.validation), function(self.test))


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks on ranked lists: what was shown, where, how often, and how often it was clicked.

    A ranked list that was shown in many sessions may stand once, with counts (see `merge`). Every loss that is linear
    in clicks gives the same value either way.

    Attributes:
        lists: the documents that the rows point into.
        offsets: ranked list i owns the entries `offsets[i]` to `offsets[i + 1]`, [ranked lists + 1].
        rows: the document row of each entry.
        positions: where it stood, from 1, increasing within a ranked list.
        clicks: how many of the impressions were clicked, for each entry.
        impressions: in how many sessions the ranked list was shown, for each ranked list.
        weights: how much each click of an entry counts, [entries]; None where every click counts as one. Only methods
            whose loss is linear in clicks take a log with weights.
        seen: in how many impressions it is known to have been seen, such as by a viewport beacon, [entries]; None where
            the log does not tell. What was clicked was seen.
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
            kind = getattr(self, name).dtype
            check(bool(np.issubdtype(kind, np.integer)), f"{name} must be whole numbers, got {kind}")
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
            check(bool(np.issubdtype(self.seen.dtype, np.integer)), f"seen must be counts, got {self.seen.dtype}")
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
        check(int(self.impressions.min()) >= 1, "a ranked list that is here was shown at least once")
        check(int(self.clicks.min()) >= 0, "click counts must not be negative")
        shown = np.repeat(self.impressions, np.diff(self.offsets))
        check(bool((self.clicks <= shown).all()), "a document cannot be clicked in more sessions than showed it")
        if self.seen is not None:
            check(bool((self.seen <= shown).all()), "a document cannot be seen in more sessions than showed it")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Clicks({len(self)} ranked lists, {self.sessions} sessions, {self.clicks.sum()} clicks)"

    @property
    def sessions(self) -> int:
        """How many sessions there are, merged ones counted each."""
        return int(self.impressions.sum())

    @property
    def max_position(self) -> int:
        """The lowest place on the page that was shown, counted from 1."""
        return int(self.positions.max(initial=0))

    @property
    def list_impressions(self) -> Int64:
        """The impressions of each entry: those of its ranked list, [entries]."""
        return np.repeat(self.impressions, np.diff(self.offsets))

    @property
    def weighted_clicks(self) -> Float64:
        """The clicks of each entry, each counted by its weight, [entries]."""
        return self.clicks.astype(np.float64) if self.weights is None else self.clicks * self.weights

    @property
    def are_patterns(self) -> bool:
        """Whether it is known what was clicked together: every entry was clicked in all impressions or in none."""
        return bool(((self.clicks == 0) | (self.clicks == self.list_impressions)).all())

    def take(self, ranked_lists: Int64 | Bool | Sequence[int]) -> Clicks:
        """These ranked lists only, in this order."""
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
        """The same log where each click of an entry counts as much as this, [entries], and no longer as before."""
        return replace(self, weights=np.asarray(weights, dtype=np.float64))

    def with_clicks(self) -> Clicks:
        """Only the ranked lists with a click; the others add nothing to a listwise loss, but do to a pointwise one."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return self.take(np.bincount(owner, weights=self.clicks, minlength=len(self)) > 0)

    def merge(self, *, by: Literal["list", "pattern"] = "list") -> Clicks:
        """Join sessions with the same ranked list into one, adding clicks and impressions.

        Exact for every loss that is linear in clicks. `by="pattern"` joins only sessions that were clicked alike too,
        and so is exact for every model of sessions (UBM, cascades) as well; there `clicks` is 0 or the impressions.
        Weights become their mean over the clicks that are joined. The order is that of first appearance.
        """
        return merged(self, (), by)[0]


@dataclass(frozen=True, eq=False)
class Batch:
    """Ranked lists padded to one length, as tensors: all that a method's loss sees.

    Clicks and impressions are divided by the mean impressions of a ranked list in the log, so that a loss does not
    change when the same log is repeated, and `loss.sum(-1).mean()` is a mean over sessions.

    Attributes:
        features: [lists, places, features], 0 where masked.
        mask: True where there is a document, [lists, places].
        positions: from 1; 1 where masked, [lists, places].
        clicks: scaled click counts, 0 where masked, [lists, places].
        impressions: scaled impressions, [lists].
        seen: scaled counts of being seen, 0 where masked, [lists, places]; None where the log does not tell.
        total: makes a sum over this batch one over all processes that have a part of it (`torchrun`), without a
            gradient; a loss that divides by such a sum must take it from here, every time.
    """

    features: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    clicks: torch.Tensor
    impressions: torch.Tensor
    seen: torch.Tensor | None = None
    total: Callable[[torch.Tensor], torch.Tensor] = lambda sums: sums


def concatenate(parts: Sequence[Clicks]) -> Clicks:
    """The ranked lists of several logs over the same documents, one after the other."""
    check(len(parts) > 0, "nothing to concatenate")
    check(all(part.lists is parts[0].lists for part in parts), "only clicks on the same documents can be concatenated")
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return Clicks(
        parts[0].lists,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.clicks for part in parts]),
        np.concatenate([part.impressions for part in parts]),
        _joined_weights(parts),
        _joined_seen(parts),
    )


def _joined_weights(parts: Sequence[Clicks]) -> Float64 | None:
    if all(part.weights is None for part in parts):
        return None
    return np.concatenate([np.ones(len(part.rows)) if part.weights is None else part.weights for part in parts])


def _joined_seen(parts: Sequence[Clicks]) -> Int64 | None:
    known = [part.seen for part in parts if part.seen is not None]
    check(len(known) in (0, len(parts)), "logs that tell what was seen cannot be joined with logs that do not")
    return np.concatenate(known) if known else None


def slices(offsets: Int64, chosen: Int64) -> tuple[Int64, Int64]:
    """The entries of the chosen lists, one list after the other, and the offsets of those lists in them.

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
    """Merged clicks, and other counts of each entry merged alike."""
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
    """What a simulation knows and a log never tells, entry by entry beside the `Clicks` of the same simulation.

    Attributes:
        observed: in how many impressions the document was seen.
        attracted: in how many it would have been clicked if seen.
    """

    observed: Int64
    attracted: Int64

    def __post_init__(self) -> None:
        for name in ("observed", "attracted"):
            kind = getattr(self, name).dtype
            check(bool(np.issubdtype(kind, np.integer)), f"{name} must be whole numbers, got {kind}")


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clicks of simulated users with the truth beside them; only the clicks may reach a learner."""

    clicks: Clicks
    truth: Truth

    def __post_init__(self) -> None:
        entries = len(self.clicks.rows)
        for name in ("observed", "attracted"):
            counts = getattr(self.truth, name)
            check(counts.shape == (entries,), f"{entries} entries but {name} of shape {counts.shape}")

    def merge(self, *, by: Literal["list", "pattern"] = "list") -> Simulation:
        """`Clicks.merge`, with the truth kept beside the clicks."""
        clicks, (observed, attracted) = merged(self.clicks, (self.truth.observed, self.truth.attracted), by)
        return Simulation(clicks, Truth(observed, attracted))

    def with_seen(self) -> Simulation:
        """The same simulation of a site that logs what was seen, as by a viewport beacon."""
        return Simulation(replace(self.clicks, seen=self.truth.observed), self.truth)

    @cached_property
    def observation(self) -> Float64:
        """The share of impressions that was seen at each position, position 1 first: the true propensities."""
        places = self.clicks.positions - 1
        shown = np.bincount(places, weights=self.clicks.list_impressions)
        return np.bincount(places, weights=self.truth.observed) / np.maximum(shown, 1)
