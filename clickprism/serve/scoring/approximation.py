"""Scores by the approximated doubly robust estimate, from click vectors and imputed relevance."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.relevance.click_vectors import VectorScale, most_shown
from clickprism.serve.bundle.bundle import Bundle, read_arrays
from clickprism.serve.scoring.features import CHUNK
from clickprism.serve.scoring.scorer import Candidates, Need, Scored, check_sample, open_session
from clickprism.types import Float64

OUTPUTS: Final = ["estimate", "affine", "trade_off", "spread"]
SMALL: Final = 1e-6


@final
class ApproximationScorer:
    """Scores by click vectors, and imputed relevance if there is any; see `clickprism.serve.scoring.scorer.Scorer`."""

    kind = "approximation"

    def __init__(self, bundle: Bundle, *, threads: int = 1) -> None:
        manifest = bundle.manifest
        self.click_fields, self._bundle = manifest.click_fields, bundle
        arrays = read_arrays(bundle, "network.safetensors")
        try:
            scale = {name: arrays[f"scale.{name}"].astype(np.float64) for name in ("empty", "rates", "mean", "factor")}
            self._scale = VectorScale(fields=self.click_fields, **scale)
        except (KeyError, DataError) as error:
            problem = f"does not fit the click fields of the manifest ({error})"
            raise DataError(problem, file=bundle.path("network.safetensors")) from None
        self.feature_names, self._mean = manifest.feature_names, float(manifest.settings["imputed"])
        self.needs: frozenset[Need] = frozenset({"features", "clicks"} if self.feature_names else {"clicks"})
        file = bundle.path("network.onnx")
        self._session = open_session(bundle.read("network.onnx"), threads=threads, file=file)

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Return estimates, [n]; with `explain` relevance, click_features, imputation, trade_off and spread."""
        width = len(self.click_fields)
        if candidates.clicks is None:
            raise DataError(f"the ranker needs the click vector of each document, of {width} fields")
        x = np.asarray(candidates.clicks, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != width:
            raise DataError(f"the ranker takes click vectors of {width} fields, got an array of shape {list(x.shape)}")
        if not len(x):
            return Scored(np.zeros(0))
        imputed = self._impute(candidates)
        shown = most_shown(x, self.click_fields).astype(np.float32)
        wanted = OUTPUTS if explain else OUTPUTS[:1]
        found = {name: np.empty(len(x)) for name in wanted}
        for start in range(0, len(x), CHUNK):
            rows = slice(start, start + CHUNK)
            given = {"x": self._scale(x[rows]), "imputed": imputed[rows].astype(np.float32), "shown": shown[rows]}
            for name, values in zip(wanted, self._session.run(wanted, given), strict=True):
                found[name][rows] = values
        scores = found["estimate"]
        if not explain:
            return Scored(scores)
        names = {"click_features": "affine", "trade_off": "trade_off", "spread": "spread"}
        parts = {"relevance": scores, "imputation": imputed} | {name: found[of] for name, of in names.items()}
        return Scored(scores, parts)

    def warm(self) -> None:
        """Score the sample of the bundle; raise an error if its scores have changed."""
        check_sample(self, self._bundle)

    def _impute(self, candidates: Candidates) -> Float64:
        """Return the imputed relevance of each candidate, such as from the store; the mean where it is missing."""
        if not self.feature_names:
            return np.full(len(candidates), self._mean)
        given = candidates.features
        if given is None or given.ndim != 2 or given.shape[1] != 1:
            raise DataError(f"the ranker needs the feature {self.feature_names[0]!r} of each document")
        values = given[:, 0].astype(np.float64)
        wrong = (values < 0) | (values > 1)
        if wrong.any():
            raise DataError(f"imputed values are probabilities, got {values[int(np.argmax(wrong))]:g}")
        return np.clip(np.where(np.isnan(values), self._mean, values), SMALL, 1 - SMALL)
