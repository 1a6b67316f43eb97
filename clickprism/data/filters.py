"""Which lists a paper leaves out, by name.

| name | leaves out |
|---|---|
| inforank | lists of more than 50 documents, and lists without a relevant one (InfoRank, appendix B.1) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest
from clickprism.types import Bool, Dataset, JudgedLists

FilterName: TypeAlias = Literal["none", "inforank"]


@final
@dataclass(frozen=True)
class ListFilter:
    """Which lists stay: those of at most `longest` documents and, if `relevant`, with one of grade 1 or more."""

    longest: int
    relevant: bool

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise SettingError("longest", self.longest, "be at least 1")


FILTERS: dict[str, ListFilter] = {"inforank": ListFilter(longest=50, relevant=True)}


@final
@dataclass(frozen=True, eq=False)
class Filtered:
    """What stays of judged lists, and why the others go.

    Attributes:
        keep: whether each list stays.
        too_long: lists that are longer than the filter allows.
        without_relevant: other lists that have no relevant document.
    """

    keep: Bool
    too_long: int
    without_relevant: int

    def __str__(self) -> str:
        kept = f"{int(self.keep.sum()):,} of {len(self.keep):,} lists kept"
        return f"{kept}; {self.too_long:,} too long, {self.without_relevant:,} without a relevant document"

    def plain(self) -> dict[str, int]:
        """The counts."""
        return {
            "kept": int(self.keep.sum()),
            "too_long": self.too_long,
            "without_relevant_left_out": self.without_relevant,
        }


def choose_lists(judged: JudgedLists, name: str) -> Filtered:
    """Which lists a named filter keeps.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((54, 1), np.float32), np.array([0, 51, 53, 54]), np.array(["a", "b", "c"]))
    >>> print(choose_lists(JudgedLists(lists, np.array([1] * 51 + [0, 2, 0], np.int32)), "inforank"))
    1 of 3 lists kept; 1 too long, 1 without a relevant document
    """
    if name == "none":
        return Filtered(np.ones(len(judged), dtype=np.bool_), 0, 0)
    if name not in FILTERS:
        raise SettingError("filter", name, f"be a known filter ({suggest(name, ['none', *FILTERS])})")
    rule = FILTERS[name]
    short = judged.lists.lengths <= rule.longest
    relevant = np.bincount(judged.lists.list_of, weights=judged.grades > 0, minlength=len(judged)) > 0
    fine = relevant | (not rule.relevant)
    return Filtered(short & fine, int((~short).sum()), int((short & ~fine).sum()))


def filtered(judged: JudgedLists, name: str) -> JudgedLists:
    """The lists that a named filter keeps; an error if it keeps none."""
    if name == "none":
        return judged
    chosen = choose_lists(judged, name)
    if not chosen.keep.any():
        raise _nothing(name, str(chosen), "")
    return judged if chosen.keep.all() else judged.take(chosen.keep)


def filter_dataset(dataset: Dataset, name: str) -> Dataset:
    """Every part with only the lists that a named filter keeps; an error names a part of which it keeps none."""
    choose_parts(dataset, name)
    return dataset.map(lambda part: filtered(part, name) if len(part) else part)


def choose_parts(dataset: Dataset, name: str) -> dict[str, Bool]:
    """Whether a named filter keeps each list, by part; an error names a part of which it keeps none."""
    keep = {}
    for part in ("train", "validation", "test"):
        judged: JudgedLists = getattr(dataset, part)
        chosen = choose_lists(judged, name)
        if len(judged) and not chosen.keep.any():
            raise _nothing(name, str(chosen), f" of the {part} part of {dataset.name}")
        keep[part] = chosen.keep
    return keep


def _nothing(name: str, account: str, where: str) -> DataError:
    remedy = "Take another filter (data.filter=none), or other data"
    return DataError(f"the filter {name!r} leaves nothing{where}: {account}", remedy=remedy)
