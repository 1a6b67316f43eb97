"""A trained ranker: it scores documents, and can be saved and loaded; loading runs no code from the files.

On disk a model is a folder with the manifest `model.json` and the files that it names (`clickprism._util.manifest`).
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.manifest import Manifest
from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError, MissingExtraError
from clickprism.rankers import RANKERS
from clickprism.rankers.lambdamart import LambdaMART, Trees
from clickprism.settings import choose, plain
from clickprism.types import Float32, Float64, Lists

if TYPE_CHECKING:
    from torch import nn

FORMAT: Final = 1
FILES: Final = re.compile(r"(network|trees|normaliser)-[0-9a-f]{16}\.(safetensors|txt|npz)")
MANIFEST: Final = Manifest("model.json", FILES, "a model manifest")
MOST_FEATURES: Final = 1_000_000
CHUNK: Final = 65_536


@final
class Model:
    """A trained ranker; documents with higher scores rank first.

    `fit` returns one, and `Model.load` reads one. It expects features that are normalised as in training, or, after
    `with_normaliser`, raw features.
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
    def of(cls, ranker: Any, parts: nn.Module | Trees, *, features: int, method: Any) -> Model:
        """Return a model with these parts, the settings of its ranker, and those of the method that trained it."""
        return cls(ranker, parts, features=features, method={"name": method.name, **plain(method)})

    def __repr__(self) -> str:
        by = self.method.get("name", "?")
        return f"Model({self.ranker!r}, by {by}, {self.features} features, normaliser={self.normaliser is not None})"

    @property
    def network(self) -> nn.Module:
        """Return the network of a neural ranker, which expects normalised features; trees have none."""
        if isinstance(self._parts, Trees):
            raise DataError("is a model of trees, which has no network")
        return self._parts

    @property
    def trees(self) -> Trees:
        """Return the trees of LambdaMART, which expect normalised features; a neural ranker has none."""
        if not isinstance(self._parts, Trees):
            raise DataError("is a model of a network, which has no trees")
        return self._parts

    def with_normaliser(self, normaliser: Normaliser) -> Model:
        """Return the same model for raw features: it normalises them in the same way as its training data."""
        return Model(self.ranker, self._parts, features=self.features, method=self.method, normaliser=normaliser)

    def score(self, lists: Lists) -> Float64:
        """Return the scores of all documents, [documents]; higher scores rank first.

        The features must be normalised as in training, or raw if the model has a normaliser. For judged lists, pass
        `judged.lists`.
        """
        if not isinstance(lists, Lists):
            raise TypeError(f"a model scores Lists, not {type(lists).__name__}; judged lists hold theirs in .lists")
        if lists.features.shape[1] != self.features:
            raise DataError(f"the model takes {self.features} features, the data has {lists.features.shape[1]}")
        features = lists.features if self.normaliser is None else self.normaliser(lists).features
        if isinstance(self._parts, Trees):
            return self._parts(features)
        return network_scores(self._parts, features)

    def save(self, folder: Path | str) -> None:
        """Write the model to a folder; an existing model is replaced in one step, and other files stay."""
        contents: dict[str, bytes] = {}
        state: dict[str, Any] | None = None
        if isinstance(self._parts, Trees):
            contents["trees.txt"] = self._parts.text.encode()
        else:
            from safetensors.torch import save

            tensors = {key: value.detach().contiguous() for key, value in self._parts.state_dict().items()}
            contents["network.safetensors"] = save(tensors)
        if self.normaliser is not None:
            state, arrays = self.normaliser.state()
            packed = io.BytesIO()
            np.savez(packed, allow_pickle=False, **arrays)
            contents["normaliser.npz"] = packed.getvalue()
        about = {
            "format": FORMAT,
            "ranker": {"name": self.ranker.name, **plain(self.ranker)},
            "method": self.method,
            "features": self.features,
            "normaliser": state,
        }
        MANIFEST.save(Path(folder), about, contents)

    @classmethod
    def load(cls, folder: Path | str) -> Model:
        """Read a model; every file is checked against its hash, and no code from them is run."""
        return MANIFEST.load(Path(folder), FORMAT, cls._made)

    @classmethod
    def _made(cls, manifest: dict[str, Any], contents: dict[str, tuple[Path, bytes]]) -> Model:
        features = manifest["features"]
        if not isinstance(features, int) or not 1 <= features <= MOST_FEATURES:
            raise DataError(f"the manifest of the model says that there are {features!r} features")
        ranker = choose(RANKERS, manifest["ranker"], path="ranker")
        normaliser = None
        if manifest["normaliser"] is not None:
            normaliser = Normaliser.from_state(manifest["normaliser"], _unpacked(*contents["normaliser"]))
        parts: nn.Module | Trees
        if isinstance(ranker, LambdaMART):
            path, content = contents["trees"]
            parts = Trees.from_text(content.decode())
            if parts.features != features:
                raise DataError(f"takes {parts.features} features, the manifest says {features}", file=path)
        else:
            parts = network_of(ranker, features, *contents["network"])
        return cls(ranker, parts, features=features, method=dict(manifest["method"]), normaliser=normaliser)


def _unpacked(path: Path, content: bytes) -> dict[str, Any]:
    """Return the arrays of an npz file; a compressed one is refused, since it could expand to any size."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in packed.infolist()):
            raise DataError("is compressed, unlike the files of a model", file=path, remedy="Save the model again")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def network_scores(network: nn.Module, features: Float32) -> Float64:
    """Return the scores of all documents by a network, in chunks and without gradients, [documents]."""
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


def network_of(ranker: Any, features: int, path: Path, content: bytes) -> nn.Module:
    """Return the network with its weights; it is built without memory first, in case the manifest is forged."""
    torch = _torch()
    from safetensors import SafetensorError
    from safetensors.torch import load

    with torch.device("meta"):
        network: nn.Module = ranker.build(features)
    try:
        network.load_state_dict(load(content), assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"does not fit the ranker of the manifest ({error})", file=path) from None
    return network.requires_grad_(False).eval()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("neural", "a neural ranker") from None
    return torch
