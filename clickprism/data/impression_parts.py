"""Impression logs as the three parts of an experiment: lists, clicks on them, and one vocabulary for all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import make_folder, write_file
from clickprism._util.tables import Table
from clickprism.data.clicks import save_clicks
from clickprism.data.impressions import Account, ImpressionLog, read_impressions
from clickprism.data.letor import OnError, PathLike
from clickprism.data.roles import ImpressionSettings
from clickprism.data.vocabulary import Vocabulary, take
from clickprism.errors import DataError, SettingError
from clickprism.settings import to_toml
from clickprism.types import Bool, Clicks, Dataset, Int64, JudgedLists, Lists, slices

PARTS: Final = ("train", "validation", "test")
SHARES: Final = (0.8, 0.1, 0.1)
MOST_ONCE: Final = 0.5  # of documents
UNGRADED: Final = "The log has no grades: measures use clicks as grades, which are biased"


@final
@dataclass(frozen=True, eq=False)
class ImpressionParts:
    """A data set of judged lists, and the clicks on each of its parts.

    Attributes:
        dataset: grades are those of the log, or whether something was ever clicked where it has none.
        clicks: on the lists of each part, by its name.
        vocabulary: learned on the training part.
        graded: whether the log has grades.
        accounts: what was read from each file.
    """

    dataset: Dataset
    clicks: Mapping[str, Clicks]
    vocabulary: Vocabulary
    graded: bool
    accounts: tuple[Account, ...]

    def once(self, *, least: int = 10) -> list[str]:
        """Columns of names in which most documents of the training part have a name that no other list has.

        Times and ids are such; of fewer lists than `least` nothing can be told. Names must be codes.
        """
        lists = self.clicks["train"].lists
        found = []
        for name, place in self.vocabulary.places.items() if len(lists) >= least else ():
            codes = lists.features[:, place].astype(np.int64)
            counts = np.bincount(np.unique(codes * len(lists) + lists.list_of) // len(lists))
            if np.mean(counts[codes] == 1) > MOST_ONCE:
                found.append(name)
        return found

    def facts(self) -> ImpressionFacts:
        """Return what the log contains, in numbers."""
        parts = {
            name: ImpressionPart(
                lists=len(clicks.lists),
                documents=clicks.lists.documents,
                requests=clicks.sessions,
                clicks=int(clicks.clicks.sum()),
                seen=None if clicks.seen is None else int(clicks.seen.sum()),
                positions=clicks.max_position,
            )
            for name, clicks in self.clicks.items()
        }
        files = [
            ImpressionFile(
                file=str(each.file),
                columns=each.columns,
                rows=each.rows,
                duplicates=each.duplicates,
                gaps=each.gaps,
                unknown=each.unknown,
                quarantined=len(each.quarantined),
            )
            for each in self.accounts
        ]
        columns = self.vocabulary.columns.items()
        return ImpressionFacts(
            files=tuple(files),
            parts=parts,
            graded=self.graded,
            features={name: "numbers" if values is None else len(values) for name, values in columns},
            vocabulary=self.vocabulary.hash,
            advice=tuple(self._advice()),
        )

    def _advice(self) -> Iterator[str]:
        if not self.graded:
            yield UNGRADED
        for part, purpose in (("validation", "choose an epoch"), ("test", "measure a ranker")):
            if not self.clicks[part].clicks.any():
                yield (
                    f"The {part} part has no clicks to {purpose} by. Use a longer log, or one log for each part "
                    "(--validation FILE --test FILE)"
                )
        for name in self.once():
            yield (
                f"Most names of column {name!r} occur in one list only, so they teach a ranker nothing. If it is a "
                f"time or an id, add --ignore {shlex.quote(name)}"
            )

    def save(self, folder: Path, data: Mapping[str, Any]) -> Path:
        """Write the clicks, the vocabulary and the settings by which `train` reads the log; return the settings file.

        Args:
            folder: the folder; it is created if it is missing.
            data: the settings of the data, as in the table `[data]` of a settings file.
        """
        files = {part: str(Path(data[part]).absolute()) for part in PARTS if data.get(part) is not None}
        data = {**data, **files}
        make_folder(folder)
        save_clicks(self.clicks["train"], folder / "clicks.npz", data=data)
        save_clicks(self.clicks["validation"], folder / "held_out.npz", data=data)
        self.vocabulary.save(folder / "vocabulary.json")
        values = {"data": data, "evaluation": {"validation": "clicks"}}
        write_file(folder / "settings.toml", to_toml(values))
        return folder / "settings.toml"

    def over(self, dataset: Dataset) -> ImpressionParts:
        """The same clicks on the same lists with other features, such as normalised ones."""
        clicks = {part: replace(self.clicks[part], lists=getattr(dataset, part).lists) for part in PARTS}
        return replace(self, dataset=dataset, clicks=clicks)

    def take(self, keep: Mapping[str, Bool]) -> ImpressionParts:
        """These lists of each part only, and the clicks on them."""
        judged, clicks = {}, {}
        for part in PARTS:
            old: JudgedLists = getattr(self.dataset, part)
            judged[part] = old.take(keep[part])
            clicks[part] = on_lists(self.clicks[part], np.flatnonzero(keep[part]), judged[part].lists)
        return replace(self, dataset=Dataset(self.dataset.name, **judged), clicks=clicks)


@final
@dataclass(frozen=True, kw_only=True)
class ImpressionFile:
    """What one impression log contains.

    Attributes:
        file: Path of the log.
        columns: Column of each role, such as the item.
        rows: Number of rows.
        duplicates: Number of rows that repeat an earlier row; they count once.
        gaps: Number of requests in which a position is missing.
        unknown: Number of documents whose name is not in the training part, by column.
        quarantined: Number of broken rows that were skipped, with all rows of their requests.
    """

    file: str
    columns: Mapping[str, str]
    rows: int
    duplicates: int
    gaps: int
    unknown: Mapping[str, int]
    quarantined: int

    def table(self) -> Table:
        """Return one row for each fact."""
        roles = ", ".join(role if role == name else f"{role} ({name})" for role, name in self.columns.items())
        unknown = ", ".join(f"{count:,} ({name})" for name, count in self.unknown.items() if count)
        rows = [
            ["rows", f"{self.rows:,}"],
            ["columns", roles],
            ["duplicate rows, counted once", f"{self.duplicates:,}"],
            ["requests with a missing position", f"{self.gaps:,}"],
            ["broken rows skipped", f"{self.quarantined:,}"],
            ["documents with a name unknown in training", unknown or "0"],
        ]
        return Table("", [self.file, ""], rows)


@final
@dataclass(frozen=True, kw_only=True)
class ImpressionPart:
    """What one part of an impression log contains.

    Attributes:
        lists: Number of lists.
        documents: Number of documents in all lists.
        requests: Number of requests.
        clicks: Number of clicks.
        seen: Number of documents that were in view; None if the log does not say so.
        positions: Largest position.
    """

    lists: int
    documents: int
    requests: int
    clicks: int
    seen: int | None
    positions: int


@final
@dataclass(frozen=True, kw_only=True)
class ImpressionFacts:
    """What impression logs contain.

    Attributes:
        files: The logs.
        parts: The training, validation and test part.
        graded: Whether the log has grades.
        features: Number of distinct names of each feature, or "numbers".
        vocabulary: Hash of the vocabulary.
        advice: What to know before training on the log.
    """

    files: tuple[ImpressionFile, ...]
    parts: Mapping[str, ImpressionPart]
    graded: bool
    features: Mapping[str, int | str]
    vocabulary: str
    advice: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return a table for each file, one of the parts and one of the features."""
        names = ["lists", "documents", "requests", "clicks", "seen", "positions"]
        parts = [
            [name, *["-" if (value := getattr(part, each)) is None else f"{value:,}" for each in names]]
            for name, part in self.parts.items()
        ]
        features = [
            [name, f"{kind:,} names" if isinstance(kind, int) else kind] for name, kind in self.features.items()
        ]
        return [
            *[file.table() for file in self.files],
            Table("", ["part", *names], parts),
            Table("", ["feature", "contains"], features or [["no features", ""]]),
        ]


