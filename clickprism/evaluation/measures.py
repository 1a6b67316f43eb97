"""Measures of rankings, each defined completely by its printed name, computed for all queries at once.

Every measure is a function of the grades y_1, y_2, ... of one list in ranked order; `docs/guides/measures.md` has
them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias, cast, final, get_args

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest
from clickprism.types import Bool, Float32, Float64, Int32, Int64, JudgedLists, Text

Gain: TypeAlias = Literal["exp", "lin"]
Empty: TypeAlias = Literal["drop", "zero", "one"]

TAKES = {"nDCG": "gain", "DCG": "gain", "ERR": "max", "MAP": "rel", "MRR": "rel", "P": "rel", "ARP": ""}
MAX_EXPONENT = 62
CELLS = 1 << 15  # of a padded matrix of ranked lists
_NAME = re.compile(r"\s*(?P<kind>[A-Za-z]+)\s*(?:\((?P<inner>[^()]*)\))?\s*(?:@\s*(?P<cutoff>\d+))?\s*")


@final
@dataclass(frozen=True)
class Measure:
    """A measure of one ranked list; `str` returns its name and `parse` reads it.

    >>> str(Measure.parse("nDCG@10")), str(Measure.parse("MAP")), str(Measure.parse("ERR(max=4)@20"))
    ('nDCG(exp)@10', 'MAP(rel=1)', 'ERR(max=4)@20')
    """

    kind: str  # nDCG, DCG, ERR, MAP, MRR, P or ARP
    gain: Gain | None = None  # of nDCG and DCG: "exp" for 2^y - 1, "lin" for y
    cutoff: int | None = None  # number of documents that count, from the top; None for all
    relevant: int | None = None  # lowest grade that is relevant for MAP, MRR and P
    max_grade: int | None = None  # top of the scale of ERR; for None, `evaluate` takes the highest grade of the data

    def __post_init__(self) -> None:
        if self.kind not in TAKES:
            raise SettingError("measure", self.kind, f"be a known measure ({suggest(self.kind, TAKES)})")
        takes = TAKES[self.kind]
        given = {"gain": self.gain, "rel": self.relevant, "max": self.max_grade}
        for name, value in given.items():
            if value is not None and name != takes:
                raise SettingError(f"{self.kind}.{name}", value, f"not be given: {self.kind} has no such setting")
        if takes == "gain" and self.gain not in get_args(Gain):
            raise SettingError(f"{self.kind}.gain", self.gain, "be 'exp' (2^y - 1) or 'lin' (y)")
        if takes == "rel" and self.relevant is None:
            raise SettingError(f"{self.kind}.rel", None, "be the least grade that is relevant, such as 1")
        for name, number in {"cutoff": self.cutoff, "rel": self.relevant, "max": self.max_grade}.items():
            if number is not None and number < 1:
                raise SettingError(f"{self.kind}.{name}", number, "be at least 1")

    @classmethod
    def parse(cls, name: str) -> Measure:
        """Return the measure of this name; by default gain is exponential and grade 1 is relevant."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise SettingError("measure", name, "look like nDCG(exp)@10, MAP(rel=1)@10, ERR(max=4)@10 or ARP")
        kind = next((kind for kind in TAKES if kind.lower() == match["kind"].lower()), None)
        if kind is None:
            raise SettingError("measure", name, f"be a known measure ({suggest(match['kind'], TAKES)})")
        cutoff = int(match["cutoff"]) if match["cutoff"] else None
        takes, inner = TAKES[kind], (match["inner"] or "").replace(" ", "")
        if takes == "gain":
            return cls(kind, gain=cast(Gain, inner or "exp"), cutoff=cutoff)
        key, _, number = inner.partition("=")
        if inner and (key != takes or not number.isdecimal()):
            expected = f"{kind}({takes}=4)" if takes else kind
            raise SettingError("measure", name, f"look like {expected}, with a cut-off such as @10 or without")
        if takes == "rel":
            return cls(kind, relevant=int(number or 1), cutoff=cutoff)
        return cls(kind, max_grade=int(number) if number else None, cutoff=cutoff)

    def __str__(self) -> str:
        inner: str = self.gain or ""
        if self.relevant is not None:
            inner = f"rel={self.relevant}"
        if self.max_grade is not None:
            inner = f"max={self.max_grade}"
        return self.kind + (f"({inner})" if inner else "") + ("" if self.cutoff is None else f"@{self.cutoff}")

    @property
    def higher_is_better(self) -> bool:
        """Return True for all but ARP, which is a position."""
        return self.kind != "ARP"


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """The measured values of one ranking, by query."""

    measures: tuple[Measure, ...]  # What was measured
    values: Float64  # One value a measure and query, NaN where the query does not count, [measures, queries]
    query_ids: Text  # One a query
    empty: Empty  # What queries without a relevant document count: "drop" (not at all), "zero" or "one"

    def named(self, measure: Measure | str) -> Measure:
        """Return the measure as it was evaluated: ERR without a scale is the one with the scale of the data."""
        wanted = Measure.parse(measure) if isinstance(measure, str) else measure
        fits = [known for known in self.measures if wanted in (known, replace(known, max_grade=None))]
        if not fits:
            known = ", ".join(map(str, self.measures))
            raise SettingError("measure", str(wanted), f"be one that was evaluated ({known})")
        return fits[0]

    def __getitem__(self, measure: Measure | str) -> Float64:
        """Return the value of each query, [queries]."""
        values: Float64 = self.values[self.measures.index(self.named(measure))]
        return values

    def mean(self, measure: Measure | str) -> float:
        """Return the mean over the queries that count; NaN if none does."""
        values = self[measure]
        counts = values[~np.isnan(values)]
        return float(counts.mean()) if counts.size else float("nan")

    def queries(self, measure: Measure | str) -> int:
        """Return the number of queries that count."""
        return int((~np.isnan(self[measure])).sum())

    @property
    def means(self) -> dict[str, float]:
        """Return the mean of each measure, by its name."""
        return {str(measure): self.mean(measure) for measure in self.measures}


