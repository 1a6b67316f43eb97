"""From a model folder or a bundle to checked files of another engine's format, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from clickprism._util.files import atomic_folder, write_errors, write_file
from clickprism._util.tables import Table
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
        format: Format of the export.
        name: Name of the model in the other system.
        files: Paths of the files.
        feature_names: Names of the features, in the order of the model.
        rows_checked: Number of rows that the model and a reader of the format scored alike.
        notes: What the user has to know or do.
    """

    format: str
    name: str
    files: tuple[Path, ...]
    feature_names: tuple[str, ...]
    rows_checked: int
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return the files and the notes."""
        rows = [
            ["model", self.name],
            *[["file", str(file)] for file in self.files],
            ["check", f"{self.rows_checked:,} rows have the same scores as in the model"],
            *[["note", note[0].upper() + note[1:]] for note in self.notes],
        ]
        return [Table("", ["format", self.format], rows)]


def export(source: Source, out: Path | str, *, format_name: str, seed: int = 0) -> Exported:
    """Write a ranker in a format of `FORMATS`, after a reader of it has scored a sample as the model does.

    A format of one file writes it as `out`, replacing an older one; one of several writes a folder `out`, which must
    not be there yet.
    """
    check_format(format_name)
    maker: Any = resolve(FORMATS, format_name, path="format")
    package: Package = maker(source)
    out = Path(out)
    if len(package.files) > 1 and out.exists():
        raise DataError("exists already", file=out, remedy=f"{format_name} writes a folder: name a new one with --out")
    rows = check(source, package, format_name, seed=seed)
    files = _written(package, out)
    return Exported(format_name, source.name, files, source.feature_names, rows, package.notes)


def check_format(name: str) -> None:
    """Refuse a format that there is none of, before anything is read."""
    if name not in FORMATS:
        raise SettingError("format", name, f"be one of {', '.join(FORMATS)}")


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
