"""From a model or a bundle to checked files of another engine's format, written whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, final

import msgspec
import numpy as np

from clickprism._util.files import atomic_folder, write_errors, write_file
from clickprism._util.tables import Table
from clickprism.data.normalise import KINDS, Normaliser
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.model import MANIFEST, Model
from clickprism.serve.export.forest import Forest, Tree
from clickprism.serve.settings import ExportSettings
from clickprism.settings import resolve
from clickprism.types import Float32, Float64, Int64, Lists

FORMATS: Final[dict[str, str]] = {
    "onnx": "clickprism.serve.export.onnx:export",
    "lightgbm": "clickprism.serve.export.libraries:export_text",
    "xgboost": "clickprism.serve.export.libraries:export_xgboost",
    "elasticsearch": "clickprism.serve.export.elastic:export",
    "opensearch": "clickprism.serve.export.elastic:export",
    "xgboost-json": "clickprism.serve.export.elastic:export_trees",
    "linear-json": "clickprism.serve.export.elastic:export_linear",
    "ranklib": "clickprism.serve.export.libraries:export_ranklib",
    "solr": "clickprism.serve.export.solr:export",
    "vespa": "clickprism.serve.export.vespa:export",
}

NAME: Final = re.compile(r"[^\s\"\\,:\[\]{}]+")
SCALING: Final = ("none", "minmax", "standard")
ALONE: Final = (*SCALING, "log1p", "quantile")
_PLUGIN: Final = {"linear": SCALING, "lambdamart": ALONE}
HOLDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "onnx": dict.fromkeys(("linear", "mlp", "attention", "lambdamart"), KINDS),
    "lightgbm": {"lambdamart": ALONE},
    "xgboost": {"lambdamart": ALONE},
    "elasticsearch": _PLUGIN,
    "opensearch": _PLUGIN,
    "xgboost-json": {"lambdamart": ALONE},
    "linear-json": {"linear": SCALING},
    "ranklib": {"lambdamart": ALONE},
    "solr": {"linear": SCALING, "mlp": SCALING, "lambdamart": ALONE},
    "vespa": dict.fromkeys(("linear", "mlp", "attention", "lambdamart"), ALONE),
}
"""The rankers that each format can hold, and the normalisers that it can hold with each of them."""
SOLR_LAYERS: Final = {"activation": ("relu", "tanh"), "layer_norm": ("none",)}
"""What a network must consist of for Solr."""


def holds(format_name: str) -> dict[str, tuple[str, ...]]:
    """Return the kinds of rankers that a format can hold, each with the kinds of normalisers that it can hold.

    A network for Solr must also have the settings in `SOLR_LAYERS`.

    >>> holds("opensearch")["linear"]
    ('none', 'minmax', 'standard')
    """
    check_format(format_name)
    return dict(HOLDS[format_name])


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A ranker to export.

    Attributes:
        model: takes raw features where it has a normaliser.
        feature_names: in the order of its features.
        name: of the model in the other engine.
        feature_set: name of the feature set or feature store there.
        requests: whether the requests that upload the model are written too, where the format has them.
        new_set: whether the feature set does not exist in the engine yet.
        complete: no document ever lacks a feature; a format that cannot say what a missing one means is refused else.
        rows: features as they occur, to check with, [rows, features]; None where none are known.
    """

    model: Model
    feature_names: tuple[str, ...]
    name: str = "clickprism"
    feature_set: str = "clickprism"
    complete: bool = False
    rows: Float32 | None = None
    requests: bool = False
    new_set: bool = True

    def __post_init__(self) -> None:
        ExportSettings(name=self.name, feature_set=self.feature_set)
        if len(self.feature_names) != self.model.features:
            problem = f"{len(self.feature_names)} names of features but the model takes {self.model.features}"
            raise DataError(problem, remedy="Name each feature once, in the order of the model")
        if len(set(self.feature_names)) < len(self.feature_names):
            raise DataError("a feature is named twice", remedy="Give every feature a name of its own")
        for name in self.feature_names:
            if not NAME.fullmatch(name):
                remedy = "Name features without blanks, quotes, commas, colons and brackets"
                raise DataError(f"{name!r} is no name that every engine takes", remedy=remedy)

    @property
    def kind(self) -> str:
        """Of the ranker: linear, mlp, attention or lambdamart."""
        kind: str = self.model.ranker.name
        return kind

    @property
    def normaliser(self) -> Normaliser | None:
        """What the ranker wants done to raw features; None where they go in as they are."""
        given = self.model.normaliser
        return None if given is None or given.kind == "none" else given

    @property
    def by_list(self) -> bool:
        """Whether features are normalised within each list."""
        return self.normaliser is not None and self.normaliser.kind.startswith("query-")

    def scores(self, rows: Float32, offsets: Int64 | None = None) -> Float64:
        """Scores of raw features by the model itself, [rows]; all rows are one list unless `offsets` says otherwise."""
        offsets = np.array([0, len(rows)]) if offsets is None else offsets
        return self.model.score(Lists(rows, offsets, np.arange(len(offsets) - 1).astype(np.str_)))