def evaluate(
    judged: JudgedLists,
    scores: Float64 | Float32 | Int32,
    measures: Measure | str | Iterable[Measure | str],
    *,
    empty: Empty = "drop",
) -> Evaluation:
    """Rank every list by score, highest first, and measure it by the grades.

    Ties are ordered by a fixed hash that does not depend on the grades, so constant scores are a random order.

    Args:
        judged: The lists and their grades.
        scores: Score of each document, [documents].
        measures: One measure or several, as values or names.
        empty: What queries without a relevant document (grade 1, or the measure's `rel`) count: nothing ("drop"), 0
            ("zero") or 1 ("one").

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    >>> judged = JudgedLists(lists, np.array([0, 1, 2], np.int32))
    >>> evaluate(judged, np.array([3.0, 2.0, 1.0]), ["nDCG@2", "MRR", "ARP"]).means
    {'nDCG(exp)@2': 0.17376534287144002, 'MRR(rel=1)': 0.5, 'ARP': 2.6666666666666665}
    """
    if empty not in get_args(Empty):
        raise SettingError("empty", empty, f"be one of {', '.join(get_args(Empty))}")
    wanted = _named(measures, judged.max_grade)
    values = check_scores(scores, judged.lists.documents)
    lists = judged.lists
    result = np.full((len(wanted), len(judged)), {"drop": np.nan, "zero": 0.0, "one": 1.0}[empty])
    for block in blocks(lists.offsets):
        grades = ranked(judged.grades, values, block, lists.query_ids)
        graded = _Ranked(grades)
        for row, measure in zip(result, wanted, strict=True):
            counts = graded.ideal[:, 0] >= (measure.relevant or 1)
            row[block.lists[counts]] = _measure(measure, graded, block.mask)[counts]
    return Evaluation(wanted, result, lists.query_ids, empty)