def on_lists(clicks: Clicks, chosen: Int64, lists: Lists) -> Clicks:
    """The clicks on these lists only, where `lists` is `clicks.lists.take(chosen)`."""
    rows, _ = slices(clicks.lists.offsets, chosen)
    place = np.full(clicks.lists.documents, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    owner = np.full(len(clicks), -1, dtype=np.int64)
    filled = np.diff(clicks.offsets) > 0
    owner[filled] = place[clicks.rows[clicks.offsets[:-1][filled]]]
    kept = clicks.take(owner >= 0)
    return replace(kept, lists=lists, rows=place[kept.rows])


def load_impressions(
    train: PathLike,
    validation: PathLike | None = None,
    test: PathLike | None = None,
    *,
    settings: ImpressionSettings | None = None,
    shares: Sequence[float] = SHARES,
    name: str = "impressions",
    on_error: OnError = "raise",
) -> ImpressionParts:
    """Read the parts of an experiment from impression logs, or from one, which is then split.

    Names that only held-out data has are unknown ones. One log is split by its lists in the order in which they came,
    so by time if the log is in the order of time.

    Args:
        train: the log to learn from.
        validation: the log to choose by.
        test: the log to measure on.
        settings: which column is what.
        shares: of the lists that go to each part, where there is one log.
        name: of the data set.
        on_error: see `read_impressions`.
    """
    settings = ImpressionSettings() if settings is None else settings
    if (validation is None) != (test is None):
        raise SettingError("validation" if validation is None else "test", None, "be given with the other, or neither")
    if validation is None or test is None:
        log = read_impressions(train, settings=replace(settings, least_count=1), on_error=on_error)
        return _split(log, shares, name=name, least_count=settings.least_count)
    first = read_impressions(train, settings=settings, on_error=on_error)
    logs = [first] + [
        read_impressions(path, settings=settings, vocabulary=first.vocabulary, on_error=on_error)
        for path in (validation, test)
    ]
    graded = {log.grades is not None for log in logs}
    if len(graded) > 1:
        raise DataError("some parts have a column of relevance, others none", remedy="Give all of them one, or none")
    clicks = {part: log.clicks for part, log in zip(PARTS, logs, strict=True)}
    dataset = Dataset(name, *(log.judged for log in logs))
    return ImpressionParts(dataset, clicks, first.vocabulary, graded.pop(), tuple(log.account for log in logs))


def _split(log: ImpressionLog, shares: Sequence[float], *, name: str, least_count: int) -> ImpressionParts:
    """One log as three parts, with a vocabulary of the first only."""
    size = len(log.lists)
    if len(shares) != len(PARTS) or min(shares) <= 0 or not np.isclose(sum(shares), 1):
        raise SettingError("shares", list(shares), "be three, above 0, and add up to 1")
    bounds = [0, *np.rint(np.cumsum(shares) * size).astype(int).tolist()]
    if min(np.diff(bounds)) < 1:
        remedy = "Give a longer log, or one log for each part"
        raise DataError(f"cannot split {size} lists in three parts", file=log.account.file, remedy=remedy)
    columns = log.vocabulary.decode(log.lists.features)
    rows = slice(0, int(log.lists.offsets[bounds[1]]))
    vocabulary = Vocabulary.learn({key: take(column, rows) for key, column in columns.items()}, least_count=least_count)
    judged = log.judged.with_features(vocabulary.encode(columns) if columns else log.lists.features)
    clicks = replace(log.clicks, lists=judged.lists)
    whole = ImpressionParts(
        Dataset(name, judged, judged, judged),
        dict.fromkeys(PARTS, clicks),
        vocabulary,
        log.grades is not None,
        (replace(log.account, unknown=vocabulary.unknown(judged.lists.features)),),
    )
    numbers = np.arange(size)
    ends = zip(PARTS, bounds[:-1], bounds[1:], strict=True)
    return whole.take({part: (numbers >= start) & (numbers < stop) for part, start, stop in ends})
