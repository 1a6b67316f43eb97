"""Arrays in safetensors files: numbers and shapes only, nothing compressed, nothing that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError, MissingExtraError
from clickprism.serve.bundle import Bundle


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as a safetensors file; one without entries is left out."""
    return bytes(_numpy().save({name: np.ascontiguousarray(values) for name, values in arrays.items()}))


def read_arrays(bundle: Bundle, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file of a bundle."""
    numpy, content = _numpy(), bundle.read(name)
    try:
        found: dict[str, NDArray[Any]] = numpy.load(content)
    except Exception as error:
        raise DataError(f"is not a safetensors file ({error})", file=bundle.path(name)) from None
    return found


def _numpy() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise MissingExtraError("serve", "a bundle") from None
    return safetensors.numpy
