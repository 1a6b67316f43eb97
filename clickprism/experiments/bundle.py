"""Create bundles from the folders of runs, with examples for the page of the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from clickprism.data.encoding import Encoding
from clickprism.errors import DataError
from clickprism.experiments.data import graded, load_data, read_data, simulate_log
from clickprism.experiments.settings import ExperimentSettings, read_settings
from clickprism.experiments.train import ENCODING, MODEL, RUN, SETTINGS, RunRecord
from clickprism.model import Model
from clickprism.serve.bundle.examples import MOST, Examples, examples_of
from clickprism.serve.settings import BundleSettings

if TYPE_CHECKING:
    from clickprism.serve.bundle.bundle import Bundle

MODEL_FILE, APPROXIMATION, IMPUTATION = "model.json", "approximation.json", "imputation.json"
DEFAULT: Final = BundleSettings()


def model_folder(path: Path) -> Path:
    """Return the folder of a model: the given one, or model/ in it."""
    for folder in (path, path / MODEL):
        if (folder / MODEL_FILE).is_file():
            return folder.resolve()
    below = sorted({file.parents[1] for file in path.glob(f"*/{MODEL}/{MODEL_FILE}")})
    if below:
        names = ", ".join(map(str, below))
        raise DataError("contains several models", file=path, remedy=f"Name one of them: {names}")
    problem = "contains no model" if path.exists() else "does not exist"
    raise DataError(problem, file=path, remedy="Name a folder that `clickprism train --out` wrote")


def bundle_run(source: Path, out: Path, settings: BundleSettings = DEFAULT) -> Bundle:
    """Create a bundle from the folder of a run.

    Args:
        source: A run or model of `train` or `experiment compare`, an approximation, or an imputation by text.
        out: Folder of the bundle.
        settings: What the bundle contains besides the ranker.
    """
    from clickprism.serve.bundle.build import write_bundle

    model: Any = _read(source)
    run = source if (source / RUN).is_file() or not isinstance(model, Model) else model_folder(source).parent
    record = RunRecord.read(run) or RunRecord("", 0)
    data, names = record.data, record.feature_names
    if (run / ENCODING).is_file():
        encoding = Encoding.load(run / ENCODING)
        data, names = {**data, "encoding": encoding.plain()}, names or encoding.names
    examples: bytes | None = None
    if settings.examples:
        examples = examples_of_run(source, naive=settings.naive, most=settings.examples).bytes()
    return write_bundle(
        out,
        model,
        name=settings.name or run.resolve().name,
        feature_names=names if settings.feature_names is None else _names(settings.feature_names),
        imputed=settings.imputed,
        observation=np.array(record.observation) if record.observation else None,
        data=data,
        metrics={**record.metrics, **settings.metrics},
        notes=settings.notes,
        examples=examples,
        replace=settings.replace,
    )


def _names(file: Path) -> tuple[str, ...]:
    """Return the names of features in a file: one per line, or a JSON list."""
    try:
        text = file.read_text(encoding="utf-8")
        if text.lstrip().startswith("["):
            return tuple(msgspec.json.decode(text, type=list[str]))
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from None
    except (ValueError, msgspec.DecodeError) as error:
        raise DataError(f"is not a list of names ({error})", file=file, remedy="Write one name per line") from None


def _read(source: Path) -> Any:
    """Return the ranker of a folder, of any kind."""
    if (source / APPROXIMATION).is_file():
        from clickprism.relevance.approximation import Approximation

        return Approximation.load(source)
    if (source / IMPUTATION).is_file():
        from clickprism.relevance.imputation import read_network

        return read_network(source)
    return Model.load(model_folder(source))


def saved_settings(run: Path) -> ExperimentSettings | None:
    """Return the settings in the folder of a run, or else in its parent, where a comparison saves them."""
    file = next((file for file in (run / SETTINGS, run.parent / SETTINGS) if file.is_file()), None)
    return None if file is None else read_settings(file)


def examples_of_run(run: Path, *, naive: Path | None = None, most: int = MOST) -> Examples:
    """Return example queries from the training part of a run; its log is simulated or read again.

    `naive` is a run or model that was trained on raw clicks.
    """
    known, settings = RunRecord.read(run), saved_settings(run)
    if known is None or settings is None or str(known.data.get("clicks", "")).startswith("of the file"):
        problem = "does not say where its clicks came from, so there are no examples of them"
        remedy = "Create them with clickprism.serve.bundle.examples.examples_of, or omit them"
        raise DataError(problem, file=run, remedy=remedy)
    data, raw = load_data(settings.data), read_data(settings.data).dataset.train.lists
    if data.log is not None:
        by, clicks = "real users", data.log.clicks["train"]
    else:
        by = f"simulated users ({settings.user['name']})"
        clicks = simulate_log(settings, graded(data), seed=known.seed).simulation.clicks
    folders = [run / MODEL, *([] if naive is None else [model_folder(naive)])]
    scores = [np.asarray(Model.load(folder).score(raw)) for folder in folders]
    curve = np.array(known.observation) if known.observation else None
    return examples_of(clicks, *scores, observation=curve, source=f"{by}, training part", most=most)