Ranges: TypeAlias = dict[int, tuple[np.float32, np.float32]]
Reader: TypeAlias = Callable[[Mapping[str, bytes], Float32], Float64]


@final
@dataclass(frozen=True, eq=False)
class Package:
    """An export before it is written.

    Attributes:
        files: by name; a single one is written as `--out` itself, several into it as a folder.
        reader: scores [rows] that the files give to raw features [rows, features], by a reader of their format.
        missing: whether the reader knows missing values (NaN).
        offset: the model's scores are higher by so much: the format has no constant term.
        notes: what a user has to know or do.
        forest: the trees of it, over raw features unless those are normalised within lists; None for a network.
        zero: values closer to 0 than this are 0 in the check: the format cannot tell them apart.
    """

    files: dict[str, bytes]
    reader: Reader
    missing: bool = True
    offset: float = 0.0
    notes: tuple[str, ...] = ()
    forest: Forest | None = None
    zero: float = 0.0


def refuse(source: Source, format_name: str, why: str, instead: str) -> NoReturn:
    """Say why a format cannot hold a ranker, and which can."""
    raise UnsupportedError(f"{format_name} cannot hold this {source.kind} ranker: {why}", remedy=f"Export {instead}")


def check_held(source: Source, format_name: str, instead: str = "onnx") -> None:
    """Refuse a ranker or a normaliser that the format cannot hold.

    Args:
        source: The ranker.
        format_name: A format of `HOLDS`.
        instead: What to export instead of a ranker of this kind.
    """
    known = HOLDS[format_name]
    if source.kind not in known:
        refuse(source, format_name, f"it has {' and '.join(known)} models only", instead)
    if source.by_list and "query-minmax" not in known[source.kind]:
        why = "features are normalised within each list, and it scores a document alone"
        refuse(source, format_name, why, "onnx, for a list at a time, or train with another normaliser")
    kind = "none" if source.normaliser is None else source.normaliser.kind
    if kind not in known[source.kind]:
        why = f"it has no normaliser that does what {kind} does"
        refuse(source, format_name, why, "onnx, or train with minmax or standard")


def scaling(source: Source) -> tuple[Float64, Float64]:
    """Return the centre and the factor of each feature under a normaliser that is a scaling, [features] each."""
    normaliser = source.normaliser
    if normaliser is None:
        return np.zeros(source.model.features), np.ones(source.model.features)
    centre, factor = normaliser.centre.copy(), normaliser.factor.copy()
    centre[list(normaliser.keep)], factor[list(normaliser.keep)] = 0, 1
    return centre, factor


def linear_parts(source: Source) -> tuple[Float64, float]:
    """The weights of a linear ranker, [features], and its constant."""
    state = {name: value.detach().numpy() for name, value in source.model.network.state_dict().items()}
    return state["output.weight"][0].astype(np.float64), float(state["output.bias"][0])


def single(values: Any) -> Any:
    """Numbers rounded to float32, as Python's own, so that a reader of float32 finds just these."""
    return np.asarray(values, dtype=np.float32).astype(np.float64).tolist()


BUNDLE: Final = "manifest.json"
RECORD: Final = "run.json"  # what clickprism train says of a run
RUN: Final = "model"  # what a run of clickprism train calls its own
MOST: Final = 64 << 20
DEFAULT: Final = ExportSettings()


