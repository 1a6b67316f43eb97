"""From a model folder or a bundle to checked files of another engine's format, whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from clickprism.errors import DataError, SettingError
from clickprism.serve.export import FORMATS
from clickprism.serve.export.check import check
from clickprism.serve.export.source import Package, Source
from clickprism.settings import resolve


@final
@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        files: their paths.
        rows: how many were scored alike by the model and by a reader of the format.
        notes: what a user has to know or do.
    """

    files: tuple[Path, ...]
    rows: int
    notes: tuple[str, ...]


def export(source: Source, out: Path | str, *, format_name: str, seed: int = 0) -> Exported:
    """Write a ranker in a format of `FORMATS`, after a reader of it has scored a sample as the model does.

    A format of one file writes it as `out`, replacing an older one; one of several writes a folder `out`, which must
    not be there yet.
    """
    check_format(format_name)
    maker: Any = resolve(FORMATS, format_name, path="--format")
    package: Package = maker(source)
    out = Path(out)
    if len(package.files) > 1 and out.exists():
        raise DataError("is there already", file=out, remedy=f"{format_name} makes a folder: name a new one")
    rows = check(source, package, format_name, seed=seed)
    return Exported(_written(package, out), rows, package.notes)


def check_format(name: str) -> None:
    """Refuse a format that there is none of, before anything is read."""
    if name not in FORMATS:
        raise SettingError("--format", name, f"be one of {', '.join(FORMATS)}")


def _written(package: Package, out: Path) -> tuple[Path, ...]:
    """Write beside, to disk, then rename."""
    draft = out.with_name(f".{out.name}.{os.getpid()}.part")
    single = len(package.files) == 1
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for name, content in package.files.items():
            path = draft if single else draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        draft.rename(out)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=out, remedy="Choose another --out") from None
    finally:
        with suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
    return (out,) if single else tuple(out / name for name in package.files)
