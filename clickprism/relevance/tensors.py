"""Fitted networks as files: one of safetensors, with all else as JSON in its header; reading runs no code."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from clickprism.errors import ClickprismError, DataError

BROKEN: Final = (KeyError, IndexError, ValueError, TypeError, AttributeError, RuntimeError, RecursionError)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], *, about: Mapping[str, Any]) -> None:
    """Write tensors and a JSON value to one file: under another name first, then renamed."""
    whole = {name: value.detach().contiguous() for name, value in tensors.items()}
    words = json.dumps(dict(about), sort_keys=True)
    content = save(whole, metadata={"about": words, "sha256": _digest(whole, words)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as part:
            part.write(content)
            part.flush()
            os.fsync(part.fileno())
        os.replace(part.name, path)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=error.filename or path) from None


def read_tensors(path: Path, *, kind: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the JSON value of a file, whose `kind` must be this; damage is an error."""
    try:
        tensors = load(path.read_bytes())
        with safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=path) from None
    except SafetensorError as error:
        raise DataError(f"is no file of safetensors ({error})", file=path) from None
    with understood(path):
        about: dict[str, Any] = json.loads(header["about"])
        found = about["kind"]
    if found != kind:
        raise DataError(f"holds {found!r}, not {kind!r}", file=path)
    if _digest(tensors, header["about"]) != header.get("sha256"):
        raise DataError("was changed after it was saved", file=path, remedy="Save it anew")
    return tensors, about


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Whatever goes wrong in making sense of a file is an error that names it."""
    try:
        yield
    except ClickprismError as error:
        raise DataError(str(error), file=path) from None
    except BROKEN as error:
        raise DataError(f"does not fit together ({error})", file=path) from None


def _digest(tensors: Mapping[str, torch.Tensor], words: str) -> str:
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