def read_source(folder: Path | str, settings: ExportSettings = DEFAULT) -> Source:
    """Return the ranker in the folder of a model or a bundle, ready to export."""
    folder = Path(folder)
    rows: Float32 | None = None
    names: tuple[str, ...] = ()
    if (folder / BUNDLE).exists():
        model, names, rows = _bundle(folder)
    elif (folder / MANIFEST.name).exists() or (folder / RUN / MANIFEST.name).exists():
        model = Model.load(folder if (folder / MANIFEST.name).exists() else folder / RUN)
        names = _names_of_run(folder)
    else:
        remedy = "Name a folder written by clickprism train or clickprism model bundle"
        raise DataError(
            f"is neither a model nor a bundle: it has no {MANIFEST.name}, no {BUNDLE}", file=folder, remedy=remedy
        )
    if settings.feature_names is not None:
        names = names_from(settings.feature_names)
    if not names or all(each.isdecimal() for each in names):
        names = tuple(f"feature_{place}" for place in range(1, model.features + 1))
    name = settings.name or re.sub(r"[^A-Za-z0-9_.-]", "_", folder.resolve().name).lstrip(".-") or "clickprism"
    known = settings.feature_set if not settings.from_file else _known_set(Path(settings.feature_set), names)
    new = not settings.from_file
    return Source(model, names, name, known, settings.complete, rows, settings.requests, new)


def _names_of_run(folder: Path) -> tuple[str, ...]:
    """Return the names of features that `clickprism train` recorded; none if there is no record."""
    file = next((each for each in (folder / RECORD, folder.parent / RECORD) if each.is_file()), None)
    if file is None:
        return ()
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Record).feature_names
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"is not the record of a run ({error})", file=file) from None


class _Record(msgspec.Struct):
    feature_names: tuple[str, ...] = ()


class _Feature(msgspec.Struct):
    name: str


class _FeatureSet(msgspec.Struct):
    name: str
    features: list[_Feature]


class _Stored(msgspec.Struct):
    featureset: _FeatureSet


class _Found(msgspec.Struct):
    source: _Stored = msgspec.field(name="_source")


def _known_set(file: Path, names: tuple[str, ...]) -> str:
    """Return the name of the feature set in a file, after a check that it has each feature of the ranker."""
    try:
        content = file.read_bytes()
        try:
            found = msgspec.json.decode(content, type=_Found).source.featureset
        except msgspec.ValidationError:
            found = msgspec.json.decode(content, type=_Stored).featureset
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from None
    except msgspec.DecodeError as error:
        remedy = "Save the answer to: GET _ltr/_featureset/NAME"
        raise DataError(f"is not a feature set of the plugin ({error})", file=file, remedy=remedy) from None
    known = {feature.name for feature in found.features}
    missing = [name for name in names if name not in known]
    if missing:
        problem = f"has no feature {missing[0]!r}" + (f" and lacks {len(missing) - 1} more" if missing[1:] else "")
        remedy = f"Add it to the feature set {found.name!r}, or name the features with --feature-names"
        raise DataError(problem, file=file, remedy=remedy)
    return found.name


def names_from(file: Path) -> tuple[str, ...]:
    """The names of features in a file: one a line, or a JSON list."""
    try:
        if file.stat().st_size > MOST:
            raise DataError(f"is larger than {MOST >> 20} MB, which no list of names is", file=file)
        text = file.read_text(encoding="utf-8")
        if not text.lstrip().startswith("["):
            return tuple(line.strip() for line in text.splitlines() if line.strip())
        names = json.loads(text)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from None
    except ValueError as error:
        raise DataError(f"is no list of names ({error})", file=file, remedy="Write one name a line") from None
    if not all(isinstance(name, str) for name in names):
        raise DataError("has a name that is no text", file=file, remedy="Write one name a line")
    return tuple(names)


def _bundle(folder: Path) -> tuple[Model, tuple[str, ...], Float32 | None]:
    from clickprism.serve.bundle.build import read_model
    from clickprism.serve.bundle.bundle import Bundle
    from clickprism.serve.scoring.scorer import read_sample

    bundle = Bundle.load(folder)
    model = read_model(bundle)
    rows = read_sample(bundle, "main")[0].features
    return model, bundle.manifest.feature_names, None if rows is None else np.asarray(rows, np.float32)


