"""Clicks on disk: one .npz file with a hash of the documents that it belongs to (docs/reference/datamodel.md)."""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clickprism._util.files import atomic_file, write_errors
from clickprism.errors import DataError
from clickprism.types import Clicks, Lists, Truth

FORMAT: Final = "clickprism clicks"
VERSION: Final = 1

_COLUMNS: Final = ("offsets", "rows", "positions", "clicks", "impressions")
_TRUTH: Final = ("observed", "attracted")
_KINDS: Final[dict[str, type[np.generic]]] = {
    **dict.fromkeys((*_COLUMNS, "seen", *_TRUTH), np.int64),
    "positions": np.int32,
    "weights": np.float64,
}
"""Type of each column; `seen`, `weights` and the truth may be missing."""
_HEAD: Final = ("format", "version", "fingerprint")
_HEAD_BYTES: Final = 1024
_DATA: Final = "data"
_DATA_BYTES: Final = 1 << 20
_DEEPEST: Final = 1_000_000  # positions and sessions beyond these are broken data
_SESSIONS: Final = 1 << 53
UNSOUND: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    MemoryError,
)


def fingerprint(lists: Lists) -> str:
    """Return a hash of features, offsets and query ids; document ids do not count, as rows are places."""
    digest = blake2b(digest_size=16)
    digest.update(f"{lists.features.shape}".encode())
    digest.update(np.ascontiguousarray(lists.offsets, dtype="<i8").data)
    digest.update("\n".join(lists.query_ids.tolist()).encode())
    for start in range(0, lists.documents, 65536):
        digest.update(np.ascontiguousarray(lists.features[start : start + 65536], dtype="<f4").data)
    return digest.hexdigest()


def save_clicks(
    clicks: Clicks, path: Path | str, *, truth: Truth | None = None, data: Mapping[str, Any] | None = None
) -> None:
    """Write clicks, and the truth of a simulation with them, to an .npz file: whole or not at all.

    `data` are the settings of the judged lists that the clicks are on, so that `saved_data` can find them again.
    """
    path = Path(path)
    columns = {name: getattr(clicks, name) for name in (*_COLUMNS, "weights", "seen")}
    columns |= {name: getattr(truth, name, None) for name in _TRUTH}
    columns |= {"format": np.array(FORMAT), "version": np.array(VERSION)}
    columns |= {"fingerprint": np.array(fingerprint(clicks.lists))}
    columns[_DATA] = None if data is None else np.array(json.dumps(data))
    with write_errors(path), atomic_file(path) as draft, draft.open("wb") as file:
        kept = {name: column for name, column in columns.items() if column is not None}
        np.savez_compressed(file, allow_pickle=False, **kept)


def saved_data(path: Path | str) -> dict[str, Any] | None:
    """Return the settings of the judged lists that a file of clicks records; None if it records none."""
    with _archive(path) as archive:
        if f"{_DATA}.npy" not in archive.namelist():
            return None
        settings = json.loads(str(_member(path, archive, _DATA)))
    if not isinstance(settings, dict):
        raise DataError("the settings of its data are not a table", file=path)
    return settings


def load_clicks(path: Path | str, lists: Lists) -> Clicks:
    """Read clicks on these lists; those on other lists are refused."""
    return load_log(path, lists)[0]


def load_log(path: Path | str, lists: Lists) -> tuple[Clicks, Truth | None]:
    """Read clicks on these lists, and the truth if it was saved with them."""
    return _log(path, lists, _read(path, lists))


