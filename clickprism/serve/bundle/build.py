"""Writing a bundle: its files, a sample of scores, and a check that it scores as the ranker does."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import msgspec
import numpy as np
from scipy.special import expit

from clickprism._util.files import atomic_folder, write_errors
from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.serve.bundle.bundle import (
    MANIFEST,
    SCHEMA,
    Bundle,
    BundleManifest,
    Missing,
    Part,
    Role,
    Scope,
    file_name,
    listed,
    opened,
    pack,
    read_arrays,
    read_manifest,
)
from clickprism.serve.bundle.untrusted import checked_trees
from clickprism.serve.onnx.graph import in_graph
from clickprism.serve.onnx.networks import approximation_onnx, network_onnx
from clickprism.serve.scoring.evidence import Evidence
from clickprism.serve.scoring.scorer import Candidates, check_same, open_scorer
from clickprism.settings import choose, plain
from clickprism.types import Bool, Float32, Float64, Lists

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.relevance.approximation import Approximation
    from clickprism.serve.onnx.language import JudgedTexts, ServedLanguage
    from clickprism.training.calibration import Calibration

KEPT: Final = 8
WORDS: Final = ("red running shoes", "how to tie a bow", "city map", "opening hours", "rain", "used bicycle", "a", "")


def raw_features(
    normaliser: Normaliser | None, *, rows: int, missing: Bool, generator: np.random.Generator | None = None
) -> Float32:
    """Features as training may have had them; of those that may be `missing`, one in ten is NaN, [rows, features]."""
    draw = generator or np.random.default_rng(20260101)
    values = draw.normal(size=(rows, len(missing)))
    if normaliser is not None and normaliser.kind != "none":
        values = _like(normaliser, values, draw)
    gone = draw.random(values.shape) < 0.1
    gone[rows - 1] = True
    values[gone & missing] = np.nan
    return values.astype(np.float32)


def _like(normaliser: Normaliser, values: Float64, draw: np.random.Generator) -> Float64:
    scale = np.divide(1.0, normaliser.factor, out=np.zeros(values.shape[1]), where=normaliser.factor > 0)
    if normaliser.kind == "minmax":
        made = normaliser.centre + draw.uniform(-0.1, 1.1, values.shape) * scale
    elif normaliser.kind == "log1p":
        bent = normaliser.centre + values * scale
        made = np.copysign(np.expm1(np.minimum(np.abs(bent), 80.0)), bent)
    elif normaliser.kind == "quantile":
        places = draw.integers(0, len(normaliser.grid), values.shape)
        made = np.take_along_axis(normaliser.grid, places, axis=0)
    elif normaliser.kind == "standard":
        made = normaliser.centre + values * scale
    else:
        made = normaliser.mean + values * (1 + np.abs(normaliser.mean))
    for column in normaliser.keep:
        made[:, column] = draw.integers(0, 4, len(made))
    return made


def click_vectors(empty: Float64, *, rows: int) -> Float32:
    """Counts as a log may have them; the first pair was never shown, [rows, L]."""
    draw = np.random.default_rng(20260102)
    sums = draw.poisson(draw.gamma(0.5, 20.0, (rows, 1)), (rows, len(empty))).astype(np.float32)
    sums[0] = empty
    return sums


def stored_values(*, rows: int) -> Float32:
    """Imputed values as a store may hold them, the last of them missing, [rows, 1]."""
    values = np.linspace(0.02, 0.98, rows, dtype=np.float32)[:, None]
    values[-1] = np.nan
    return values


def to_json(candidates: Candidates, scores: Mapping[str, Float64]) -> bytes:
    """The first few candidates, with the scores of each ranker; null for a missing value."""
    kept: dict[str, Any] = {"scores": {role: values[:KEPT].tolist() for role, values in scores.items()}}
    for name, values in (("features", candidates.features), ("clicks", candidates.clicks)):
        if values is not None:
            rows: list[list[float]] = values[:KEPT].tolist()
            kept[name] = [[None if math.isnan(value) else value for value in row] for row in rows]
    if candidates.texts is not None:
        kept |= {"query": candidates.query, "texts": list(candidates.texts[:KEPT])}
    return json.dumps(kept, allow_nan=False).encode()


Ranker: TypeAlias = "Model | Approximation | CrossEncoderNetwork | ServedLanguage"
STORED: Final = "stored"
IMPUTED: Final = ("imputed",)  # the field of the store that clickprism store publish --imputed fills


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """One ranker of a bundle to be: its entry, and its files by name."""

    part: Part
    files: dict[str, bytes]


def contents_of(model: Ranker | str, *, role: Role = "main", calibration: Calibration | None = None) -> Contents:
    """The entry and the files of a ranker."""
    fitted, reader = approximation(model), cross_encoder(model)
    if model == STORED:
        made = Contents(Part(STORED, missing="mean"), {})
    elif isinstance(model, Model):
        made = _of_model(model, calibration)
    elif fitted is not None:
        made = _of_approximation(fitted)
    elif reader is not None:
        settings = {**plain(reader.settings), "model": Path(reader.settings.model).name}
        made = Contents(Part("cross-encoder", settings), reader.files())
    else:
        raise TypeError(f"a bundle is made of a ranker, not of {type(model).__name__}")
    return Contents(made.part, {file_name(role, name): content for name, content in made.files.items()})


def approximation(model: object) -> Approximation | None:
    """The model, if it is an approximation; PyTorch is not imported to find out."""
    return model if hasattr(model, "trade_off") else None  # type: ignore[return-value]


def cross_encoder(model: object) -> CrossEncoderNetwork | ServedLanguage | None:
    """The model, if it is a cross-encoder; PyTorch is not imported to find out."""
    return model if hasattr(model, "score_pairs") else None  # type: ignore[return-value]


def read_model(bundle: Bundle, role: Role = "main") -> Model:
    """The ranker on features that a bundle was made of, such as to export it; networks need PyTorch."""
    from clickprism.model import network_of
    from clickprism.rankers import RANKERS
    from clickprism.rankers.lambdamart import Trees

    part, features = bundle.manifest.part(role), len(bundle.manifest.feature_names)
    if part.kind not in RANKERS:
        raise DataError(f"is a bundle of kind {part.kind}, not of a ranker on features", file=bundle.folder)
    ranker = choose(RANKERS, {"name": part.kind, **part.settings}, path="settings")
    if part.kind == "lambdamart":
        text = bundle.read(file_name(role, "trees.txt")).decode()
        parts: Any = Trees.from_text(checked_trees(text, features=features))
    else:
        name = file_name(role, "network.safetensors")
        parts = network_of(ranker, features, bundle.path(name), bundle.read(name))
    normaliser = None
    if part.normaliser is not None:
        arrays = read_arrays(bundle, file_name(role, "normaliser.safetensors"))
        normaliser = Normaliser.from_state(part.normaliser, arrays)
    return Model(ranker, parts, features=features, method=part.method, normaliser=normaliser)


def _of_model(model: Model, calibration: Calibration | None) -> Contents:
    normaliser = _applied(model)
    trees = model.ranker.name == "lambdamart"
    files: dict[str, bytes] = {}
    state: dict[str, Any] | None = None
    within = not trees and in_graph(normaliser)
    if normaliser is not None:
        settings, arrays = normaliser.state()
        state = {**settings, "in_graph": within}
        files["normaliser.safetensors"] = pack(arrays)
    if trees:
        files["trees.txt"] = model.trees.text.encode()
    else:
        before = normaliser if within else None
        files["network.safetensors"] = pack(_arrays(model.network))
        files["network.onnx"] = network_onnx(model.ranker, model.network, features=model.features, normaliser=before)
    missing: Missing = "mean" if normaliser is not None else "own" if trees else "refuse"
    line = None if calibration is None else (calibration.slope, calibration.intercept)
    return Contents(Part(model.ranker.name, plain(model.ranker), model.method, state, missing, line), files)


def _applied(model: Model) -> Normaliser | None:
    given = model.normaliser
    return None if given is None or given.kind == "none" else given


def _of_approximation(fitted: Approximation) -> Contents:
    scale = {f"scale.{name}": getattr(fitted.scale, name) for name in ("empty", "rates", "mean", "factor")}
    networks = {f"{i}.{name}": value for i, net in enumerate(fitted.members) for name, value in _arrays(net).items()}
    settings = {
        **plain(fitted.settings),
        "means": list(fitted.means),
        "k": fitted.k,
        "imputed": usual(fitted),
    }
    files = {"network.safetensors": pack(scale | networks), "network.onnx": approximation_onnx(fitted)}
    method = {"name": "approximate", "preset": fitted.settings.preset}
    return Contents(Part("approximation", settings, method, missing="mean"), files)


def usual(fitted: Approximation) -> float:
    """What an approximation imputes where nothing is known: the mean of training, of log odds where it adds those."""
    return fitted.means[0] if fitted.settings.published else float(1 / (1 + np.exp(-fitted.means[1])))


def _arrays(network: Any) -> dict[str, Any]:
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


ROWS: Final = 256
TOLERANCE: Final = 1e-5
SMALL: Final = 1e-6


@final
@dataclass(frozen=True, eq=False)
class Original:
    """What a bundle is made from: the ranker, and for an approximation what imputes.

    Attributes:
        model: the ranker.
        imputation: of an approximation; None imputes the mean of training.
        calibration: of an imputation by features.
        naive: another ranker on the same features, to compare with.
    """

    model: Ranker
    imputation: Ranker | str | None
    calibration: Calibration | None
    naive: Model | None

    def __post_init__(self) -> None:
        if self.imputation is not None and approximation(self.model) is None:
            raise DataError("only an approximation has an imputation", remedy="Leave --imputation out")
        if isinstance(self.imputation, Model) and self.calibration is None:
            raise DataError("an imputation by features needs its calibration", remedy="Give the one it was fitted with")
        if self.naive is not None and self.naive.features != self._width:
            problem = f"the naive ranker takes {self.naive.features} features, the other {self._width}"
            raise DataError(problem, remedy="Give one that was trained on the same data")

    @property
    def click_fields(self) -> tuple[str, ...]:
        """The fields of click vectors; none but of an approximation."""
        fitted = approximation(self.model)
        return () if fitted is None else fitted.scale.fields

    def feature_names(self, given: Sequence[str]) -> tuple[str, ...]:
        """The names of the features: those given, or feature_1, feature_2, ... ."""
        if self.imputation == STORED:
            return IMPUTED
        if given and len(given) != self._width:
            raise DataError(f"there are {len(given)} names of features, the ranker takes {self._width}")
        return tuple(given) or tuple(f"feature_{place + 1}" for place in range(self._width))

    def sample(self) -> bytes:
        """The sample that goes into the bundle."""
        drawn = self.draw(KEPT)
        scores: dict[str, Float64] = {"main": self.score(drawn)}
        if self.naive is not None:
            scores["naive"] = _by_model(self.naive, drawn)
        return to_json(drawn, scores)

    def draw(self, rows: int) -> Candidates:
        """Candidates that the ranker can score, some with missing values; texts are few."""
        fitted, first = approximation(self.model), self._first
        query, texts, features = None, None, None
        if cross_encoder(first) is not None:
            query, texts, rows = WORDS[0], WORDS, len(WORDS)
        if isinstance(first, Model):
            missing = may_miss(first) if self.naive is None else may_miss(first) & may_miss(self.naive)
            features = raw_features(first.normaliser, rows=rows, missing=missing)
        elif first == STORED:
            features = stored_values(rows=rows)
        clicks = None if fitted is None else click_vectors(fitted.scale.empty, rows=rows)
        return Candidates(query, texts, features, clicks)

    def score(self, drawn: Candidates) -> Float64:
        """Scores by the ranker itself, [n]."""
        fitted = approximation(self.model)
        if fitted is None or drawn.clicks is None:
            return _by_first(self.model, drawn)
        if self.imputation is None or isinstance(self.imputation, str):
            imputed = np.full(len(drawn), usual(fitted))
            if drawn.features is not None:
                given = drawn.features[:, 0].astype(np.float64)
                imputed = np.where(np.isnan(given), imputed, given)
            return fitted.estimate(drawn.clicks, imputed)
        imputed = _by_first(self.imputation, drawn)
        if self.calibration is not None:
            imputed = np.clip(expit(self.calibration(imputed)), SMALL, 1 - SMALL)
        return fitted.estimate(drawn.clicks, imputed)

    @property
    def _first(self) -> Ranker | str | None:
        """What takes features or texts: the ranker, or the imputation of an approximation."""
        return self.model if approximation(self.model) is None else self.imputation

    @property
    def _width(self) -> int:
        return self._first.features if isinstance(self._first, Model) else 0


def check_copy(bundle: Bundle, original: Original) -> None:
    """Refuse a bundle that scores otherwise than its original, on its own sample and on a larger one."""
    drawn = original.draw(ROWS)
    roles: list[Role] = ["main"] if original.naive is None else ["main", "naive"]
    for role in roles:
        scorer = open_scorer(bundle, role=role)
        scorer.warm()
        wanted = original.score(drawn) if role == "main" else _by_model(original.naive, drawn)
        found = scorer.score(drawn).scores
        check_same(found, wanted, tolerance=TOLERANCE, file=bundle.manifest.name)


def may_miss(model: Model) -> Bool:
    """The features for which a ranker has a rule where the value is missing, [features].

    Trees always have one; for others it is the mean of training, which the normalisation knows. Columns that it keeps
    have none but as codes, whose networks know an unknown one.
    """
    known = np.full(model.features, model.ranker.name == "lambdamart")
    if model.ranker.name == "lambdamart" or model.normaliser is None or model.normaliser.kind == "none":
        return known
    codes = getattr(model.ranker, "categorical", ())
    known[:] = True
    known[[place for place in model.normaliser.keep if place not in codes]] = False
    return known


def _by_first(model: Ranker, drawn: Candidates) -> Float64:
    reader = cross_encoder(model)
    if reader is None or drawn.query is None or drawn.texts is None:
        return _by_model(model, drawn)
    return reader.score_pairs([drawn.query] * len(drawn), drawn.texts)


def _by_model(model: Ranker | None, drawn: Candidates) -> Float64:
    if not isinstance(model, Model) or drawn.features is None:
        raise DataError("there is no ranker on features to score by")
    return model.score(Lists(drawn.features, np.array([0, len(drawn)]), np.array(["sample"])))


def write_bundle(
    folder: Path | str,
    model: Model | Approximation | CrossEncoderNetwork,
    *,
    name: str = "",
    feature_names: Sequence[str] = (),
    imputation: Model | CrossEncoderNetwork | Literal["stored"] | None = None,
    calibration: Calibration | None = None,
    naive: Model | None = None,
    observation: Float64 | None = None,
    data: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    scope: Scope | None = None,
    evidence: Evidence | None = None,
    examples: bytes | None = None,
    diagnosis: bytes | None = None,
    created: datetime | None = None,
    judged: JudgedTexts | None = None,
    int8: bool = True,
    replace: bool = False,
) -> Bundle:
    """Make a bundle: beside its place first, checked there, then renamed; nothing is there if anything fails.

    Args:
        folder: that is to be the bundle.
        model: a ranker on features, an approximation, or a cross-encoder.
        name: for people; by default that of the folder.
        feature_names: of its features, in order; by default feature_1, feature_2, ...
        imputation: of an approximation: a ranker on features with its calibration; a cross-encoder; "stored", a
            feature named imputed, such as of the online store; None imputes the mean of training.
        calibration: of an imputation by features.
        naive: a ranker on the same features that took clicks for relevance.
        observation: by position, relative to the first.
        data: what it was trained on.
        metrics: what it reached.
        notes: what a reader should know.
        scope: which documents of a query the ranker may reorder; the service enforces it. None says nothing, and does
            not limit the service.
        evidence: how scores are joined with the clicks on a pair, where the online store has them.
        examples: example queries for the page, as `Examples.bytes` gives them.
        diagnosis: of the log, for the page: JSON as `clickprism diagnose --json` prints it.
        created: when; by default now.
        judged: pairs of texts with grades, by which a language model in int8 is judged.
        int8: whether a language model may be served in int8.
        replace: an older bundle at the same place.
    """
    from clickprism.serve.bundle.card import model_card

    place = Path(os.path.abspath(folder))
    known = _is_bundle(place)
    if place.exists() and not (replace and known):
        remedy = "Choose another folder, or replace it with --replace" if known else "Choose another folder"
        raise DataError("exists already", file=folder, remedy=remedy)
    served, read = _served(model, judged, int8=int8)
    imputing, also = _served(imputation, judged, int8=int8)
    original = Original(served, imputing, calibration, naive)
    main = contents_of(served)
    beside: dict[Role, Contents] = {}
    if imputing is not None:
        beside["imputation"] = contents_of(imputing, role="imputation", calibration=calibration)
    if naive is not None:
        beside["naive"] = contents_of(naive, role="naive")
    contents = {**main.files, "sample.json": original.sample()}
    for each in beside.values():
        contents |= each.files
    if examples is not None:
        contents["examples.json"] = examples
    if diagnosis is not None:
        contents["diagnosis.json"] = diagnosis
    manifest = BundleManifest(
        SCHEMA,
        main.part.kind,
        files={},
        name=name or place.name,
        method=main.part.method,
        settings=main.part.settings,
        feature_names=original.feature_names(feature_names),
        normaliser=main.part.normaliser,
        missing=main.part.missing,
        click_fields=original.click_fields,
        imputation=beside["imputation"].part if "imputation" in beside else None,
        naive=beside["naive"].part if "naive" in beside else None,
        observation=() if observation is None else tuple(float(value) for value in observation),
        data=dict(data or {}),
        metrics={key: float(value) for key, value in (metrics or {}).items()},
        created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
        clickprism=version("clickprism"),
        notes=(*notes, *read, *also),
        scope=scope,
        evidence=evidence,
    )
    contents["MODEL_CARD.md"] = model_card(manifest).encode()
    hashes = {key: hashlib.sha256(content).hexdigest() for key, content in sorted(contents.items())}
    manifest = msgspec.structs.replace(manifest, files=hashes)
    contents[MANIFEST] = json.dumps(manifest.plain(), indent=1, ensure_ascii=False).encode()
    with write_errors(folder), atomic_folder(place) as draft:
        for key, content in contents.items():
            (draft / key).write_bytes(content)
        check_copy(Bundle.load(draft), original)
    return Bundle.load(place)


def _served(model: Any, judged: JudgedTexts | None, *, int8: bool) -> tuple[Any, tuple[str, ...]]:
    """A ranker as it will be served, and what a reader should know of that; only a language model is another."""
    reader = cross_encoder(model)
    if reader is None:
        return model, ()
    from clickprism.serve.onnx.language import serve_language

    served = serve_language(model, judged=judged, int8=int8)
    return served, getattr(served, "notes", ("The language model is served by PyTorch: it is no BERT.",))


def _is_bundle(folder: Path) -> bool:
    """Whether a folder holds a bundle and nothing else, whole or damaged; it is no one's loss if it is replaced."""
    try:
        found = set(listed(folder))
        with opened(folder, MANIFEST) as file:
            manifest = read_manifest(file.read(), folder / MANIFEST)
    except (DataError, OSError):
        return False
    return found <= {MANIFEST, *manifest.files}
