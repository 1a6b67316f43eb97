"""What judged lists are like, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clickprism._util.tables import Table
from clickprism.types import JudgedLists

BLOCK = 65536


@dataclass(frozen=True)
class Facts:
    """The size and shape of judged lists.

    Attributes:
        lists: how many.
        documents: in all lists together.
        features: of each document.
        shortest: documents of the shortest list.
        longest: documents of the longest list.
        grades: the share of documents of each grade, grade 0 first.
        without_relevant: lists in which every grade is 0.
        missing: values that are missing, all features together.
    """

    lists: int
    documents: int
    features: int
    shortest: int
    longest: int
    grades: tuple[float, ...]
    without_relevant: int
    missing: int


@dataclass(frozen=True)
class FileFacts:
    """What one file of judged lists contains.

    Attributes:
        file: Path of the file.
        facts: Size and shape of its lists.
        quarantined: Number of broken lines that were skipped.
    """

    file: str
    facts: Facts
    quarantined: int

    def table(self) -> Table:
        """Return one row for each fact."""
        it = self.facts
        rows = [
            ["lists", f"{it.lists:,}"],
            ["documents", f"{it.documents:,}"],
            ["documents per list", f"{it.shortest} to {it.longest}"],
            ["features", str(it.features)],
            *[[f"grade {grade}", f"{share:.1%}"] for grade, share in enumerate(it.grades)],
            ["lists without a relevant document", f"{it.without_relevant:,}"],
            ["missing values", f"{it.missing:,}"],
            ["broken lines skipped", f"{self.quarantined:,}"],
        ]
        return Table("", [self.file, ""], rows)


@dataclass(frozen=True)
class FilesFacts:
    """What several files of judged lists contain."""

    files: tuple[FileFacts, ...]

    def tables(self) -> list[Table]:
        """Return one table for each file."""
        return [file.table() for file in self.files]


def facts(judged: JudgedLists) -> Facts:
    """Count.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((4, 2), np.float32), np.array([0, 3, 4]), np.array(["a", "b"]))
    >>> facts(JudgedLists(lists, np.array([0, 2, 0, 0], np.int32))).grades
    (0.75, 0.0, 0.25)
    """
    lists, features = judged.lists, judged.lists.features
    relevant = np.bincount(lists.list_of, weights=judged.grades > 0, minlength=len(lists))
    shares = np.bincount(judged.grades) / max(lists.documents, 1)
    return Facts(
        lists=len(lists),
        documents=lists.documents,
        features=features.shape[1],
        shortest=int(lists.lengths.min(initial=lists.documents)),
        longest=int(lists.lengths.max(initial=0)),
        grades=tuple(shares.tolist()),
        without_relevant=int((relevant == 0).sum()),
        missing=sum(int(np.isnan(features[i : i + BLOCK]).sum()) for i in range(0, len(features), BLOCK)),
    )
