"""Items: which documents of different queries are the same.

Popularity belongs to an item, not to a document of one query. Where the data has no ids, items are clusters of
features, as in InfoRank (Jin et al. 2024, Section 4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Int64, Lists

By: TypeAlias = Literal["auto", "ids", "features"]

BLOCK: Final = 4_096
CELLS: Final = 1 << 24
SAMPLE: Final = 20  # documents a class that K-means learns from, where there are more
WORK: Final = 1e11  # multiplications that its rounds may cost, within the least and the most
ROUNDS: Final = (3, 30)
TURNS: Final = 10
TINY: Final = 1e-12
SHARED: Final = 0.25  # documents of a part whose id the first part must have, for ids to be used


def items_of(lists: Lists, *, by: By = "auto", classes: int | None = None, seed: int = 0) -> Int64:
    """Return the item of each document, numbered from 0, [documents]; see `items_across`.

    >>> lists = Lists(np.eye(3, dtype=np.float32), np.array([0, 2, 3]), np.array(["a", "b"]), np.array(["x", "y", "x"]))
    >>> items_of(lists).tolist()
    [0, 1, 0]
    """
    return items_across([lists], by=by, classes=classes, seed=seed)[0]


def items_across(
    parts: Sequence[Lists], *, by: By = "auto", classes: int | None = None, seed: int = 0
) -> tuple[Int64, ...]:
    """Return the item of each document of several parts, with the same numbers in all of them, one array for each part.

    By features, items are clusters of K-means with Pearson's coefficient: rows are scaled to mean 0 and length 1,
    centres are the mean directions of their rows, and a row belongs to the centre it correlates with most. It starts
    from rows drawn by how badly the earlier ones fit them, and takes 3 to 30 rounds, fewer if a round is slow, over
    at most `SAMPLE` documents for each class. Equal rows are always one item; rows with equal features throughout have
    no Pearson coefficient and are one item. Items are numbered in the order of first appearance. (Ours takes 1.5 s
    where scikit-learn's K-means took 18.5 s.)

    Args:
        parts: Such as training and test.
        by: "ids" by `document_ids`, "features" by clusters, "auto" by ids if the parts share them (`ids_shared`).
        classes: Number of clusters; by default the number of queries, as in the paper.
        seed: Random seed.
    """
    if by not in get_args(By):
        raise SettingError("by", by, f"be one of {', '.join(get_args(By))}")
    if not parts:
        return ()
    named = [part.document_ids for part in parts if part.document_ids is not None]
    if by == "ids" and len(named) < len(parts):
        raise DataError("these lists have no document ids", remedy="Find items with by='features'")
    if by == "ids" or (by == "auto" and ids_shared(parts)):
        owner = np.unique(np.concatenate(named), return_inverse=True)[1].astype(np.int64)
    else:
        wanted = sum(map(len, parts)) if classes is None else classes
        if classes is not None and classes < 1:
            raise SettingError("classes", classes, "be at least 1")
        owner = _clustered(standardised(np.concatenate([part.features for part in parts])), wanted, seed)
    ends = np.cumsum([part.documents for part in parts])[:-1]
    return tuple(np.split(_renumbered(owner), ends))


def ids_shared(parts: Sequence[Lists]) -> bool:
    """Return whether the parts have document ids, and share enough of them with the first (MQ2008: 7%, too few).

    >>> one = Lists(np.eye(2, dtype=np.float32), np.array([0, 2]), np.array(["a"]), np.array(["x", "y"]))
    >>> other = Lists(np.eye(2, dtype=np.float32), np.array([0, 2]), np.array(["b"]), np.array(["v", "w"]))
    >>> ids_shared([one, one]), ids_shared([one, other])
    (True, False)
    """
    named = [part.document_ids for part in parts if part.document_ids is not None]
    if not named or len(named) < len(parts):
        return False
    return all(not len(ids) or float(np.isin(ids, named[0]).mean()) >= SHARED for ids in named)


def standardised(features: Float32) -> Float32:
    """Return each row minus its mean, scaled to length 1: the product of two rows is their Pearson coefficient.

    A row whose features are all equal, to the precision of float32, becomes 0.

    >>> rows = standardised(np.array([[1, 2, 3], [30, 20, 10], [7, 7, 7]], np.float32))
    >>> (rows @ rows.T).round(4).tolist()
    [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    result = np.empty(features.shape, dtype=np.float32)
    for start in range(0, len(features), BLOCK):
        rows = features[start : start + BLOCK].astype(np.float64)
        if not np.isfinite(rows).all():
            row = start + int((~np.isfinite(rows)).any(axis=1).argmax())
            raise DataError(f"the features of document {row} are not all finite", remedy="Clean the features first")
        size = np.abs(rows).max(axis=1, initial=0)[:, None]
        rows /= np.where(size > 0, size, 1)
        rows -= rows.mean(axis=1, keepdims=True) if rows.shape[1] else 0
        length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
        some = length > np.finfo(np.float32).eps * np.sqrt(max(rows.shape[1], 1))
        result[start : start + BLOCK] = np.where(some, rows / np.where(some, length, 1), 0) + 0.0  # no minus 0
    return result


def _clustered(rows: Float32, classes: int, seed: int) -> Int64:
    """Return the cluster of each standardised row, [documents]; equal rows count as one, weighted by their number."""
    first, owner, copies = _distinct(rows)
    points = rows[first]
    constant = ~points.any(axis=1)
    own = np.arange(len(points))
    if len(points) - int(constant.sum()) > classes:
        own[constant] = -1
        own[~constant] = _k_means(points[~constant], copies[~constant], classes, seed)
    return own[owner]


def _k_means(points: Float32, copies: Int64, classes: int, seed: int) -> Int64:
    """Return the class of each row by K-means with centres of length 1: the nearest centre is the most correlated."""
    rng = np.random.default_rng(seed)
    chosen, weights = points, copies.astype(np.float32)
    if len(points) > SAMPLE * classes:
        rows = np.sort(rng.choice(len(points), SAMPLE * classes, replace=False))
        chosen, weights = points[rows], weights[rows]
    centres, owner, near = _seeds(chosen, weights, classes, rng)
    rounds = int(np.clip(WORK / (float(chosen.size) * classes), *ROUNDS))
    for _ in range(rounds):
        before, centres = owner, _centres(chosen, weights, owner, near, classes)
        owner, near = _nearest(chosen, centres)
        if np.array_equal(owner, before):
            break
    return owner if chosen is points else _nearest(points, centres)[0]


def _seeds(points: Float32, weights: Float32, classes: int, rng: np.random.Generator) -> tuple[Float32, Int64, Float32]:
    """Return rows to start from, drawn in turns by how badly the earlier ones fit them (Bahmani et al. 2012).

    Returns:
        The rows, and as `_nearest` of them: which of them each row correlates with most, and how much.
    """
    owner, near = np.zeros(len(points), dtype=np.int64), np.full(len(points), -1, dtype=np.float32)
    free = np.ones(len(points), dtype=np.bool_)
    drawn: list[Int64] = []
    for turn in np.array_split(np.arange(classes), TURNS):
        if not len(turn):
            continue
        badness = np.where(free, weights * np.maximum(1 - near, TINY), 1.0)
        key = np.where(free, rng.exponential(size=len(points)) / badness, np.inf)
        rows = np.sort(np.argpartition(key, len(turn) - 1)[: len(turn)]).astype(np.int64)
        free[rows] = False
        drawn.append(rows)
        found, how = _nearest(points, points[rows])
        owner, near = np.where(how > near, turn[0] + found, owner), np.maximum(near, how)
    return points[np.concatenate(drawn)], owner, near


def _nearest(points: Float32, centres: Float32) -> tuple[Int64, Float32]:
    """Return the centre that each row correlates with most, and how much."""
    owner, near = np.empty(len(points), dtype=np.int64), np.empty(len(points), dtype=np.float32)
    step = max(1, CELLS // len(centres))
    for start in range(0, len(points), step):
        products = points[start : start + step] @ centres.T
        found = products.argmax(axis=1)
        owner[start : start + step] = found
        near[start : start + step] = products[np.arange(len(found)), found]
    return owner, near


def _centres(points: Float32, weights: Float32, owner: Int64, near: Float32, classes: int) -> Float32:
    """Return the mean direction of each class; a class without rows starts again from the row that fits worst."""
    order = np.argsort(owner, kind="stable")
    used, first = np.unique(owner[order], return_index=True)
    centres = np.empty((classes, points.shape[1]), dtype=np.float32)
    centres[used] = np.add.reduceat(points[order] * weights[order, None], first, axis=0)
    empty = np.setdiff1d(np.arange(classes), used)
    centres[empty] = points[np.argsort(near, kind="stable")[: len(empty)]]
    length = np.sqrt((centres.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    return np.asarray(centres / np.maximum(length, TINY), dtype=np.float32)


def _distinct(rows: Float32) -> tuple[Int64, Int64, Int64]:
    """Return the first row of each kind, the kind of every row, and the number of each, by a 64-bit hash."""
    powers = np.random.default_rng(0).integers(0, 2**64, rows.shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for start in range(0, len(rows), BLOCK):
        bits = np.ascontiguousarray(rows[start : start + BLOCK]).view(np.uint32).astype(np.uint64)
        hashes[start : start + BLOCK] = ((bits ^ (bits << np.uint64(29))) * powers).sum(axis=1, dtype=np.uint64)
    _, first, owner, copies = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    return first.astype(np.int64), owner.reshape(-1).astype(np.int64), copies.astype(np.int64)


def _renumbered(owner: Int64) -> Int64:
    """Return the same groups, numbered in the order of first appearance."""
    _, first, group = np.unique(owner, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[group.reshape(-1)]
