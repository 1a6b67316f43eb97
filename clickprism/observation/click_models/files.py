"""Fitted click models on disk: one .npz file that knows its model and which documents it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clickprism._util.files import atomic_file, write_errors
from clickprism.data.clicks import UNSOUND, fingerprint
from clickprism.errors import DataError
from clickprism.observation.click_models import CLICK_MODELS
from clickprism.observation.click_models.base import FittedModel
from clickprism.settings import resolve, suggest
from clickprism.types import Lists

FORMAT: Final = "clickprism click model"
VERSION: Final = 1

_HEAD: Final = ("format", "version", "model", "fingerprint")
_BY_DOCUMENT: Final = ("attraction", "satisfaction")
_DIMENSIONS: Final = {"rates": 1, "curve": 1, "continuation": 1, "table": 2}  # of the others, 0: one number


def save_model(model: FittedModel, path: Path | str, *, lists: Lists) -> None:
    """Write a model that was fitted to clicks on these lists: whole or not at all."""
    path = Path(path)
    head = dict(zip(_HEAD, map(np.array, (FORMAT, VERSION, model.name, fingerprint(lists))), strict=True))
    with write_errors(path), atomic_file(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **head, **dict(model.parameters))


def load_model(path: Path | str, *, lists: Lists) -> FittedModel:
    """Read a model of clicks on these lists; those of other lists are refused, and no code is run."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            columns: dict[str, NDArray[Any]] = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None
    except (*UNSOUND, TypeError, AttributeError) as error:
        raise DataError(f"is not a sound .npz file ({error})", file=path) from None
    head = {name: str(columns.pop(name, "")) for name in _HEAD}
    if head["format"] != FORMAT:
        raise DataError("is not a file of a click model", file=path, remedy="Write one by save_model.")
    if head["version"] != str(VERSION):
        raise DataError(f"has format version {head['version']}, but only {VERSION} is known", file=path)
    if head["model"] not in CLICK_MODELS:
        known = suggest(head["model"], CLICK_MODELS)
        raise DataError(f"holds the unknown model {head['model']!r} ({known})", file=path)
    if head["fingerprint"] != fingerprint(lists):
        raise DataError(
            "holds a model of clicks on other documents", file=path, remedy="Load the lists it was fitted on."
        )
    for name, values in columns.items():
        _check(name, values, lists, path)
    try:
        model: FittedModel = resolve(CLICK_MODELS, head["model"], path="model").fitted(columns)
    except KeyError as error:
        raise DataError(f"lacks the parameter {error}", file=path) from None
    return model


def _check(name: str, values: Any, lists: Lists, path: Path | str) -> None:
    """Every parameter is of a kind that its name tells: of documents, of positions, a table, or one number."""
    if name == "documents":
        if values.shape != () or values.dtype != np.int64 or int(values) != lists.documents:
            raise DataError(f"must be of {lists.documents} documents", file=path)
        return
    if not isinstance(values, np.ndarray) or values.dtype != np.float64 or not ((values >= 0) & (values <= 1)).all():
        raise DataError(f"{name} must be probabilities", file=path)
    if name in _BY_DOCUMENT and values.shape != (lists.documents,):
        raise DataError(f"must have one {name} for each of the {lists.documents} documents", file=path)
    if name not in _BY_DOCUMENT and (values.ndim != _DIMENSIONS.get(name, 0) or values.size == 0):
        raise DataError(f"{name} must have {_DIMENSIONS.get(name, 0)} dimensions and not be empty", file=path)
