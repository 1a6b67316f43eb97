"""What an export starts from, a ranker with the names of its features, and what it makes: files that were checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias, final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError, UnsupportedError
from clickprism.model import Model
from clickprism.serve.export.forest import Forest
from clickprism.serve.settings import ExportSettings
from clickprism.types import Float32, Float64, Int64, Lists

NAME: Final = re.compile(r"[^\s\"\\,:\[\]{}]+")


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A ranker to export.

    Attributes:
        model: takes raw features where it has a normaliser.
        feature_names: in the order of its features.
        name: of the model in the other engine.
        feature_set: name of the feature set or feature store there.
        complete: no document ever lacks a feature; a format that cannot say what a missing one means is refused else.
        rows: features as they occur, to check with, [rows, features]; None where none are known.
    """

    model: Model
    feature_names: tuple[str, ...]
    name: str = "clickprism"
    feature_set: str = "clickprism"
    complete: bool = False
    rows: Float32 | None = None

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


def want_alone(source: Source, format_name: str) -> None:
    """Refuse features that are normalised within a list, where documents are scored one by one."""
    if source.by_list:
        why = "features are normalised within each list, and it scores a document alone"
        refuse(source, format_name, why, "onnx, for a list at a time, or train with another normaliser")


def want_kind(source: Source, format_name: str, kinds: tuple[str, ...], instead: str) -> None:
    """Refuse rankers that the format has no model for."""
    if source.kind not in kinds:
        refuse(source, format_name, f"it has {' and '.join(kinds)} models only", instead)


def scaling(source: Source, format_name: str) -> tuple[Float64, Float64]:
    """Centre and factor of each feature, [features] each; a normaliser that is no scaling is refused."""
    want_alone(source, format_name)
    normaliser = source.normaliser
    if normaliser is None:
        return np.zeros(source.model.features), np.ones(source.model.features)
    if normaliser.kind not in ("minmax", "standard"):
        why = f"it has no normaliser that does what {normaliser.kind} does"
        refuse(source, format_name, why, "onnx, or train with minmax or standard")
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
