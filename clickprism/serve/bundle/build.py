"""Write a bundle: its files, a sample of scores, and a check that it scores as the ranker does."""

from __future__ import annotations

import hashlib
import json
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
from clickprism._util.tables import to_plain
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
    from clickprism.serve.onnx.language import ServedLanguage
    from clickprism.training.calibration import Calibration

KEPT: Final = 8  # candidates of the sample in the bundle
ROWS: Final = 256  # candidates that a new bundle is checked with
TOLERANCE: Final = 1e-5
SMALL: Final = 1e-6
WORDS: Final = ("red running shoes", "how to tie a bow", "city map", "opening hours", "rain", "used bicycle", "a", "")
STORED: Final = "stored"
IMPUTED: Final = ("imputed",)  # the field of the store that clickprism store publish --imputed fills
Ranker: TypeAlias = "Model | Approximation | CrossEncoderNetwork | ServedLanguage"


def raw_features(
    normaliser: Normaliser | None, *, rows: int, missing: Bool, generator: np.random.Generator | None = None
) -> Float32:
    """Draw features like those of training; one in ten of those that may be `missing` is NaN, [rows, features]."""
    draw = generator or np.random.default_rng(20260101)
    values = draw.normal(size=(rows, len(missing)))
    if normaliser is not None and normaliser.kind != "none":
        scale = np.divide(1.0, normaliser.factor, out=np.zeros(len(missing)), where=normaliser.factor > 0)
        scaled = normaliser.centre + values * scale
        if normaliser.kind == "log1p":
            values = np.copysign(np.expm1(np.minimum(np.abs(scaled), 80.0)), scaled)
        elif normaliser.kind == "quantile":
            values = np.take_along_axis(normaliser.grid, draw.integers(0, len(normaliser.grid), values.shape), axis=0)
        elif normaliser.kind.startswith("query-"):
            values = normaliser.mean + values * (1 + np.abs(normaliser.mean))
        else:
            values = scaled
        for column in normaliser.keep:
            values[:, column] = draw.integers(0, 4, rows)
    gone = draw.random(values.shape) < 0.1
    gone[rows - 1] = True
    values[gone & missing] = np.nan
    return values.astype(np.float32)


def to_json(candidates: Candidates, scores: Mapping[Role, Float64]) -> bytes:
    """Return the first few candidates with the scores of each ranker; a missing value is null."""
    kept: dict[str, Any] = {"scores": {role: values[:KEPT].tolist() for role, values in scores.items()}}
    for name, values in (("features", candidates.features), ("clicks", candidates.clicks)):
        if values is not None:
            kept[name] = to_plain(values[:KEPT])
    if candidates.texts is not None:
        kept |= {"query": candidates.query, "texts": list(candidates.texts[:KEPT])}
    return json.dumps(kept, allow_nan=False).encode()


def approximation(model: object) -> Approximation | None:
    """Return the model if it is an approximation, without an import of PyTorch."""
    return model if hasattr(model, "trade_off") else None  # type: ignore[return-value]


def cross_encoder(model: object) -> CrossEncoderNetwork | ServedLanguage | None:
    """Return the model if it is a cross-encoder, without an import of PyTorch."""
    return model if hasattr(model, "score_pairs") else None  # type: ignore[return-value]


def contents_of(
    model: Ranker | str, *, role: Role = "main", calibration: Calibration | None = None
) -> tuple[Part, dict[str, bytes]]:
    """Return the entry of a ranker in the manifest, and its files by name."""
    fitted, reader = approximation(model), cross_encoder(model)
    files: dict[str, bytes] = {}
    if isinstance(model, Model):
        normaliser, trees = _applied(model), model.ranker.name == "lambdamart"
        within, state = not trees and in_graph(normaliser), None
        if normaliser is not None:
            settings, arrays = normaliser.state()
            state = {**settings, "in_graph": within}
            files["normaliser.safetensors"] = pack(arrays)
        if trees:
            files["trees.txt"] = model.trees.text.encode()
        else:
            before = normaliser if within else None
            graph = network_onnx(model.ranker, model.network, features=model.features, normaliser=before)
            files |= {"network.safetensors": pack(_arrays(model.network)), "network.onnx": graph}
        missing: Missing = "mean" if normaliser is not None else "own" if trees else "refuse"
        line = None if calibration is None else (calibration.slope, calibration.intercept)
        part = Part(model.ranker.name, plain(model.ranker), model.method, state, missing, line)
    elif fitted is not None:
        scale = {f"scale.{name}": getattr(fitted.scale, name) for name in ("empty", "rates", "mean", "factor")}
        networks = {
            f"{i}.{name}": value for i, net in enumerate(fitted.members) for name, value in _arrays(net).items()
        }
        files = {"network.safetensors": pack(scale | networks), "network.onnx": approximation_onnx(fitted)}
        about = {"means": list(fitted.means), "k": fitted.k, "imputed": usual(fitted)}
        method = {"name": "approximate", "preset": fitted.settings.preset}
        part = Part("approximation", {**plain(fitted.settings), **about}, method, missing="mean")
    elif reader is not None:
        files = reader.files()
        part = Part("cross-encoder", {**plain(reader.settings), "model": Path(reader.settings.model).name})
    else:
        part = Part(STORED, missing="mean")
    return part, {file_name(role, name): content for name, content in files.items()}


