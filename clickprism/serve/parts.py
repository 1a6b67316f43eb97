"""What a ranker becomes in a bundle: its entry in the manifest, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np

from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.serve.bundle import Bundle, Missing, Part, Role, file_name
from clickprism.serve.networks_onnx import approximation_onnx, network_onnx
from clickprism.serve.onnx_graph import in_graph
from clickprism.serve.tensors import pack, read_arrays
from clickprism.settings import choose, plain

if TYPE_CHECKING:
    from clickprism.data.normalise import Normaliser
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.relevance.approximation import Approximation
    from clickprism.serve.language_bundle import ServedLanguage
    from clickprism.training.calibration import Calibration

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
    from clickprism.data.normalise import Normaliser
    from clickprism.model import network_of
    from clickprism.rankers import RANKERS
    from clickprism.rankers.lambdamart import Trees

    part, features = bundle.manifest.part(role), len(bundle.manifest.feature_names)
    if part.kind not in RANKERS:
        raise DataError(f"is a bundle of kind {part.kind}, not of a ranker on features", file=bundle.folder)
    ranker = choose(RANKERS, {"name": part.kind, **part.settings}, path="settings")
    if part.kind == "lambdamart":
        parts: Any = Trees.from_text(bundle.read(file_name(role, "trees.txt")).decode())
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