@final
@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        format: Format of the export.
        name: Name of the model in the other system.
        files: Paths of the files.
        feature_names: Names of the features, in the order of the model.
        rows_checked: Number of rows that the model and a reader of the format scored alike.
        notes: What the user has to know or do.
    """

    format: str
    name: str
    files: tuple[Path, ...]
    feature_names: tuple[str, ...]
    rows_checked: int
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return the files and the notes."""
        rows = [
            ["model", self.name],
            *[["file", str(file)] for file in self.files],
            ["check", f"{self.rows_checked:,} rows have the same scores as in the model"],
            *[["note", note[0].upper() + note[1:]] for note in self.notes],
        ]
        return [Table("", ["format", self.format], rows)]


def export(source: Source, out: Path | str, *, format_name: str, seed: int = 0) -> Exported:
    """Write a ranker in a format of `FORMATS`, after a reader of it has scored a sample as the model does.

    A format of one file writes it as `out`, replacing an older one; one of several writes a folder `out`, which must
    not be there yet.
    """
    check_format(format_name)
    maker: Any = resolve(FORMATS, format_name, path="format")
    package: Package = maker(source)
    out = Path(out)
    if len(package.files) > 1 and out.exists():
        raise DataError("exists already", file=out, remedy=f"{format_name} writes a folder: name a new one with --out")
    rows = check(source, package, format_name, seed=seed)
    if source.requests and "requests.json" not in package.files:
        raise SettingError("requests", format_name, "be given with a format of Elasticsearch or OpenSearch")
    files = _written(package, out)
    return Exported(format_name, source.name, files, source.feature_names, rows, package.notes)


def check_format(name: str) -> None:
    """Refuse a format that there is none of, before anything is read."""
    if name not in FORMATS:
        raise SettingError("for", name, f"be one of {', '.join(FORMATS)}")


def _written(package: Package, out: Path) -> tuple[Path, ...]:
    """Write the only file as `out`, or several into the folder `out`."""
    with write_errors(out, remedy="Choose another --out"):
        if len(package.files) == 1:
            write_file(out, *package.files.values())
            return (out,)
        with atomic_folder(out) as draft:
            for name, content in package.files.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_bytes(content)
    return tuple(out / name for name in package.files)


ROWS: Final = 1024
GIVEN: Final = 512
SPLITS: Final = 10_000
LGBM_ZERO: Final = 1.1e-35  # LightGBM takes what is this close to 0 for 0
HUGE: Final = np.float32(1e30)
OF_TREES: Final = 2e-6
OF_NETWORKS: Final = 1e-4


def check(source: Source, package: Package, format_name: str, *, rows: int = ROWS, seed: int = 0) -> int:
    """Refuse an export whose reader scores a row differently; how many rows were compared.

    Rows are those the source gives, and drawn ones: within the ranges of training, extreme, and with missing values
    where the format has them. For trees, three rows more lead to each split, or to each of many where there are very
    many: at its threshold, right above, and missing. Scores may differ by what float32 sums differ by.
    """
    matrix = sample(source, package, rows=rows, seed=seed)
    expected = source.scores(matrix) - package.offset
    found = np.asarray(package.reader(package.files, matrix), dtype=np.float64)
    if found.shape != expected.shape:
        raise DataError(f"{format_name} gives {found.shape} scores for {len(matrix)} rows; nothing was written")
    if package.forest is None:
        allowed = OF_NETWORKS * np.maximum(np.abs(expected), np.median(np.abs(expected)))
    else:
        allowed = np.full(len(matrix), OF_TREES * package.forest.scale)
    wrong = np.flatnonzero(~(np.abs(found - expected) <= allowed))
    if len(wrong):
        row = int(wrong[0])
        values = ", ".join(f"{value:.9g}" for value in matrix[row][:8]) + (", ..." if matrix.shape[1] > 8 else "")
        problem = f"row {row} ({values}) scores {found[row]:.9g} in {format_name} and {expected[row]:.9g} in the model"
        remedy = "Nothing was written: export another format, and report this"
        raise DataError(f"{problem} ({len(wrong)} of {len(matrix)} rows differ)", remedy=remedy)
    return len(matrix)


