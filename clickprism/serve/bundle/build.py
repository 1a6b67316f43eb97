"""Write a bundle: its files, a sample of scores, and a check that it scores as the ranker does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

import msgspec
import numpy as np
from scipy.special import expit

from clickprism._util.files import atomic_folder, write_errors
from clickprism._util.tables import to_builtin, to_plain
from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.serve.bundle.bundle import (
    MANIFEST,
    SCHEMA,
    Bundle,
    BundleManifest,
    Scope,
    opened,
    pack,
    read_arrays,
    read_manifest,
)
from clickprism.serve.bundle.untrusted import checked_trees
from clickprism.serve.onnx.graph import in_graph
from clickprism.serve.onnx.networks import approximation_onnx, network_onnx
from clickprism.serve.scoring.evidence import Evidence
from clickprism.serve.scoring.language import probabilities
from clickprism.serve.scoring.scorer import Candidates, check_same, open_scorer
from clickprism.settings import choose, plain
from clickprism.types import Bool, Float32, Float64, Lists

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.relevance.approximation import Approximation

KEPT: Final = 8  # candidates of the sample in the bundle
ROWS: Final = 256  # candidates that a new bundle is checked with
TOLERANCE: Final = 1e-5
WORDS: Final = ("red running shoes", "how to tie a bow", "city map", "opening hours", "rain", "used bicycle", "a", "")
IMPUTED: Final = "imputed"
"""The feature with the imputed relevance of a pair, which `clickprism store publish --imputed` fills."""
Ranker: TypeAlias = "Model | Approximation | CrossEncoderNetwork"


class Original(Protocol):
    """What a bundle is made of: a ranker of one kind."""

    def manifest(self) -> dict[str, Any]:
        """Return the fields of the manifest that describe the ranker."""
        ...

    def files(self) -> dict[str, bytes]:
        """Return the files of the ranker."""
        ...

    def draw(self, rows: int) -> Candidates:
        """Return generated candidates that the ranker can score, some with missing values."""
        ...

    def score(self, drawn: Candidates) -> Float64:
        """Return the scores of candidates by the ranker itself, [n]."""
        ...


@final
class FeatureOriginal:
    """A ranker on features."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        if names and len(names) != model.features:
            raise DataError(f"there are {len(names)} names of features, the ranker takes {model.features}")
        self._model, self._trees = model, model.ranker.name == "lambdamart"
        self._names = tuple(names) or tuple(f"feature_{place + 1}" for place in range(model.features))
        used = model.normaliser is not None and model.normaliser.kind != "none"
        self._normaliser = model.normaliser if used else None
        self._in_graph = not self._trees and in_graph(self._normaliser)

    def manifest(self) -> dict[str, Any]:
        """Return the kind, its settings, the features and their normalisation."""
        model, state = self._model, None
        if self._normaliser is not None:
            state = {**self._normaliser.state()[0], "in_graph": self._in_graph}
        return {
            "kind": model.ranker.name,
            "settings": plain(model.ranker),
            "method": model.method,
            "feature_names": self._names,
            "normaliser": state,
            "missing": "mean" if state is not None else "own" if self._trees else "refuse",
        }

    def files(self) -> dict[str, bytes]:
        """Return the trees, or the network as ONNX and its weights, and the statistics of the normaliser."""
        model, files = self._model, dict[str, bytes]()
        if self._normaliser is not None:
            files["normaliser.safetensors"] = pack(self._normaliser.state()[1])
        if self._trees:
            return files | {"trees.txt": model.trees.text.encode()}
        before = self._normaliser if self._in_graph else None
        graph = network_onnx(model.ranker, model.network, features=model.features, normaliser=before)
        return files | {"network.safetensors": pack(_arrays(model.network)), "network.onnx": graph}

    def draw(self, rows: int) -> Candidates:
        """Return features like those of training; those whose missing value has a rule are sometimes missing."""
        model = self._model
        may_miss = np.full(model.features, self._trees or self._normaliser is not None)
        if not self._trees and model.normaliser is not None:  # codes may miss, other columns that are kept may not
            codes = getattr(model.ranker, "categorical", ())
            may_miss[[place for place in model.normaliser.keep if place not in codes]] = False
        return Candidates(features=raw_features(model.normaliser, rows=rows, missing=may_miss))

    def score(self, drawn: Candidates) -> Float64:
        """Return the scores of the model."""
        features: Any = drawn.features
        return self._model.score(Lists(features, np.array([0, len(drawn)]), np.array(["sample"])))


