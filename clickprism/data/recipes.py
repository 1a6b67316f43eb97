"""Public data sets by name: which files they consist of, how large they are, how papers normalise them.

Nothing is downloaded: a recipe says what must be in a folder, checks it, and loads it. `docs/reference/datamodel.md`
says where the counts come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, Unpack

from clickprism._util.tables import Table
from clickprism.data.cache import Place
from clickprism.data.letor import LetorOptions, OnError, PathLike, Paths, Reading, scan_letor, widened
from clickprism.data.normalise import Kind, normalised
from clickprism.errors import DataError, SettingError
from clickprism.settings import suggest
from clickprism.types import Dataset, JudgedLists

Layout: TypeAlias = Mapping[str, tuple[str, ...]]
"""A way in which a data set may lie in a folder: files of each part, by name."""

FOLDS: Final = (1, 2, 3, 4, 5)
PARTS: Final = ("train", "validation", "test")
ENDINGS: Final = ("", ".gz", ".zst")


@dataclass(frozen=True)
class Recipe:
    """What a data set consists of.

    Attributes:
        title: Its full name.
        source: Who provides it, and under what terms.
        features: Number of features.
        queries: Number of queries in all parts.
        documents: Number of documents in all parts.
        normalise: How papers on this data normalise the features.
        files: File of each part, in order train, validation, test.
        parts: Queries and documents of each part, if they are known and the same for everyone.
        folds: Whether the files are in folders Fold1 to Fold5, each of which holds all the data.
        subsets: Whether S1.txt to S5.txt may replace the folds.
        largest_id: Largest feature id in the training part, if that is not `features`.
    """

    title: str
    source: str
    features: int
    queries: int
    documents: int
    normalise: Kind = "none"
    files: tuple[str, str, str] = ("train.txt", "vali.txt", "test.txt")
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    folds: bool = False
    subsets: bool = False
    largest_id: int | None = None


LETOR_SOURCE = "Microsoft Research, LETOR 4.0 (the supervised, query-level-normalised version), for research"
MSLR_SOURCE = "Microsoft Research, Learning to Rank Datasets, for research"

RECIPES: dict[str, Recipe] = {
    "yahoo": Recipe(
        title="Yahoo! Learning to Rank Challenge, set 1",
        source="Yahoo Webscope, data set C14, by application for research",
        features=700,
        queries=29_921,
        documents=709_877,
        files=("set1.train.txt", "set1.valid.txt", "set1.test.txt"),
        parts={"train": (19_944, 473_134), "validation": (2_994, 71_083), "test": (6_983, 165_660)},
        largest_id=699,
    ),
    "istella-s": Recipe(
        title="Istella-S LETOR",
        source="Istella, LETOR data sets, for non-commercial use",
        features=220,
        queries=33_018,
        documents=3_408_630,
        normalise="log1p",
        parts={"train": (19_245, 2_043_304), "validation": (7_211, 684_076), "test": (6_562, 681_250)},
    ),
    "mslr-web10k": Recipe("MSLR-WEB10K", MSLR_SOURCE, 136, 10_000, 1_200_192, normalise="log1p", folds=True),
    "mslr-web30k": Recipe("MSLR-WEB30K", MSLR_SOURCE, 136, 31_531, 3_771_125, normalise="log1p", folds=True),
    "mq2007": Recipe("LETOR 4.0 MQ2007", LETOR_SOURCE, 46, 1_692, 69_623, folds=True, subsets=True),
    "mq2008": Recipe("LETOR 4.0 MQ2008", LETOR_SOURCE, 46, 784, 15_211, folds=True, subsets=True),
}


@dataclass(frozen=True)
class Count:
    """Number of queries and documents of a part and its largest feature id, and what they should be.

    Features are sparse, so a small part need not reach the largest id; then nothing is expected.
    """

    part: str
    queries: int
    documents: int
    largest_id: int
    expected_queries: int
    expected_documents: int
    expected_largest_id: int | None

    @property
    def ok(self) -> bool:
        """Return whether the counts are as expected, and the largest feature id is reached."""
        counted = (self.queries, self.documents) == (self.expected_queries, self.expected_documents)
        return counted and self.largest_id >= (self.expected_largest_id or 0)

    def __str__(self) -> str:
        found = (
            f"{self.part}: {self.queries:,} queries, {self.documents:,} documents, feature ids up to {self.largest_id}"
        )
        largest = "" if self.expected_largest_id is None else f", ids up to {self.expected_largest_id}"
        wanted = f"; expected {self.expected_queries:,} and {self.expected_documents:,}{largest}"
        return found if self.ok else found + wanted


@dataclass(frozen=True)
class Report:
    """Which files of a data set a folder has, and which are missing."""

    name: str
    folder: Path
    found: tuple[Path, ...]
    missing: tuple[str, ...]
    counts: tuple[Count, ...]

    @property
    def ok(self) -> bool:
        """Return whether nothing is missing and all counts are as expected."""
        return not self.missing and all(count.ok for count in self.counts)

    def tables(self) -> list[Table]:
        """Return what was found, what is missing and the counts."""
        recipe = RECIPES[self.name]
        rows = [["found", str(file)] for file in self.found]
        rows += [["missing", f"{file} (or {file}.gz, {file}.zst)"] for file in self.missing]
        rows += [["count", str(count)] for count in self.counts]
        rows += [] if self.ok else [["source", recipe.source]]
        state = "complete" if self.ok else "not complete"
        return [Table(f"{recipe.title} in {self.folder}: {state}", ["", ""], rows)]


@dataclass(frozen=True)
class Known:
    """The public data sets that clickprism can read."""

    recipes: dict[str, Recipe]

    def tables(self) -> list[Table]:
        """Return one row for each data set."""
        header = ["name", "queries", "documents", "features", "normalise", "title"]
        rows = [
            [name, f"{it.queries:,}", f"{it.documents:,}", str(it.features), it.normalise, it.title]
            for name, it in self.recipes.items()
        ]
        return [Table("", header, rows)]


def check(name: str, folder: PathLike, *, cache: Place = "default") -> Report:
    """Return what a folder holds of a data set, what is missing, and whether counts and features are the known ones.

    Of a data set in folds, every fold that is there is checked; one whole fold is enough.
    """
    recipe, where = _recipe(name), Path(folder)
    layouts = _layouts(recipe, where)
    whole = [layout for layout in layouts.values() if not _missing(where, layout)]
    if not whole:
        best = min(layouts.values(), key=lambda layout: len(_missing(where, layout)))
        return Report(name, where, _found(where, best), tuple(_missing(where, best)), ())
    files: list[Path] = []
    counts: list[Count] = []
    for label, layout in layouts.items():
        if layout in whole:
            readings = {part: _read(recipe, where, layout[part], "raise", cache) for part in layout}
            counts += _counts(recipe, readings, label)
            files += _found(where, layout)
    return Report(name, where, tuple(dict.fromkeys(files)), (), tuple(dict.fromkeys(counts)))


def load(
    name: str,
    folder: PathLike,
    *,
    fold: int = 1,
    normalise: Kind | Literal["recipe"] = "recipe",
    drop_without_relevant: bool = False,
    on_error: OnError = "raise",
    cache: Place = "default",
) -> Dataset:
    """Load a public data set from a folder; counts that are not the known ones are an error.

    The normaliser is not kept. To save it with a model, load with `normalise="none"` and call
    `clickprism.data.normalise.normalised(dataset, kind)`, which returns it; `RECIPES[name].normalise` is the kind.

    Args:
        name: A key of `RECIPES`.
        folder: Folder with its files, plain, .gz or .zst.
        fold: The fold, for data sets in folds. Fold k trains on S_k, S_k+1, S_k+2, validates on the next subset and
            tests on the one after, counted around.
        normalise: "recipe" for what papers on this data do, or a kind of `clickprism.data.normalise`; statistics
            come from the whole training part.
        drop_without_relevant: Omit lists without a document of grade 1 or more, in every part.
        on_error: See `read_letor`. The number of skipped lines of each file, and the first of them, are logged by
            `clickprism.data.letor` as a warning.
        cache: See `read_letor`.
    """
    recipe, where = _recipe(name), Path(folder)
    if fold not in FOLDS:
        raise SettingError("fold", fold, "be from 1 to 5")
    layouts = [layout for label, layout in _layouts(recipe, where).items() if label in (f"fold {fold}", "whole")]
    if recipe.subsets:
        order = [f"S{(fold - 1 + step) % 5 + 1}.txt" for step in range(5)]
        layouts.append({"train": tuple(order[:3]), "validation": (order[3],), "test": (order[4],)})
    whole = [layout for layout in layouts if not _missing(where, layout)]
    if not whole:
        missing = ", ".join(_missing(where, layouts[0]))
        raise DataError(f"{recipe.title} lacks {missing}", file=where, remedy=f"Get it from: {recipe.source}")
    readings = {part: _read(recipe, where, whole[0][part], on_error, cache) for part in PARTS}
    wrong = [str(count) for count in _counts(recipe, readings, f"fold {fold}") if not count.ok]
    if wrong:
        raise DataError(
            f"{recipe.title}: {'; '.join(wrong)}",
            file=where,
            remedy="Is it another version of the data? Read its files with read_letor, or with --data.source files",
        )
    label = f"{name}/fold{fold}" if recipe.folds else name
    dataset = Dataset(label, *(readings[part].judged for part in PARTS))
    return _finish(dataset, recipe.normalise if normalise == "recipe" else normalise, drop_without_relevant)


def load_parts(
    train: Paths,
    validation: Paths,
    test: Paths,
    *,
    name: str = "files",
    normalise: Kind = "none",
    drop_without_relevant: bool = False,
    **options: Unpack[LetorOptions],
) -> Dataset:
    """Return a data set from any files; its parts share the base of the feature ids and the number of features.

    `options` are those of `read_letor`.
    """
    paths = (train, validation, test)
    readings = [scan_letor(path, **options) for path in paths]
    if len({reading.base for reading in readings}) > 1:
        options["base"] = 0
        readings = [scan_letor(path, **options) for path in paths]
    parts = widened([reading.judged for reading in readings])
    return _finish(Dataset(name, *parts), normalise, drop_without_relevant)


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise SettingError("name", name, f"be a known data set ({suggest(name, RECIPES)})")
    return RECIPES[name]


def _layouts(recipe: Recipe, folder: Path) -> dict[str, Layout]:
    """Return the ways in which all of the data may lie in a folder: as a whole, or in folds."""
    if not recipe.folds:
        inner = "sample/" if _find(folder, recipe.files[0]) is None and (folder / "sample").is_dir() else ""
        return {"whole": {part: (inner + file,) for part, file in zip(PARTS, recipe.files, strict=True)}}
    layouts: dict[str, Layout] = {
        f"fold {fold}": {part: (f"Fold{fold}/{file}",) for part, file in zip(PARTS, recipe.files, strict=True)}
        for fold in FOLDS
    }
    if recipe.subsets:
        layouts["all"] = {"all": tuple(f"S{subset}.txt" for subset in FOLDS)}
    return layouts


def _find(folder: Path, file: str) -> Path | None:
    return next((path for end in ENDINGS if (path := folder / f"{file}{end}").is_file()), None)


def _found(folder: Path, layout: Layout) -> tuple[Path, ...]:
    return tuple(path for files in layout.values() for file in files if (path := _find(folder, file)) is not None)


def _missing(folder: Path, layout: Layout) -> list[str]:
    return [file for files in layout.values() for file in files if _find(folder, file) is None]


def _read(recipe: Recipe, folder: Path, files: Sequence[str], on_error: OnError, cache: Place) -> Reading:
    paths = _found(folder, {"part": tuple(files)})
    return scan_letor(paths, features=recipe.features, base=1, on_error=on_error, cache=cache)


def _counts(recipe: Recipe, readings: Mapping[str, Reading], label: str) -> list[Count]:
    """Compare each part with its known counts, or all parts together where only the sum is known."""
    largest, whole = recipe.largest_id or recipe.features, (recipe.queries, recipe.documents)
    groups = {part: [readings[part]] for part in recipe.parts} or {label: list(readings.values())}
    return [
        Count(
            name,
            sum(len(reading.judged) for reading in group),
            sum(reading.judged.lists.documents for reading in group),
            max(reading.largest_id for reading in group),
            *recipe.parts.get(name, whole),
            largest if name in ("train", label) else None,
        )
        for name, group in groups.items()
    ]


def _finish(dataset: Dataset, kind: Kind, drop_without_relevant: bool) -> Dataset:
    if kind != "none":
        dataset, _ = normalised(dataset, kind)
    return dataset.map(JudgedLists.with_relevant) if drop_without_relevant else dataset
