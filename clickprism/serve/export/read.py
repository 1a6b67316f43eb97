"""What to export: a folder that `clickprism train` wrote, or a bundle, with the names of its features."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import numpy as np

from clickprism.errors import DataError
from clickprism.model import MANIFEST, Model
from clickprism.serve.export.source import Source
from clickprism.serve.settings import ExportSettings
from clickprism.types import Float32

BUNDLE: Final = "manifest.json"
RUN: Final = "model"  # what a run of clickprism train calls its own
MOST: Final = 64 << 20
DEFAULT: Final = ExportSettings()


def read_source(folder: Path | str, settings: ExportSettings = DEFAULT) -> Source:
    """Return the ranker in the folder of a model or a bundle, ready to export."""
    folder = Path(folder)
    rows: Float32 | None = None
    names: tuple[str, ...] = ()
    if (folder / BUNDLE).exists():
        model, names, rows = _bundle(folder)
    elif (folder / MANIFEST.name).exists() or (folder / RUN / MANIFEST.name).exists():
        model = Model.load(folder if (folder / MANIFEST.name).exists() else folder / RUN)
    else:
        remedy = "Name a folder written by clickprism train or clickprism model bundle"
        raise DataError(
            f"is neither a model nor a bundle: it has no {MANIFEST.name}, no {BUNDLE}", file=folder, remedy=remedy
        )
    if settings.feature_names is not None:
        names = names_from(settings.feature_names)
    if not names or all(each.isdecimal() for each in names):
        names = tuple(f"feature_{place}" for place in range(1, model.features + 1))
    name = settings.name or re.sub(r"[^A-Za-z0-9_.-]", "_", folder.resolve().name).lstrip(".-") or "clickprism"
    return Source(model, names, name, settings.feature_set, settings.complete, rows)


def names_from(file: Path) -> tuple[str, ...]:
    """The names of features in a file: one a line, or a JSON list."""
    try:
        if file.stat().st_size > MOST:
            raise DataError(f"is larger than {MOST >> 20} MB, which no list of names is", file=file)
        text = file.read_text(encoding="utf-8")
        if not text.lstrip().startswith("["):
            return tuple(line.strip() for line in text.splitlines() if line.strip())
        names = json.loads(text)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from None
    except ValueError as error:
        raise DataError(f"is no list of names ({error})", file=file, remedy="Write one name a line") from None
    if not all(isinstance(name, str) for name in names):
        raise DataError("has a name that is no text", file=file, remedy="Write one name a line")
    return tuple(names)


def _bundle(folder: Path) -> tuple[Model, tuple[str, ...], Float32 | None]:
    from clickprism.serve.bundle import Bundle
    from clickprism.serve.parts import read_model
    from clickprism.serve.sample import read_sample

    bundle = Bundle.load(folder)
    model = read_model(bundle)
    rows = read_sample(bundle, "main")[0].features
    return model, bundle.manifest.feature_names, None if rows is None else np.asarray(rows, np.float32)