@final
class ApproximationOriginal:
    """An approximated doubly robust estimate; `stored` takes imputed values from the store, else their mean is used."""

    def __init__(self, fitted: Approximation, *, stored: bool) -> None:
        self._fitted, self._stored = fitted, stored
        published = fitted.settings.published  # which adds probabilities; otherwise log odds are added
        self._mean = fitted.means[0] if published else float(expit(fitted.means[1]))

    def manifest(self) -> dict[str, Any]:
        """Return the settings and the inputs."""
        fitted = self._fitted
        about = {"means": list(fitted.means), "k": fitted.k, "imputed": self._mean}
        return {
            "kind": "approximation",
            "settings": {**plain(fitted.settings), **about},
            "method": {"name": "approximate", "preset": fitted.settings.preset},
            "feature_names": (IMPUTED,) if self._stored else (),
            "click_fields": fitted.scale.fields,
            "missing": "mean",
        }

    def files(self) -> dict[str, bytes]:
        """Return the networks as ONNX, and their weights with the scale of click vectors."""
        fitted = self._fitted
        scale = {f"scale.{name}": getattr(fitted.scale, name) for name in ("empty", "rates", "mean", "factor")}
        networks = {
            f"{number}.{name}": values
            for number, member in enumerate(fitted.members)
            for name, values in _arrays(member).items()
        }
        return {"network.safetensors": pack(scale | networks), "network.onnx": approximation_onnx(fitted)}

    def draw(self, rows: int) -> Candidates:
        """Return counts as in a log; the first pair was never shown, and the last has no imputed value."""
        draw, width = np.random.default_rng(20260102), len(self._fitted.scale.empty)
        clicks = draw.poisson(draw.gamma(0.5, 20.0, (rows, 1)), (rows, width)).astype(np.float32)
        clicks[0] = self._fitted.scale.empty
        if not self._stored:
            return Candidates(clicks=clicks)
        features = np.linspace(0.02, 0.98, rows, dtype=np.float32)[:, None]
        features[-1] = np.nan
        return Candidates(features=features, clicks=clicks)

    def score(self, drawn: Candidates) -> Float64:
        """Return the estimates."""
        imputed, clicks = np.full(len(drawn), self._mean), np.asarray(drawn.clicks)
        if drawn.features is not None:
            given = drawn.features[:, 0].astype(np.float64)
            imputed = np.where(np.isnan(given), imputed, given)
        return self._fitted.estimate(clicks, imputed)


@final
class LanguageOriginal:
    """A cross-encoder, served as ONNX graphs."""

    def __init__(self, network: CrossEncoderNetwork) -> None:
        from clickprism.serve.onnx.language import serve_language

        self._settings = network.settings
        self._reader, self._files = serve_language(network)

    def manifest(self) -> dict[str, Any]:
        """Return the settings; the model is named without its folder."""
        return {
            "kind": "cross-encoder",
            "settings": {**plain(self._settings), "model": Path(self._settings.model).name},
        }

    def files(self) -> dict[str, bytes]:
        """Return the graphs, the tokenizer and how to read."""
        return self._files

    def draw(self, rows: int) -> Candidates:
        """Return a query and a few texts, however many rows are asked for: reading is slow."""
        return Candidates(WORDS[0], WORDS)

    def score(self, drawn: Candidates) -> Float64:
        """Return probabilities of a click in the first slot, by the graphs, which were compared with PyTorch."""
        texts: Any = drawn.texts
        return probabilities(self._reader.odds(WORDS[0], texts))