def _named(measures: Measure | str | Iterable[Measure | str], max_grade: int) -> tuple[Measure, ...]:
    several = [measures] if isinstance(measures, Measure | str) else measures
    parsed = [Measure.parse(one) if isinstance(one, str) else one for one in several]
    if not parsed:
        raise SettingError("measures", [], "name at least one measure")
    for i, measure in enumerate(parsed):
        if measure.kind == "ERR" and measure.max_grade is None:
            parsed[i] = replace(measure, max_grade=max(max_grade, 1))
        if measure.kind == "ERR" and (measure.max_grade or max_grade) < max_grade:
            raise DataError(f"a grade of {max_grade} is above the scale of {measure}", remedy=f"Use max={max_grade}")
        if (measure.kind == "ERR" or measure.gain == "exp") and max_grade > MAX_EXPONENT:
            problem = f"a grade of {max_grade} is too high for {measure}, which takes 2 to its power"
            raise DataError(problem, remedy="Use linear gain, such as nDCG(lin)@10, or grades on a small scale")
    return tuple(dict.fromkeys(parsed))


class _Ranked:
    """The ranked grades of a block, [lists, places], and what several measures compute from them."""

    def __init__(self, grades: Int32) -> None:
        self.grades = grades
        self.ideal = np.sort(grades, axis=1)[:, ::-1]
        self._relevant: dict[int, Float64] = {}

    def relevant(self, least: int) -> Float64:
        """Return 1 for documents of at least this grade, else 0, [lists, places]."""
        if least not in self._relevant:
            self._relevant[least] = (self.grades >= least).astype(np.float64)
        return self._relevant[least]


def _dcg(grades: Int32, gain: Gain, cutoff: int) -> Float64:
    scale = np.arange(int(grades.max(initial=0)) + 1, dtype=np.float64)
    gains = np.exp2(scale) - 1 if gain == "exp" else scale
    dcg: Float64 = gains.take(grades[:, :cutoff]) @ (1 / np.log2(np.arange(2, cutoff + 2)))
    return dcg


def _measure(measure: Measure, block: _Ranked, mask: Bool) -> Float64:
    """Return the value of each list, [lists]; values of lists without a relevant document are not used."""
    places = block.grades.shape[1]
    k = min(measure.cutoff or places, places)
    positions = np.arange(1, places + 1, dtype=np.float64)
    result: Float64
    if measure.gain is not None:
        result = _dcg(block.grades, measure.gain, k)
        if measure.kind == "nDCG":
            result /= np.maximum(_dcg(block.ideal, measure.gain, k), np.finfo(np.float64).tiny)
        return result
    if measure.kind == "ERR":
        stop = (np.exp2(block.grades[:, :k].astype(np.float64)) - 1) / 2.0 ** (measure.max_grade or 1)
        reached = np.ones_like(stop)
        np.cumprod(1 - stop[:, :-1], axis=1, out=reached[:, 1:])
        result = (stop * reached) @ (1 / positions[:k])
        return result
    if measure.kind == "ARP":
        capped = positions if measure.cutoff is None else np.minimum(positions, measure.cutoff + 1)
        result = (block.grades @ capped) / np.maximum(block.grades @ np.ones(places), 1)
        return result
    relevant = block.relevant(measure.relevant or 1)
    found = relevant[:, :k]
    if measure.kind == "MRR":
        first = found.argmax(axis=1)
        return np.where(found[np.arange(len(found)), first] > 0, 1 / (first + 1.0), 0.0)
    if measure.kind == "P":
        depth = mask.sum(axis=1) if measure.cutoff is None else np.float64(measure.cutoff)
        result = found @ np.ones(k) / depth
        return result
    result = (np.cumsum(found, axis=1) * found) @ (1 / positions[:k]) / np.maximum(relevant @ np.ones(places), 1)
    return result


