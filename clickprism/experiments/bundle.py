"""From the folder of a run to a bundle: the model, and what the run knows of its data, its metrics and its curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism.errors import DataError
from clickprism.experiments.run_record import RunRecord
from clickprism.experiments.settings import read_settings
from clickprism.model import Model
from clickprism.serve.settings import BundleSettings
from clickprism.types import Lists

if TYPE_CHECKING:
    from clickprism.serve.bundle import Bundle
    from clickprism.serve.language_bundle import JudgedTexts
    from clickprism.training.calibration import Calibration

MODEL, APPROXIMATION, IMPUTATION = "model.json", "approximation.json", "imputation.json"
STORED: Final = "stored"
DEFAULT: Final = BundleSettings()


def model_folder(path: Path) -> Path:
    """The folder of a model: the one given, or the model/ in it."""
    for folder in (path, path / "model"):
        if (folder / MODEL).is_file():
            return folder.resolve()
    below = sorted({file.parents[1] for file in path.glob(f"*/model/{MODEL}")})
    if below:
        names = ", ".join(map(str, below))
        raise DataError("holds no model itself", file=path, remedy=f"Name some of those below it: {names}")
    raise DataError("holds no model", file=path, remedy="Name a folder that `clickprism train --out` wrote")


def bundle_run(source: Path, out: Path, settings: BundleSettings = DEFAULT, *, examples: bytes | None = None) -> Bundle:
    """Create a bundle from the folder of a run.

    Args:
        source: a run or a model of `train`, `experiment compare` or `demo`, an approximation, or an imputation by text.
        out: the folder of the bundle.
        settings: what the bundle contains besides the ranker.
        examples: example queries for the page; by default `settings.examples` queries of the run.
    """
    from clickprism.serve.bundle import write_bundle
    from clickprism.serve.export.read import names_from

    model: Any = _read(source)
    run = source if (source / "run.json").is_file() or not isinstance(model, Model) else model_folder(source).parent
    known = RunRecord.read(run)
    imputed: Any = settings.imputation
    calibration: Calibration | None = None
    if imputed not in (None, STORED):
        imputed, calibration = _imputation(Path(imputed))
    kept: dict[str, Any] = {}
    if known is not None:
        kept = {"data": known.data, "observation": np.array(known.observation) if known.observation else None}
        kept["feature_names"] = known.feature_names
        kept["metrics"] = known.metrics
        kept["figures"] = _figures(run, known)
    kept["metrics"] = {**kept.get("metrics", {}), **settings.metrics}
    if settings.feature_names is not None:
        kept["feature_names"] = names_from(settings.feature_names)
    if settings.examples and examples is None:
        from clickprism.experiments.examples import examples_of_run

        examples = examples_of_run(source, naive=settings.naive, most=settings.examples).bytes()
    return write_bundle(
        out,
        model,
        name=settings.name or run.resolve().name,
        naive=None if settings.naive is None else Model.load(model_folder(settings.naive)),
        imputation=imputed,
        calibration=calibration,
        notes=settings.notes,
        examples=examples,
        judged=_judged(settings),
        int8=not settings.full_precision,
        replace=settings.replace,
        **kept,
    )


def _judged(settings: BundleSettings) -> JudgedTexts | None:
    """Return the judged texts by which a language model in int8 is compared with its full precision."""
    if settings.judged is None or settings.queries is None or settings.documents is None:
        return None
    from clickprism.serve.language_bundle import read_judged

    return read_judged(settings.judged, queries=settings.queries, documents=settings.documents)


def _read(source: Path) -> Any:
    """The ranker of a folder, whatever it is."""
    if (source / APPROXIMATION).is_file():
        from clickprism.relevance.approximate import Approximation

        return Approximation.load(source)
    if (source / IMPUTATION).is_file():
        from clickprism.relevance.imputation import read_network

        return read_network(source)
    return Model.load(model_folder(source))


def _imputation(folder: Path) -> tuple[Any, Calibration | None]:
    """What imputes, and the calibration of a ranker on features."""
    if (folder / IMPUTATION).is_file() and (folder / "model").is_dir():
        from clickprism.relevance.imputation import FeatureImputation

        nothing = Lists(np.zeros((0, 0), np.float32), np.zeros(1, np.int64), np.zeros(0, np.str_), np.zeros(0, np.str_))
        by_features = FeatureImputation.load(folder, lists=nothing)
        return by_features.model, by_features.calibration
    return _read(folder), None


def _figures(run: Path, known: RunRecord) -> dict[str, tuple[str, str]]:
    """What the model card shows: the observation, and the training."""
    from clickprism.evaluation import plots

    drawn = {}
    if known.observation:
        truth = np.array(known.truth) if known.truth else None
        caption = f"Observation by position, relative to the first{', and the truth' if known.truth else ''}"
        drawn["observation"] = caption, plots.observation_curve(truth, {known.label: np.array(known.observation)})
    steps, values = _validated(run)
    settings = next((file for file in (run / "settings.toml", run.parent / "settings.toml") if file.is_file()), None)
    measure = None if settings is None else read_settings(settings, ()).evaluation.validation
    if values and measure not in (None, "none", "clicks"):
        figure = plots.training_curve({known.label: (steps, values)}, measure=str(measure), xlabel="epoch")
        drawn["training"] = f"{measure} on the validation part over training", figure
    return {name: (caption, plots.svg(figure, title=caption)) for name, (caption, figure) in drawn.items()}


def _validated(run: Path) -> tuple[list[float], list[float]]:
    file = run / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = [row for row in map(json.loads, lines) if row.get("validation") is not None]
    return [row["epoch"] for row in rows], [row["validation"] for row in rows]