def sample(source: Source, package: Package, *, rows: int, seed: int) -> Float32:
    """Rows that are likely to tell an export from its model, [rows or more, features]."""
    generator = np.random.default_rng(seed)
    forest = None if source.by_list else package.forest
    matrix = _plain(source, forest, rows, generator)
    codes = list(getattr(source.model.ranker, "categorical", ()))
    for column, size in zip(codes, getattr(source.model.ranker, "categories", ()), strict=True):
        matrix[:, column] = generator.integers(0, size + 2, len(matrix))
    if package.forest is not None or source.normaliser is not None:
        missing = generator.random(matrix.shape) < generator.choice([0.0, 0.1, 0.5], (len(matrix), 1))
        missing[-1] = True
        missing[:, codes] = False
        if source.normaliser is not None and package.forest is None:
            missing[:, list(source.normaliser.keep)] = False
        matrix[missing] = np.nan
    if forest is not None:
        matrix = np.concatenate([matrix, at_splits(forest, matrix, generator)])
        matrix[np.abs(matrix) <= max(package.zero, LGBM_ZERO)] = 0
    return matrix if package.missing else np.where(np.isnan(matrix), np.float32(0), matrix)


def at_splits(forest: Forest, matrix: Float32, generator: np.random.Generator) -> Float32:
    """Three rows for each split that lead there from the root and then to its threshold, above it, and nowhere."""
    places = [place for tree in forest.trees if len(tree.feature) for place in _ways(tree)]
    chosen = generator.permutation(len(places))[:SPLITS]
    rows = matrix[generator.integers(0, len(matrix), len(chosen))].repeat(3, axis=0)
    for row, place in enumerate(chosen.tolist()):
        column, threshold, ranges = places[place]
        three = slice(3 * row, 3 * row + 3)
        for feature, (low, high) in ranges.items():
            rows[three, feature] = high if high < HUGE else np.nextafter(max(low, -HUGE), HUGE)
        following = min(np.nextafter(threshold, np.float32(np.inf)), HUGE) if threshold < HUGE else threshold
        rows[three, column] = np.clip([threshold, following, np.nan], -HUGE, HUGE)
    return rows


def _ways(tree: Tree) -> Iterator[tuple[int, np.float32, Ranges]]:
    """The feature and threshold of each split, and the values that lead there: above one number, at most another."""
    todo: list[tuple[int, Ranges]] = [(tree.root(), {})]
    while todo:
        node, ranges = todo.pop()
        if node < 0:
            continue
        feature, threshold = int(tree.feature[node]), np.float32(tree.threshold[node])
        yield feature, threshold, ranges
        low, high = ranges.get(feature, (np.float32(-np.inf), np.float32(np.inf)))
        todo.append((int(tree.left[node]), {**ranges, feature: (low, min(high, threshold))}))
        todo.append((int(tree.right[node]), {**ranges, feature: (max(low, threshold), high)}))


def _plain(source: Source, forest: Forest | None, rows: int, generator: np.random.Generator) -> Float32:
    from clickprism.serve.bundle.build import raw_features

    nowhere = np.zeros(source.model.features, np.bool_)
    drawn = raw_features(source.normaliser, rows=rows, missing=nowhere, generator=generator).astype(np.float64)
    for column, cuts in enumerate(() if forest is None else forest.splits()):
        if len(cuts) > 1:
            spread = (float(cuts[-1]) - float(cuts[0])) / 2
            drawn[:, column] = float(np.median(cuts)) + spread * generator.normal(size=rows)
    if forest is not None:
        extreme = generator.random(drawn.shape) < 0.01
        drawn[extreme] = generator.choice(np.array([-HUGE, HUGE, 0.0, -0.0]), int(extreme.sum()))
    elif not source.by_list:
        drawn[: rows // 16] *= 100
    matrix = np.clip(drawn, -HUGE, HUGE).astype(np.float32)
    return matrix if source.rows is None else np.concatenate([source.rows[:GIVEN], matrix]).astype(np.float32)