@dataclass(frozen=True, eq=False)
class Block:
    """Some lists of similar length as one matrix: `rows` and `mask` are [lists, places], `lists` are their indices."""

    lists: Int64
    rows: Int64
    mask: Bool


def blocks(offsets: Int64) -> Iterator[Block]:
    """Yield all lists that have documents, padded at most to twice their length, in matrices of bounded size."""
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    order = order[np.searchsorted(lengths[order], 1) :]
    size = np.ceil(np.log2(np.maximum(lengths[order], 1)))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(size)) + 1, [len(order)]])
    for start, end in pairwise(starts.tolist()):
        if start == end:
            continue
        step = max(1, CELLS // int(lengths[order[end - 1]]))
        for first in range(start, end, step):
            lists = order[first : min(first + step, end)]
            places = np.arange(lengths[lists[-1]])
            mask = places < lengths[lists][:, None]
            yield Block(lists, np.where(mask, offsets[lists][:, None] + places, 0), mask)


def ranked(grades: Int32, scores: Float64, block: Block, query_ids: Text) -> Int32:
    """Return the grades of each list of the block, best score first, 0 where there is no document, [lists, places].

    Documents of equal score are ordered by a hash of query id and place in the list, which is the same in every run and
    does not depend on the grades: constant scores gain nothing from a file that is sorted by grade.
    """
    keys = np.where(block.mask, -scores[block.rows], np.nan)
    starts = keys.shape[1] * np.arange(len(keys))[:, None]
    order = np.argsort(keys, axis=1) + starts
    in_order = keys.take(order)
    tied = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if tied.any():
        hashes = tie_keys(query_ids[block.lists[tied]], keys.shape[1])
        order[tied] = np.lexsort((hashes, keys[tied]), axis=-1) + starts[tied]
    return np.where(block.mask, grades.take(block.rows.take(order)), np.int32(0))


def tie_keys(query_ids: Text, places: int) -> NDArray[np.uint64]:
    """Return a 64-bit hash for each place of each list, [queries, places]; the width of the ids does not matter."""
    width = query_ids.dtype.itemsize // 4
    letters = np.ascontiguousarray(query_ids).view(np.uint32).reshape(len(query_ids), width).astype(np.uint64)
    powers = np.cumprod(np.full(width, 0x9E3779B97F4A7C15, dtype=np.uint64))
    query = _scatter((letters * powers).sum(axis=1, dtype=np.uint64))
    return _scatter(query[:, None] + _scatter(np.arange(1, places + 1, dtype=np.uint64)))


def _scatter(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def check_scores(scores: Float64 | Float32 | Int32, documents: int) -> Float64:
    """Return the scores as float64; a wrong number of them or a NaN is an error."""
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (documents,):
        raise DataError(f"{documents} documents need as many scores, got an array of shape {values.shape}")
    wrong = np.isnan(values)
    if wrong.any():
        problem = f"{int(wrong.sum())} of {documents} scores are not a number, the first at row {int(wrong.argmax())}"
        raise DataError(problem, remedy="A ranker that diverged gives such scores: lower its learning rate")
    return values


def expected_value(offsets: Int64, scores: Float64, values: Float64) -> Float64:
    """Return the expected value of the new position of each entry, if ties are ranked at random, [entries].

    Entries `offsets[i]` to `offsets[i + 1]` are ranked list i; `values` are those of positions 1, 2, ...

    >>> expected_value(np.array([0, 3]), np.array([0.5, 0.9, 0.5]), np.array([1.0, 2.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    position = np.arange(len(scores)) - offsets[:-1][owner]
    order = np.lexsort((-scores, owner))
    fresh = np.ones(len(scores), dtype=np.bool_)
    fresh[1:] = (owner[order][1:] != owner[order][:-1]) | (scores[order][1:] != scores[order][:-1])
    group = np.cumsum(fresh) - 1
    result = np.empty(len(scores))
    result[order] = (np.bincount(group, weights=values[position]) / np.maximum(np.bincount(group), 1))[group]
    return result
