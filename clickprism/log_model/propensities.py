"""Read observation probabilities that the user knows, such as from an experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Float64

REMEDY: Final = "Write one number for each position, position 1 first: one a line, or a JSON list such as [1, 0.6, 0.4]"


def read_propensities(path: Path) -> Float64:
    r"""Return the observation probability of each position, [positions].

    The file is a JSON list, a JSON object that `clickprism bias trust --out` (list `alpha`) or `bias position --out`
    (`curve`) wrote, or text with one number a line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "curve.txt"
    ...     _ = file.write_text("1.0\n0.6\n0.4\n")
    ...     read_propensities(file)
    array([1. , 0.6, 0.4])
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        given: Any = json.loads(text) if text.lstrip()[:1] in ("[", "{") else [float(line) for line in text.split()]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy=REMEDY) from None
    except (ValueError, RecursionError):
        raise DataError("is neither JSON nor one number a line", file=path, remedy=REMEDY) from None
    if isinstance(given, dict):
        curve = given.get("curve")
        given = curve.get("values") if isinstance(curve, dict) else given.get("alpha")
    if not isinstance(given, list) or not given or not all(type(each) in (int, float) for each in given):
        raise DataError("does not have one number for each position", file=path, remedy=REMEDY)
    values = np.array(given, dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(wrong):
        problem = f"has {values[wrong[0]]:g} at position {wrong[0] + 1}; observation must be above 0"
        raise DataError(problem, file=path, remedy=REMEDY)
    return values
