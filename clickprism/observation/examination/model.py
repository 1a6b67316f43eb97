"""The fitted examination model: trees, and what they are of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from clickprism.errors import DataError, MissingExtraError
from clickprism.log.schema import BEHAVIOUR, EXAMINATION_UNIT
from clickprism.observation.examination.cells import matrix
from clickprism.observation.examination_settings import ExaminationSettings
from clickprism.settings import plain
from clickprism.types import Int64

FORMAT: Final = "clickprism examination model"
VERSION: Final = 1


@final
@dataclass(frozen=True)
class ExaminationModel:
    """Trees that give the probability of examination of a document from the behaviour around it.

    e_k = P(examined | position, clicked, clicks before, ...), equation of §6.1.1 of the doubly robust paper.

    Attributes:
        text: the trees in LightGBM's own format.
        settings: by which they were grown.
        sessions: what they were grown on: the days, each with the fingerprint of its files.
        quality: measures on the searches held out, by name.
    """

    text: str
    settings: ExaminationSettings
    sessions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    quality: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that differ whenever estimates may: of the trees, the features and the unit."""
        known = plain(self.settings)
        if known["clicks"] == "all":
            del known["clicks"]  # as models had it before there was a choice
        parts = {
            "version": VERSION,
            "features": list(BEHAVIOUR),
            "unit": EXAMINATION_UNIT,
            "settings": known,
            "trees": hashlib.sha256(self.text.encode()).hexdigest(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def estimate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with one more column, `examination`: int64, in units of 2^-20, rounded half to even.

        Args:
            batch: with the columns `BEHAVIOUR`, and any others.
        """
        missing = [name for name in BEHAVIOUR if name not in batch.schema.names]
        if missing:
            raise DataError(f"the examination model needs the column {missing[0]!r}", remedy="Give rows of sessions")
        values = pa.array(self.units(batch), type=pa.int64())
        return batch.append_column("examination", values)

    def units(self, rows: pa.Table | pa.RecordBatch) -> Int64:
        """The estimates of rows in units of 2^-20, [rows]."""
        if rows.num_rows == 0:
            return np.zeros(0, dtype=np.int64)
        estimates = np.asarray(self.booster.predict(matrix(rows), num_threads=1), dtype=np.float64)
        units: Int64 = np.rint(estimates * EXAMINATION_UNIT).astype(np.int64)
        return units

    @cached_property
    def booster(self) -> Any:
        """The trees, read."""
        library = lightgbm()
        try:
            booster = library.Booster(model_str=self.text)
        except library.basic.LightGBMError as error:
            raise DataError(f"the trees are not a LightGBM model: {error}", remedy=AGAIN) from None
        if booster.feature_name() != list(BEHAVIOUR):
            raise DataError(f"the trees are of other features: {', '.join(booster.feature_name())}", remedy=AGAIN)
        return booster

    def importance(self) -> dict[str, float]:
        """The share of each feature in what the splits gained, the greatest first."""
        gains = np.asarray(self.booster.feature_importance("gain"), dtype=np.float64)
        shares = gains / gains.sum() if gains.any() else gains
        named = dict(zip(BEHAVIOUR, shares.tolist(), strict=True))
        return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to the workers of an engine as text; they read the trees themselves."""
        return ExaminationModel, (self.text, self.settings, dict(self.sessions), dict(self.quality))


AGAIN: Final = "Train it again: clickprism bias examination LOG"


def lightgbm() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import lightgbm as library
    except ImportError:
        raise MissingExtraError("trees", "the examination model") from None
    return library