def read_model(bundle: Bundle, role: Role = "main") -> Model:
    """Return the ranker on features that a bundle was made of, such as to export it; networks need PyTorch."""
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


def usual(fitted: Approximation) -> float:
    """Return what an approximation imputes if nothing is known: the mean of training (of log odds if it adds those)."""
    return fitted.means[0] if fitted.settings.published else float(expit(fitted.means[1]))


def _applied(model: Model) -> Normaliser | None:
    return None if model.normaliser is None or model.normaliser.kind == "none" else model.normaliser


def _arrays(network: Any) -> dict[str, Any]:
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


@final
@dataclass(frozen=True, eq=False)
class Original:
    """What a bundle is made from.

    Attributes:
        model: The ranker.
        imputation: What imputes for an approximation; None imputes the mean of training.
        calibration: Calibration of an imputation by features.
        naive: Another ranker on the same features, for comparison.
    """

    model: Ranker
    imputation: Ranker | str | None
    calibration: Calibration | None
    naive: Model | None

    def __post_init__(self) -> None:
        if self.imputation is not None and approximation(self.model) is None:
            raise DataError("only an approximation has an imputation", remedy="Omit --imputation")
        if isinstance(self.imputation, Model) and self.calibration is None:
            raise DataError("an imputation by features needs its calibration", remedy="Give the one it was fitted with")
        if self.naive is not None and self.naive.features != self.width:
            problem = f"the naive ranker takes {self.naive.features} features, the other {self.width}"
            raise DataError(problem, remedy="Give one that was trained on the same data")

    @property
    def first(self) -> Ranker | str | None:
        """What reads features or texts: the ranker, or the imputation of an approximation."""
        return self.model if approximation(self.model) is None else self.imputation

    @property
    def width(self) -> int:
        """Number of features."""
        return self.first.features if isinstance(self.first, Model) else 0

    def feature_names(self, given: Sequence[str]) -> tuple[str, ...]:
        """Return the given names of the features, or feature_1, feature_2, ..."""
        if self.imputation == STORED:
            return IMPUTED
        if given and len(given) != self.width:
            raise DataError(f"there are {len(given)} names of features, the ranker takes {self.width}")
        return tuple(given) or tuple(f"feature_{place + 1}" for place in range(self.width))

    def draw(self, rows: int) -> Candidates:
        """Return candidates that the ranker can score, some with missing values; those with texts are few."""
        fitted, first = approximation(self.model), self.first
        query, texts, features, clicks = None, None, None, None
        if cross_encoder(first) is not None:
            query, texts, rows = WORDS[0], WORDS, len(WORDS)
        if isinstance(first, Model):
            missing = may_miss(first) if self.naive is None else may_miss(first) & may_miss(self.naive)
            features = raw_features(first.normaliser, rows=rows, missing=missing)
        elif first == STORED:
            features = np.linspace(0.02, 0.98, rows, dtype=np.float32)[:, None]
            features[-1] = np.nan
        if fitted is not None:  # counts as in a log; the first pair was never shown
            draw = np.random.default_rng(20260102)
            width = len(fitted.scale.empty)
            clicks = draw.poisson(draw.gamma(0.5, 20.0, (rows, 1)), (rows, width)).astype(np.float32)
            clicks[0] = fitted.scale.empty
        return Candidates(query, texts, features, clicks)

    def score(self, drawn: Candidates) -> dict[Role, Float64]:
        """Return the scores by the rankers themselves, [n] each."""
        fitted = approximation(self.model)
        if fitted is None or drawn.clicks is None:
            scores = _score(self.model, drawn)
        elif self.imputation is None or isinstance(self.imputation, str):
            imputed = np.full(len(drawn), usual(fitted))
            if drawn.features is not None:
                given = drawn.features[:, 0].astype(np.float64)
                imputed = np.where(np.isnan(given), imputed, given)
            scores = fitted.estimate(drawn.clicks, imputed)
        else:
            imputed = _score(self.imputation, drawn)
            if self.calibration is not None:
                imputed = np.clip(expit(self.calibration(imputed)), SMALL, 1 - SMALL)
            scores = fitted.estimate(drawn.clicks, imputed)
        found: dict[Role, Float64] = {"main": scores}
        return found if self.naive is None else {**found, "naive": _score(self.naive, drawn)}


