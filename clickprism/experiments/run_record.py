"""run.json: what a run was and what it came to, beside its model, for whoever makes a bundle of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import msgspec
import numpy as np

from clickprism._util.files import write_file
from clickprism._util.tables import to_json
from clickprism.errors import DataError
from clickprism.experiments.settings import ExperimentSettings
from clickprism.experiments.stages import Data, data_name
from clickprism.types import Float64, Lists

RUN: Final = "run.json"
SAMPLED: Final = 1 << 26


@final
@dataclass(frozen=True)
class RunRecord:
    """What a run was.

    Attributes:
        label: of the method.
        seed: of the run.
        data: what it learned from: a name, a fingerprint, sizes.
        metrics: what it reached, by part and measure.
        observation: by position relative to the first; empty without one.
        truth: the same of simulated users; empty where it is not known.
        feature_names: of the features, in order; empty where they have none but their numbers.
    """

    label: str
    seed: int
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    observation: tuple[float, ...] = ()
    truth: tuple[float, ...] = ()
    feature_names: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write it into the folder of the run."""
        write_file(folder / RUN, to_json(msgspec.to_builtins(self)) + "\n")

    @classmethod
    def read(cls, folder: Path) -> RunRecord | None:
        """The record of a folder; None where there is none."""
        try:
            return msgspec.convert(json.loads((folder / RUN).read_text(encoding="utf-8")), cls)
        except FileNotFoundError:
            return None
        except (ValueError, msgspec.ValidationError) as error:
            raise DataError(f"is no record of a run ({error})", file=folder / RUN) from None


def record(
    settings: ExperimentSettings,
    data: Data,
    *,
    label: str,
    seed: int,
    metrics: Mapping[str, float | None],
    observation: Float64 | None,
    truth: Float64 | None,
    clicks: str | None = None,
) -> RunRecord:
    """The record of a run that is done; `clicks` says whose they were, where that is not in the settings."""
    lists = data.dataset.train.lists
    about = {
        "name": shipped_name(settings),
        "fingerprint": fingerprint(lists),
        "queries": len(lists),
        "documents": lists.documents,
        "clicks": clicks or ("of real users" if data.log is not None else f"simulated: {settings.user['name']}"),
    }
    return RunRecord(
        label,
        seed,
        about,
        {name: float(value) for name, value in metrics.items() if value is not None and np.isfinite(value)},
        () if observation is None else tuple(np.asarray(observation, np.float64).tolist()),
        () if truth is None else tuple(np.asarray(truth, np.float64).tolist()),
        () if data.vocabulary is None else tuple(data.vocabulary.columns),
    )


def shipped_name(settings: ExperimentSettings) -> str:
    """What the data is called where others read it: without the folders it lies in."""
    if settings.data.source in ("files", "impressions"):
        files = [getattr(settings.data, part) for part in ("train", "validation", "test")]
        return ", ".join(Path(file).name for file in files if file is not None)
    return data_name(settings.data)


def fingerprint(lists: Lists) -> str:
    """16 digits of a SHA-256 over queries, sizes and features; of many features, over evenly spaced rows.

    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> fingerprint(lists)
    'e8245f7c2db8316c'
    """
    found = hashlib.sha256()
    rows = max(1, SAMPLED // max(4 * lists.features.shape[1], 1))
    step = max(1, -(-lists.documents // rows))
    for values in (lists.offsets.astype("<i8"), np.ascontiguousarray(lists.features[::step], dtype="<f4")):
        found.update(repr(values.shape).encode())
        found.update(values.data)
    found.update("\0".join(lists.query_ids.tolist()).encode())
    return found.hexdigest()[:16]