def load_bare(path: Path | str) -> tuple[Clicks, Truth | None]:
    """Read clicks without the documents they are on; the features have no columns, and ids are not known.

    Only documents that were shown count, numbered in their order. Documents shown together belong to one query, and the
    documents of a query are consecutive in a data set, so queries that no ranked list joins may become several.
    """
    columns = _read(path, None)
    offsets, positions = columns["offsets"], columns["positions"]
    known, rows = np.unique(columns["rows"], return_inverse=True)
    if known.min(initial=0) < 0:
        raise DataError("rows must not be negative", file=path)
    if positions.max(initial=0) > _DEEPEST:
        raise DataError(f"has a position {positions.max():,}; {_DEEPEST:,} is the largest allowed", file=path)
    if columns["impressions"].astype(np.float64).sum() > _SESSIONS:
        raise DataError("has more sessions than can be counted", file=path)
    columns["rows"] = rows.astype(np.int64)
    bounds = np.unique([0, len(known)])
    filled = offsets[:-1][np.diff(offsets) > 0]
    if len(filled) and filled[0] == 0 and filled[-1] < len(rows) and bool((np.diff(filled) > 0).all()):
        reach = np.arange(len(known))
        np.maximum.at(reach, np.minimum.reduceat(rows, filled), np.maximum.reduceat(rows, filled))
        starts = np.flatnonzero(np.arange(1, len(known)) > np.maximum.accumulate(reach)[:-1]) + 1
        bounds = np.concatenate([[0], starts, [len(known)]])
    names = np.arange(1, len(bounds)).astype(np.str_)
    lists = Lists(np.zeros((len(known), 0), np.float32), bounds.astype(np.int64), names)
    return _log(path, lists, columns)


def _log(path: Path | str, lists: Lists, columns: dict[str, NDArray[Any]]) -> tuple[Clicks, Truth | None]:
    try:
        clicks = Clicks(lists, **{name: column for name, column in columns.items() if name not in _TRUTH})
    except DataError as error:
        raise DataError(str(error), file=path) from None
    truth = [columns[name] for name in _TRUTH if name in columns]
    if not truth:
        return clicks, None
    if len(truth) < len(_TRUTH):
        raise DataError(f"has only one of {' and '.join(_TRUTH)}", file=path)
    for name, counts in zip(_TRUTH, truth, strict=True):
        if counts.shape != clicks.rows.shape or bool(((counts < 0) | (counts > clicks.list_impressions)).any()):
            raise DataError(f"{name} must count some of the impressions of every entry", file=path)
    return clicks, Truth(*truth)


@contextmanager
def _archive(path: Path | str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None
    except UNSOUND as error:
        raise DataError(f"is not a valid .npz file ({error})", file=path) from None


def _read(path: Path | str, lists: Lists | None) -> dict[str, NDArray[Any]]:
    """Read the columns of a file, after its head says that it is one of clicks on these lists."""
    with _archive(path) as archive:
        names = {member.removesuffix(".npy") for member in archive.namelist()}
        head = {name: str(_member(path, archive, name)) for name in _HEAD if name in names}
        missing = [name for name in (*_HEAD, *_COLUMNS) if name not in names]
        if missing or head["format"] != FORMAT:
            raise DataError("is not a file of clicks", file=path, remedy=f"It lacks: {', '.join(missing or [FORMAT])}.")
        if head["version"] != str(VERSION):
            problem = f"has format version {head['version']}, but only {VERSION} is known"
            raise DataError(problem, file=path, remedy="Update clickprism.")
        if lists is not None and head["fingerprint"] != fingerprint(lists):
            remedy = "Load the lists they were made on, with the same normalisation of features."
            raise DataError("holds clicks on other documents", file=path, remedy=remedy)
        if odd := sorted(names - {_DATA, *_HEAD, *_KINDS}):
            raise DataError(f"holds {odd[0]!r}, which is not a column of clicks", file=path)
        return {name: _member(path, archive, name) for name in _KINDS if name in names}


def _member(path: Path | str, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read one array, only after its header says what is expected, and no more than the archive has of it."""
    size = archive.getinfo(f"{name}.npy").file_size
    with archive.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} has an unknown version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        kind = _KINDS.get(name)
        if kind is not None and (dtype != kind or len(shape) != 1):
            got = f"{dtype} with {len(shape)} dimensions"
            raise DataError(f"{name} must be a vector of {np.dtype(kind)}, got {got}", file=path)
        if kind is None and size > (_DATA_BYTES if name == _DATA else _HEAD_BYTES):
            raise ValueError(f"{name} is too long")
        if file.tell() + dtype.itemsize * math.prod(shape) != size:
            raise ValueError(f"{name} is not as long as its header says")
        file.seek(0)
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array
