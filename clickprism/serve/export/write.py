"""From a model folder or a bundle to checked files of another engine's format, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from clickprism._util.files import atomic_folder, write_errors, write_file
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
    """Write the only file as `out`, or several into the folder `out`."""
    with write_errors(out, remedy="Choose another --out"):
        if len(package.files) == 1:
            write_file(out, *package.files.values())
            return (out,)
        with atomic_folder(out) as draft:
            for name, content in package.files.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_bytes(content)
    return tuple(out / name for name in package.files)
