"""One run: a world and a method; how its scores rank the candidates of each query."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import clickprism as cp
from clickprism._util.files import write_file
from clickprism.errors import DataError
from clickprism.types import Float32, Float64
from reproduce.adr.config import CANDIDATES, MEASURES, TUNED
from reproduce.adr.worlds import BUCKETS, Site, World, site_of
from reproduce.common.files import key_of

VERSION = 1  # of the results: a change of it makes every run anew
GUESSES = {"embedded": 10.0, "nfcorpus": 60.0, TUNED: 2400.0}  # seconds of an imputation for 1200 queries
FAMILIES = {"engine": 0.2, "estimator": 0.5, "approximation": 15.0, "competitor": 4.0, "mixture": 12.0, "bound": 0.5}


@dataclass(frozen=True)
class Run:
    """All that a result depends on; `key` names its file.

    Attributes:
        world: where.
        method: a candidate, or "impute": the imputation and the representation that others need, made once.
        settings: of the method.
        epochs: of networks.
        out: where results lie, those that this one needs too; not a part of what it depends on.
    """

    world: World
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    epochs: int = 60
    out: Path = Path("out")

    @cached_property
    def key(self) -> str:
        """A hash of all settings.

        >>> Run(World(), "affine").key == Run(World(), "affine", out=Path("elsewhere")).key != Run(World(), "ipw").key
        True
        """
        return key_of({name: value for name, value in asdict(self).items() if name != "out"}, version=VERSION)

    @property
    def log(self) -> World:
        """The log."""
        return self.world

    @property
    def kind(self) -> tuple[Any, ...]:
        """What takes alike long."""
        return self.world.data, self.world.queries, self.method, self.epochs

    @property
    def needs(self) -> Run:
        """The run whose imputation it takes."""
        return Run(self.world, "impute", {}, self.epochs, self.out)

    @property
    def array_file(self) -> Path:
        """Where the arrays of a result lie."""
        return self.out / "arrays" / f"{self.key}.npz"

    def guess(self) -> float:
        """Seconds on one core of a recent machine, from constants measured once."""
        share = sum(self.world.queries) / 1200
        if self.method == "impute":
            return GUESSES[self.world.data] * share
        return share * FAMILIES[CANDIDATES[self.method].family] * max(self.epochs / 30, 0.2)

    def make(self, folder: Path | None) -> dict[str, Any]:
        """Simulate, estimate and evaluate."""
        start, at_work = time.perf_counter(), time.process_time()
        site = site_of(self.world, folder)
        if self.method == "impute":
            from reproduce.adr.imputation import imputed

            arrays, notes = imputed(self.world, folder, epochs=self.epochs)
            result: dict[str, Any] = {}
        else:
            from reproduce.adr.methods import scores_of

            scores, notes = scores_of(self, folder)
            arrays, result = {"scores": scores}, ranked(site, scores)
        write_arrays(self.array_file, arrays)
        return {
            "run": {name: value for name, value in asdict(self).items() if name != "out"},
            **result,
            "notes": notes,
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - at_work,
        }

    def arrays(self) -> dict[str, Any]:
        """What a run that is done has left."""
        try:
            with np.load(self.array_file, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except OSError:
            remedy = f"Remove runs/{self.key}.json there, and run again"
            raise DataError("is missing, though its run is done", file=self.array_file, remedy=remedy) from None


def ranked(site: Site, scores: Float64) -> dict[str, Any]:
    """What a ranking is worth, query by query, and the bucket of each query."""
    found = cp.evaluate(site.judged, scores, MEASURES, empty="zero")
    names = dict(zip(MEASURES, found.measures, strict=True))
    bucket = np.select([site.in_bucket(name) for name in BUCKETS], range(len(BUCKETS)))
    return {
        "queries": {name: np.round(found[measure], 5).tolist() for name, measure in names.items()},
        "bucket": bucket.tolist(),
    }


def write_arrays(path: Path, arrays: Mapping[str, Float64 | Float32]) -> None:
    """Write arrays as they are, without pickle; the file appears whole or not at all."""
    made = io.BytesIO()
    as_single: dict[str, Any] = {
        name: values.astype(np.float32) if values.ndim > 1 else values for name, values in arrays.items()
    }
    np.savez(made, **as_single)
    write_file(path, made.getvalue())