def may_miss(model: Model) -> Bool:
    """Return the features whose missing value a ranker has a rule for, [features].

    Trees always have one; for others it is the mean of training, which the normaliser knows. Columns that it keeps have
    none unless they are codes, since networks know an unknown code.
    """
    trees = model.ranker.name == "lambdamart"
    known = np.full(model.features, trees or _applied(model) is not None)
    if not trees and model.normaliser is not None:
        codes = getattr(model.ranker, "categorical", ())
        known[[place for place in model.normaliser.keep if place not in codes]] = False
    return known


def _score(model: Ranker, drawn: Candidates) -> Float64:
    reader = cross_encoder(model)
    if reader is not None and drawn.query is not None and drawn.texts is not None:
        return reader.score_pairs([drawn.query] * len(drawn), drawn.texts)
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
    int8: bool = True,
    replace: bool = False,
) -> Bundle:
    """Write a bundle, after a check that it scores as the ranker does; nothing is written if anything fails.

    Args:
        folder: Folder of the bundle.
        model: A ranker on features, an approximation, or a cross-encoder.
        name: Name for people; by default that of the folder.
        feature_names: Names of the features, in order; by default feature_1, feature_2, ...
        imputation: For an approximation: a ranker on features with its calibration; a cross-encoder; "stored", a
            feature named imputed, such as of the online store; None imputes the mean of training.
        calibration: Calibration of an imputation by features.
        naive: A ranker on the same features that was trained on raw clicks.
        observation: Observation by position, relative to the first.
        data: What the ranker was trained on.
        metrics: Value of each measure.
        notes: Notes for the model card.
        scope: Which documents of a query the ranker may reorder; the service enforces it. None does not limit it.
        evidence: How scores are joined with the clicks on a pair, if the online store has them.
        examples: Example queries for the page, as `Examples.bytes` gives them.
        diagnosis: Diagnosis of the log, for the page: JSON as `clickprism diagnose --json` prints it.
        created: When it was made; by default now.
        int8: Whether a language model may be served in int8.
        replace: Whether to replace an older bundle in the folder.
    """
    from clickprism.serve.bundle.card import model_card

    place = Path(os.path.abspath(folder))
    known = _is_bundle(place)
    if place.exists() and not (replace and known):
        remedy = "Choose another folder, or replace it with --replace" if known else "Choose another folder"
        raise DataError("exists already", file=folder, remedy=remedy)
    served, read = _served(model, int8=int8)
    imputing, also = _served(imputation, int8=int8)
    original, fitted = Original(served, imputing, calibration, naive), approximation(served)
    main, contents = contents_of(served)
    parts: dict[str, Part] = {}
    beside: tuple[tuple[Role, Any], ...] = (("imputation", imputing), ("naive", naive))
    for role, each in beside:
        if each is not None:
            line = calibration if role == "imputation" else None
            parts[role], files = contents_of(each, role=role, calibration=line)
            contents |= files
    drawn = original.draw(KEPT)
    contents["sample.json"] = to_json(drawn, original.score(drawn))
    contents |= {name: each for name, each in (("examples.json", examples), ("diagnosis.json", diagnosis)) if each}
    manifest = BundleManifest(
        SCHEMA,
        main.kind,
        files={},
        name=name or place.name,
        method=main.method,
        settings=main.settings,
        feature_names=original.feature_names(feature_names),
        normaliser=main.normaliser,
        missing=main.missing,
        click_fields=() if fitted is None else fitted.scale.fields,
        imputation=parts.get("imputation"),
        naive=parts.get("naive"),
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
        bundle, drawn = Bundle.load(draft), original.draw(ROWS)
        for role, wanted in original.score(drawn).items():
            scorer = open_scorer(bundle, role=role)
            scorer.warm()
            check_same(scorer.score(drawn).scores, wanted, tolerance=TOLERANCE, file=manifest.name)
    return Bundle.load(place)


def _served(model: Any, *, int8: bool) -> tuple[Any, tuple[str, ...]]:
    """Return a ranker as it will be served, and notes; a language model becomes ONNX graphs."""
    if cross_encoder(model) is None:
        return model, ()
    from clickprism.serve.onnx.language import serve_language

    served = serve_language(model, int8=int8)
    return served, getattr(served, "notes", ("The language model is served by PyTorch: it is no BERT.",))


def _is_bundle(folder: Path) -> bool:
    """Return whether a folder holds a bundle and nothing else, intact or damaged, so that it may be replaced."""
    try:
        found = set(listed(folder))
        with opened(folder, MANIFEST) as file:
            manifest = read_manifest(file.read(), folder / MANIFEST)
    except (DataError, OSError):
        return False
    return found <= {MANIFEST, *manifest.files}