def write_bundle(
    folder: Path | str,
    model: Ranker,
    *,
    name: str = "",
    feature_names: Sequence[str] = (),
    imputed: bool = False,
    observation: Float64 | None = None,
    data: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    scope: Scope | None = None,
    evidence: Evidence | None = None,
    examples: bytes | None = None,
    diagnosis: bytes | None = None,
    created: datetime | None = None,
    replace: bool = False,
) -> Bundle:
    """Write a bundle, after a check that it scores as the ranker does; nothing is written if anything fails.

    Args:
        folder: Folder of the bundle.
        model: A ranker on features, an approximation, or a cross-encoder.
        name: Name for people; by default that of the folder.
        feature_names: Names of the features, in order; by default feature_1, feature_2, ...
        imputed: For an approximation, take imputed relevance from the feature `imputed`, such as of the online store.
            Otherwise, and where it is missing, the mean of training is imputed.
        observation: Observation by position, relative to the first.
        data: What the ranker was trained on.
        metrics: Value of each measure.
        notes: Notes for the model card.
        scope: Which documents of a query the ranker may reorder; the service enforces it. None does not limit it.
        evidence: How scores are joined with the clicks on a pair, if the online store has them.
        examples: Example queries for the page, as `Examples.bytes` gives them.
        diagnosis: Diagnosis of the log, for the page: JSON as `clickprism diagnose --json` prints it.
        created: When it was made; by default now.
        replace: Whether to replace an older bundle in the folder.
    """
    from clickprism.serve.bundle.card import model_card

    place = Path(os.path.abspath(folder))
    known = _is_bundle(place)
    if place.exists() and not (replace and known):
        remedy = "Choose another folder, or replace it with --replace" if known else "Choose another folder"
        raise DataError("exists already", file=folder, remedy=remedy)
    original = _original(model, feature_names, imputed=imputed)
    contents, drawn = original.files(), original.draw(KEPT)
    contents["sample.json"] = to_json(drawn, original.score(drawn))
    contents |= {name: each for name, each in (("examples.json", examples), ("diagnosis.json", diagnosis)) if each}
    manifest = BundleManifest(
        SCHEMA,
        **original.manifest(),
        files={},
        name=name or place.name,
        observation=() if observation is None else tuple(float(value) for value in observation),
        data=dict(data or {}),
        metrics={key: float(value) for key, value in (metrics or {}).items()},
        created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
        clickprism=version("clickprism"),
        notes=tuple(notes),
        scope=scope,
        evidence=evidence,
    )
    contents["MODEL_CARD.md"] = model_card(manifest).encode()
    hashes = {key: hashlib.sha256(content).hexdigest() for key, content in sorted(contents.items())}
    manifest = msgspec.structs.replace(manifest, files=hashes)
    contents[MANIFEST] = msgspec.json.format(msgspec.json.encode(manifest, enc_hook=to_builtin), indent=1)
    with write_errors(folder), atomic_folder(place) as draft:
        for key, content in contents.items():
            (draft / key).write_bytes(content)
        scorer, drawn = open_scorer(Bundle.load(draft)), original.draw(ROWS)
        scorer.warm()
        check_same(scorer.score(drawn).scores, original.score(drawn), tolerance=TOLERANCE, file=manifest.name)
    return Bundle.load(place)


def _original(model: Any, feature_names: Sequence[str], *, imputed: bool) -> Original:
    """Return the ranker as a bundle needs it. Its kind is found without an import of PyTorch."""
    approximation = hasattr(model, "trade_off")
    if imputed and not approximation:
        raise DataError("only an approximation takes imputed values", remedy="Omit --imputed")
    if approximation:
        return ApproximationOriginal(model, stored=imputed)
    return LanguageOriginal(model) if hasattr(model, "score_pairs") else FeatureOriginal(model, feature_names)


def to_json(candidates: Candidates, scores: Float64) -> bytes:
    """Return the first few candidates with their scores; a missing value is null."""
    kept: dict[str, Any] = {"scores": scores[:KEPT].tolist()}
    for name, values in (("features", candidates.features), ("clicks", candidates.clicks)):
        if values is not None:
            kept[name] = to_plain(values[:KEPT])
    if candidates.texts is not None:
        kept |= {"query": candidates.query, "texts": list(candidates.texts[:KEPT])}
    return json.dumps(kept, allow_nan=False).encode()


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


def read_model(bundle: Bundle) -> Model:
    """Return the ranker on features that a bundle was made of, such as to export it; networks need PyTorch."""
    from clickprism.model import network_of
    from clickprism.rankers import RANKERS
    from clickprism.rankers.lambdamart import Trees

    own, features = bundle.manifest, len(bundle.manifest.feature_names)
    if own.kind not in RANKERS:
        raise DataError(f"is a bundle of kind {own.kind}, not of a ranker on features", file=bundle.folder)
    ranker = choose(RANKERS, {"name": own.kind, **own.settings}, path="settings")
    if own.kind == "lambdamart":
        parts: Any = Trees.from_text(checked_trees(bundle.read("trees.txt").decode(), features=features))
    else:
        name = "network.safetensors"
        parts = network_of(ranker, features, bundle.path(name), bundle.read(name))
    normaliser = None
    if own.normaliser is not None:
        normaliser = Normaliser.from_state(own.normaliser, read_arrays(bundle, "normaliser.safetensors"))
    return Model(ranker, parts, features=features, method=own.method, normaliser=normaliser)


def _arrays(network: Any) -> dict[str, Any]:
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def _is_bundle(folder: Path) -> bool:
    """Return whether a folder holds a bundle and nothing else, intact or damaged, so that it may be replaced."""
    try:
        found = set(os.listdir(folder))
        with opened(folder, MANIFEST) as file:
            manifest = read_manifest(file.read(), folder / MANIFEST)
    except (DataError, OSError):
        return False
    return found <= {MANIFEST, *manifest.files}
