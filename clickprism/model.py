"""A fitted ranker: scores documents, and goes to disk and back without a line of code in the file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError, MissingExtraError
from clickprism.rankers import RANKERS
from clickprism.rankers.lambdamart import Trees
from clickprism.settings import build, plain, resolve
from clickprism.types import Float32, Float64, Lists

if TYPE_CHECKING:
    from torch import nn

FORMAT: Final = 1
MANIFEST: Final = "model.json"
NETWORK: Final = "network.safetensors"
TREES: Final = "trees.txt"
NORMALISER: Final = "normaliser.npz"
CHUNK: Final = 65_536


@final
class Model:
    """A ranker that was trained, by whatever method; higher scores rank first.

    Make one by `fit`, or read one by `Model.load`. It takes features as the ranker was trained on them, or, after
    `with_normaliser`, raw ones.
    """

    def __init__(
        self,
        ranker: Any,
        parts: nn.Module | Trees,
        *,
        features: int,
        method: Mapping[str, Any],
        normaliser: Normaliser | None = None,
    ) -> None:
        self.ranker = ranker
        self.features = features
        self.method = dict(method)
        self.normaliser = normaliser
        self._parts = parts

    @classmethod
    def from_network(cls, ranker: Any, network: nn.Module, *, features: int, method: Any) -> Model:
        """A model from a trained network, the settings that built it, and those of the method that trained it."""
        return cls(ranker, network, features=features, method={"name": method.name, **plain(method)})

    @classmethod
    def from_trees(cls, ranker: Any, trees: Trees, *, features: int, method: Any) -> Model:
        """A model from a trained ensemble."""
        return cls(ranker, trees, features=features, method={"name": method.name, **plain(method)})

    def with_normaliser(self, normaliser: Normaliser) -> Model:
        """The model that takes raw features: it normalises them as its training data was."""
        return Model(self.ranker, self._parts, features=self.features, method=self.method, normaliser=normaliser)

    def score(self, lists: Lists) -> Float64:
        """Scores of all documents, [documents]."""
        if lists.features.shape[1] != self.features:
            raise DataError(f"the model takes {self.features} features, the data has {lists.features.shape[1]}")
        features = lists.features if self.normaliser is None else self.normaliser(lists).features
        if isinstance(self._parts, Trees):
            return self._parts(features)
        return network_scores(self._parts, features)

    def save(self, folder: Path) -> None:
        """Write the model as a folder of plain files with a manifest of their hashes; replaces an older one whole."""
        part = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        state: dict[str, Any] | None = None
        if isinstance(self._parts, Trees):
            (part / TREES).write_text(self._parts.text, encoding="utf-8")
        else:
            _save_network(self._parts, part / NETWORK)
        if self.normaliser is not None:
            state, arrays = self.normaliser.state()
            np.savez(part / NORMALISER, allow_pickle=False, **arrays)
        manifest = {
            "format": FORMAT,
            "ranker": {"name": self.ranker.name, **plain(self.ranker)},
            "method": self.method,
            "features": self.features,
            "normaliser": state,
            "files": {file.name: _sha256(file) for file in sorted(part.iterdir())},
        }
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            os.replace(folder, old)
        os.replace(part, folder)
        shutil.rmtree(old, ignore_errors=True)

    @classmethod
    def load(cls, folder: Path) -> Model:
        """Read a model; every file is checked against its hash, and nothing in them is run."""
        file = folder / MANIFEST
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT:
                raise DataError(f"is a model of format {manifest['format']}, this version reads {FORMAT}", file=file)
            _check_files(folder, manifest["files"])
            settings = dict(manifest["ranker"])
            ranker = build(resolve(RANKERS, settings.pop("name"), path="ranker.name"), settings, path="ranker")
            features = int(manifest["features"])
            normaliser = None
            if manifest["normaliser"] is not None:
                with np.load(folder / NORMALISER, allow_pickle=False) as arrays:
                    normaliser = Normaliser.from_state(manifest["normaliser"], dict(arrays))
            parts: nn.Module | Trees
            if (folder / TREES).exists():
                parts = Trees.from_text((folder / TREES).read_text(encoding="utf-8"))
            else:
                parts = _load_network(ranker.build(features), folder / NETWORK)
            return cls(ranker, parts, features=features, method=dict(manifest["method"]), normaliser=normaliser)
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", file=error.filename or file) from None
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(f"is not a model manifest ({error})", file=file) from None


def network_scores(network: nn.Module, features: Float32) -> Float64:
    """Scores of all documents by a network, in chunks, without gradients, [documents]."""
    torch = _torch()
    scores = np.empty(len(features), dtype=np.float64)
    training = network.training
    network.eval()
    with torch.inference_mode():
        for start in range(0, len(features), CHUNK):
            chunk = np.array(features[start : start + CHUNK], dtype=np.float32)
            scores[start : start + CHUNK] = network(torch.from_numpy(chunk)).numpy()
    network.train(training)
    return scores


def _save_network(network: nn.Module, file: Path) -> None:
    from safetensors.torch import save_file

    save_file({key: value.detach().contiguous() for key, value in network.state_dict().items()}, file)


def _load_network(network: nn.Module, file: Path) -> nn.Module:
    _torch()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(file))
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"does not fit the ranker of the manifest ({error})", file=file) from None
    return network.eval()


def _check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    there = {file.name for file in folder.iterdir()} - {MANIFEST}
    if there != set(hashes):
        odd = sorted(there ^ set(hashes))
        raise DataError(f"files do not match the manifest: {', '.join(odd)}", file=folder)
    for name, digest in hashes.items():
        if _sha256(folder / name) != digest:
            raise DataError("was changed after the model was saved", file=folder / name, remedy="Save the model anew")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("neural", "a neural ranker") from None
    return torch
