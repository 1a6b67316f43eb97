"""Export a ranker to the format of another engine, after a reader of that format has given the same scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, final

import numpy as np

from clickprism._util.files import atomic_folder, read_json, write_errors, write_file
from clickprism._util.tables import Table
from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.model import Model
from clickprism.serve.bundle.build import read_model
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.export.check import check
from clickprism.serve.export.forest import Forest, forest_of
from clickprism.serve.scoring.scorer import read_sample
from clickprism.serve.settings import ExportSettings
from clickprism.types import Float32, Float64, Lists

Held: TypeAlias = dict[str, tuple[str, ...]]
SCALING: Final = ("none", "minmax", "standard")
GRAPH: Final = (*SCALING, "log1p")
MONOTONE: Final = (*GRAPH, "quantile")  # these go into the thresholds of trees
TREES: Final[Held] = {"lambdamart": MONOTONE}
ALL: Final[Held] = {"linear": GRAPH, "mlp": GRAPH, "attention": GRAPH, **TREES}


class Format(NamedTuple):
    """A format: the function that makes it, and the rankers that it can hold, each with the normalisers."""

    make: str
    holds: Held


FORMATS: Final[dict[str, Format]] = {
    "onnx": Format("onnx:export", ALL),
    "lightgbm": Format("libraries:export_text", TREES),
    "xgboost": Format("libraries:export_xgboost", TREES),
    "elasticsearch": Format("elastic:export", {"linear": SCALING, **TREES}),
    "opensearch": Format("elastic:export", {"linear": SCALING, **TREES}),
    "ranklib": Format("libraries:export_ranklib", TREES),
    "solr": Format("solr:export", {"linear": SCALING, "mlp": SCALING, **TREES}),
    "vespa": Format("onnx:export_vespa", ALL),
}
SOLR_LAYERS: Final = {"layer_norm": ("none",), "activation": ("relu", "tanh")}
"""The settings that a network must have for Solr."""
FEATURE_NAME: Final = re.compile(r"[^\s\"\\,:\[\]{}]+")


def holds(format_name: str) -> Held:
    """Return the kinds of rankers that a format can hold, each with the kinds of normalisers that it can hold.

    >>> holds("opensearch")["linear"]
    ('none', 'minmax', 'standard')
    """
    if format_name not in FORMATS:
        raise SettingError("for", format_name, f"be one of {', '.join(FORMATS)}")
    return FORMATS[format_name].holds


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A ranker to export.

    Attributes:
        model: Ranker, which takes raw features.
        feature_names: Names of its features, in order.
        name: Name of the model in the other engine.
        feature_set: Name of the feature set or feature store there.
        complete: Whether every document has a value for every feature.
        rows: Features of real documents to check with, [rows, features]; None if there are none.
        requests: Whether to write the requests that upload the model too.
        new_set: Whether the feature set does not exist in the engine yet.
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
            raise DataError("a feature is named twice", remedy="Give each feature a unique name")
        for name in self.feature_names:
            if not FEATURE_NAME.fullmatch(name):
                remedy = "Name features without blanks, quotes, commas, colons and brackets"
                raise DataError(f"{name!r} is not a name that every engine accepts", remedy=remedy)

    @property
    def kind(self) -> str:
        """Kind of the ranker: linear, mlp, attention or lambdamart."""
        kind: str = self.model.ranker.name
        return kind

    @property
    def normaliser(self) -> Normaliser | None:
        """How the ranker normalises raw features; None if it does not."""
        given = self.model.normaliser
        return None if given is None or given.kind == "none" else given

    @property
    def scaling(self) -> tuple[Float64, Float64]:
        """Centre and factor of each feature, of a normaliser that is a scaling, [features] each."""
        normaliser = self.normaliser
        if normaliser is None:
            return np.zeros(self.model.features), np.ones(self.model.features)
        centre, factor = normaliser.centre.copy(), normaliser.factor.copy()
        centre[list(normaliser.keep)], factor[list(normaliser.keep)] = 0, 1
        return centre, factor

    @property
    def forest(self) -> Forest:
        """The trees of the ranker over raw features."""
        return forest_of(self.model.trees.text, self.model.features, self.normaliser)

    def scores(self, rows: Float32) -> Float64:
        """Return the scores of raw features by the model itself, [rows]."""
        return self.model.score(Lists(rows, np.array([0, len(rows)]), np.array(["0"])))

    def weights(self) -> dict[str, Float64]:
        """Return the parameters of the network, by name; weights of constant features are 0 in the first layer."""
        state = {name: value.detach().numpy() for name, value in self.model.network.state_dict().items()}
        first = next(name for name in state if name.endswith("weight"))
        return state | {first: np.where(self.scaling[1] == 0, 0.0, state[first])}

    def scaled(self, scaling: str, standard: str) -> list[tuple[str, tuple[float, float]] | None]:
        """Return how an engine normalises each feature, by the names of its normalisers; None if it does not.

        The numbers are the ends of the range, or the mean and the standard deviation.
        """
        centre, factor = self.scaling
        if self.normaliser is None:
            return [None] * len(factor)
        spread = np.divide(1.0, factor, out=np.ones_like(factor), where=factor > 0)
        by_range = self.normaliser.kind == "minmax"
        pairs = zip(single(centre), single(centre + spread if by_range else spread), strict=True)
        return [
            None if factor[place] == 0 or place in self.normaliser.keep else (scaling if by_range else standard, pair)
            for place, pair in enumerate(pairs)
        ]


Reader: TypeAlias = Callable[[Mapping[str, bytes], Float32], Float64]


@final
@dataclass(frozen=True, eq=False)
class Package:
    """An export before it is written.

    Attributes:
        files: Contents by file name. One file is written as `--out`; several are written into the folder `--out`.
        reader: Returns scores of raw features, [rows], computed from the files by a library that reads this format.
        missing: Whether the reader supports missing values (NaN).
        offset: By how much the model's scores are higher, if the format has no constant term.
        notes: What a user has to know or do.
        forest: The trees over raw features; None for other rankers.
        zero: Values closer to 0 than this are 0 in the check: the format cannot distinguish them.
    """

    files: dict[str, bytes]
    reader: Reader
    missing: bool = True
    offset: float = 0.0
    notes: tuple[str, ...] = ()
    forest: Forest | None = None
    zero: float = 0.0


def package_of(source: Source, format_name: str) -> Package:
    """Return a ranker in a format; raise UnsupportedError if the format cannot hold it."""
    known = holds(format_name)
    kind = "none" if source.normaliser is None else source.normaliser.kind
    if source.kind not in known:
        others = [name for name, each in FORMATS.items() if source.kind in each.holds]
        refuse(source, format_name, f"it has {' and '.join(known)} models only", f"Export {' or '.join(others)}")
    if kind not in known[source.kind]:
        why = f"it has no normaliser that does what {kind} does"
        refuse(source, format_name, why, f"Train with data.normalise={' or '.join(known[source.kind])}")
    module, _, name = FORMATS[format_name].make.partition(":")
    package: Package = getattr(import_module(f"clickprism.serve.export.{module}"), name)(source)
    return package


def refuse(source: Source, format_name: str, why: str, remedy: str) -> NoReturn:
    """Say why a format cannot hold a ranker, and what to do."""
    raise UnsupportedError(f"{format_name} cannot hold this {source.kind} ranker: {why}", remedy=remedy)


def single(values: Any) -> Any:
    """Return numbers rounded to float32, as Python numbers, so that a reader of float32 gets exactly these."""
    return np.asarray(values, dtype=np.float32).astype(np.float64).tolist()


DEFAULT: Final = ExportSettings()


def read_source(folder: Path | str, settings: ExportSettings = DEFAULT) -> Source:
    """Return the ranker of a bundle, ready to export."""
    bundle = Bundle.load(folder)
    model, names, rows = read_model(bundle), bundle.manifest.feature_names, read_sample(bundle)[0].features
    if all(each.isdecimal() for each in names):
        names = tuple(f"feature_{each}" for each in names)
    name = settings.name or re.sub(r"[^A-Za-z0-9_.-]", "_", bundle.folder.name).lstrip(".-") or "clickprism"
    known = _known_set(Path(settings.feature_set), names) if settings.from_file else settings.feature_set
    return Source(model, names, name, known, settings.complete, rows, settings.requests, not settings.from_file)


def _known_set(file: Path, names: tuple[str, ...]) -> str:
    """Return the name of the feature set in a file, after a check that it has each feature of the ranker."""
    remedy = "Save the answer to: GET _ltr/_featureset/NAME"
    try:
        content = read_json(file, remedy=remedy)
        stored = content.get("_source", content)["featureset"]
        name, known = str(stored["name"]), {feature["name"] for feature in stored["features"]}
    except (KeyError, TypeError, AttributeError):
        raise DataError("is not a feature set of the plugin", file=file, remedy=remedy) from None
    missing = [each for each in names if each not in known]
    if missing:
        problem = f"has no feature {missing[0]!r}" + (f" and lacks {len(missing) - 1} more" if missing[1:] else "")
        remedy = f"Add it to the feature set {name!r}"
        raise DataError(problem, file=file, remedy=remedy)
    return name


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


def export(source: Source, out: Path | str, *, format_name: str) -> Exported:
    """Write a ranker in a format of `FORMATS`, after a reader of it has scored a sample as the model does.

    A format of one file writes it as `out` and replaces an older one; one of several files writes a new folder `out`.
    """
    package, out = package_of(source, format_name), Path(out)
    if len(package.files) > 1 and out.exists():
        raise DataError("exists already", file=out, remedy=f"{format_name} writes a folder: name a new one with --out")
    rows = check(source, package, format_name)
    if source.requests and "requests.json" not in package.files:
        raise SettingError("requests", format_name, "be given with a format of Elasticsearch or OpenSearch")
    files = (out,) if len(package.files) == 1 else tuple(out / name for name in package.files)
    with write_errors(out, remedy="Choose another --out"):
        if len(package.files) == 1:
            write_file(out, *package.files.values())
        else:
            with atomic_folder(out) as draft:
                for name, content in package.files.items():
                    (draft / name).parent.mkdir(parents=True, exist_ok=True)
                    (draft / name).write_bytes(content)
    return Exported(format_name, source.name, files, source.feature_names, rows, package.notes)
