"""Whether a log can say what an estimator asks of it, and what is missing where it cannot."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.stats import chi2

from clickprism.errors import UnsupportedError
from clickprism.observation.pairs import Links
from clickprism.types import Bool, Clicks, Float64, Int64

EXPECTED = 5.0  # impressions in a cell of a chi-square test

SEVERAL: Final = (
    "Log several rankings of the same query (simulated: --simulation.rankers 3), or swap documents in some sessions"
)


def require_pairs(links: Links, first: Int64, second: Int64, least: float) -> str:
    """Refuse a log in which some of these pairs of positions share too little; else the weakest of them, in words."""
    pairs = links.at(first, second)
    strength = np.where(pairs >= 0, links.strength[pairs] if len(links.strength) else 0.0, 0.0)
    weak = strength < least
    if weak.any():
        named = ", ".join(f"{min(a, b) + 1}-{max(a, b) + 1}" for a, b in zip(first[weak], second[weak], strict=True))
        raise UnsupportedError(
            f"too few clicks on documents seen at both positions of {named} (fewer than {least:g} in effect)",
            remedy="Swap documents between them in more sessions, or try allpairs" + _above(first, second, weak),
        )
    weakest = int(strength.argmin())
    return _weakest(int(first[weakest]), int(second[weakest]), float(strength[weakest]))


def require_linked(links: Links, least: float, *, remedy: str = SEVERAL) -> str:
    """Refuse a log whose positions are not all linked by documents seen at several; else the weakest link, in words.

    Links count as strong as the clicks they rest on; of all ways from one position to another the strongest counts.
    """
    tree = _strongest_tree(links)
    strong = links.strength[tree] >= least
    group = _groups(links, tree[strong])
    if (group != group[0]).any():
        raise UnsupportedError(
            f"{_apart(group)} linked by documents seen at both (fewer than {least:g} clicks in effect)",
            remedy=remedy + _shallower(links, least),
        )
    weakest = int(tree[links.strength[tree].argmin()])
    return _weakest(int(links.low[weakest]), int(links.high[weakest]), float(links.strength[weakest]))


def require_random(clicks: Clicks, least_p: float) -> str:
    """Refuse a log whose documents are not spread over positions at random; else the p value, in words.

    Given which documents a list has, each should stand at each place equally often: a chi-square test within queries
    and lists of one length. Documents shown often are tested place by place; those shown at least twice, by their mean
    place.
    """
    value, freedom = _uneven(clicks)
    if freedom == 0:
        raise UnsupportedError(
            "no document was shown twice, so it cannot be tested whether the order was random",
            remedy="More sessions of the same queries; or Randomised(least_p=0) in Python, if it was by design",
        )
    p = float(chi2.sf(value, freedom))
    words = f"chi-square {value:.4g}, {freedom} degrees of freedom, p {f'= {p:.2g}' if p > 0 else '< 1e-300'}"
    if p < least_p:
        raise UnsupportedError(
            f"documents are not spread over positions at random ({words})",
            remedy="Take only sessions that were shuffled (--where column=value), or try allpairs",
        )
    return f"random order not refuted, {words}"


def _uneven(clicks: Clicks) -> tuple[float, int]:
    """A chi-square statistic and its degrees of freedom.

    A place is 1 of L with equal chances, and documents exclude each other: over D documents of a query the sum of
    squares is D / (D - 1) times what so many free deviations give.
    """
    lengths = np.diff(clicks.offsets)
    length = np.repeat(lengths, lengths)
    place = np.arange(len(clicks.rows)) - np.repeat(clicks.offsets[:-1], lengths)
    shown = clicks.list_impressions.astype(np.float64)
    keys, line = np.unique(clicks.rows * (int(lengths.max()) + 1) + length, return_inverse=True)
    rows, long = keys // (int(lengths.max()) + 1), keys % (int(lengths.max()) + 1)
    total = np.bincount(line, weights=shown)
    expected = total / long
    cells, cell = np.unique(line * (int(lengths.max()) + 1) + place, return_inverse=True)
    seen = np.bincount(cell, weights=shown)
    owner = cells // (int(lengths.max()) + 1)
    squares = np.bincount(owner, weights=seen**2, minlength=len(keys)) / expected - total
    spread = (long**2 - 1) / 12
    middle = np.bincount(line, weights=shown * (place - (length - 1) / 2))
    trend = middle**2 / (total * np.maximum(spread, 1e-300))
    often = expected >= EXPECTED
    tested = (often | (total >= 2)) & (long > 1)
    value = np.where(often, squares, trend)
    free = np.where(often, long - 1, 1)
    stratum = np.unique(np.stack([clicks.lists.list_of[rows], long]), axis=1, return_inverse=True)[1]
    documents = np.bincount(stratum)[stratum]
    used = np.bincount(stratum, weights=tested)[stratum]
    share = np.where(tested, np.minimum(used, documents - 1) / np.maximum(used, 1), 0.0)
    return float((share * value).sum()), round(float((share * free).sum()))


def _strongest_tree(links: Links) -> Int64:
    """The pairs of a spanning tree, or forest, with the strongest links."""
    linked = links.strength > 0
    cost = 1 / np.where(linked, links.strength, 1.0)
    size = links.positions
    graph = csr_array((cost[linked], (links.low[linked], links.high[linked])), shape=(size, size))
    tree = minimum_spanning_tree(graph).tocoo()
    return links.at(tree.row.astype(np.int64), tree.col.astype(np.int64))


def _groups(links: Links, pairs: Int64) -> Int64:
    """Which positions these pairs link, by number of the group; that of position 1 is 0."""
    size = links.positions
    graph = csr_array((np.ones(len(pairs)), (links.low[pairs], links.high[pairs])), shape=(size, size))
    _, group = connected_components(graph, directed=False)
    return np.asarray(group, dtype=np.int64)


def linked_depth(links: Links, least: float) -> int:
    """The deepest position to which all are linked; 1 where not even the second is."""
    for depth in range(links.positions, 1, -1):
        kept = (links.high < depth) & (links.strength >= least)
        if (_groups(links, np.flatnonzero(kept))[:depth] == 0).all():
            return depth
    return 1


def _shallower(links: Links, least: float) -> str:
    """How deep a log could be cut to be linked, as the end of a remedy."""
    depth = linked_depth(links, least)
    return f". Positions 1 to {depth} are linked: --depth {depth}" if depth > 1 else ""


def _above(first: Int64, second: Int64, weak: Bool) -> str:
    """How deep a log could be cut to have all pairs that are needed, as the end of a remedy."""
    depth = int(np.maximum(first, second)[weak].min())
    kept = (first < depth) & (second < depth)
    return f", or cut the log: --depth {depth}" if kept.any() else ""


def _apart(group: Int64) -> str:
    """Which groups of positions are not linked, as the begin of a sentence.

    >>> _apart(np.array([0, 0, 1])), _apart(np.array([0, 1, 2]))
    ('positions 1 to 2 and 3 are not', 'no two positions are')
    >>> _apart(np.array([0, 1, 1, 2, 3, 4]))
    'positions 2 to 3 and each of 1, 4 to 6 are not'
    """
    groups = dict.fromkeys(group.tolist())
    if len(groups) == len(group) > 2:
        return "no two positions are"
    places = [np.flatnonzero(group == each) for each in groups]
    alone = [place for place in places if len(place) == 1]
    if len(alone) <= 2:
        return f"positions {' and '.join(map(_spans, places))} are not"
    together = [_spans(place) for place in places if len(place) > 1]
    return f"positions {' and '.join([*together, f'each of {_spans(np.concatenate(alone))}'])} are not"


def _weakest(one: int, other: int, strength: float) -> str:
    low, high = min(one, other) + 1, max(one, other) + 1
    return f"weakest link {low}-{high}, by {_short(strength)} clicks in effect"


def _spans(places: Int64) -> str:
    """Positions in words.

    >>> _spans(np.array([0, 1, 2, 4]))
    '1 to 3, 5'
    """
    pieces = np.split(places + 1, np.flatnonzero(np.diff(places) > 1) + 1)
    return ", ".join(str(piece[0]) if len(piece) == 1 else f"{piece[0]} to {piece[-1]}" for piece in pieces)


def _short(number: Float64 | float) -> str:
    return f"{float(number):,.0f}"
