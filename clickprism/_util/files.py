"""Folders that can be written to, and JSON that anyone can read."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clickprism.errors import DataError


def make_folder(path: Path) -> None:
    """Make a folder if it is not there; an OSError or a DataError tells at once that nothing can be written to it."""
    if path.exists() and not path.is_dir():
        raise DataError(
            "cannot be used (it is a file, and a folder is needed)", file=path, remedy="Choose another --out"
        )
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def json_text(data: Any) -> str:
    """JSON in which null stands for every number that is none.

    >>> print(json_text({"a": [0.5, float("nan")], "b": float("inf")}).replace(chr(10), ""))
    { "a": [  0.5,  null ], "b": null}
    """
    return json.dumps(_finite(data), indent=1, ensure_ascii=False, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
