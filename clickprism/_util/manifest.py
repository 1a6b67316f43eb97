"""Models as folders: a manifest in JSON, and the files that it names, each with its SHA-256 in the manifest.

A part of the hash is in the name of each file. Saving writes new files beside the old and then replaces the manifest,
in one step: a reader finds the old model or the new one, and writers wait for each other. The hashes find damage; they
do not prove where a model came from, so load models of people you trust.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, final
from zipfile import BadZipFile

from clickprism._util.files import lock, write_errors, write_file
from clickprism.errors import ClickprismError, DataError

TRIES: Final = 10
BROKEN: Final = (KeyError, ValueError, TypeError, AttributeError, RuntimeError, RecursionError, BadZipFile)
T = TypeVar("T")


@final
@dataclass(frozen=True)
class Manifest:
    """What a kind of model is called on disk.

    Attributes:
        name: of the manifest.
        files: the names that its files may have, as `stem-16 digits of the hash.ending`.
        what: it is, in messages.
    """

    name: str
    files: re.Pattern[str]
    what: str

    def save(self, folder: Path, about: Mapping[str, Any], contents: Mapping[str, bytes]) -> None:
        """Write a model into a folder; an older one there is replaced in one step, other files are left alone."""
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with lock(folder):
                old, files = self._old_files(folder), {}
                for name, content in contents.items():
                    stem, _, ending = name.partition(".")
                    digest = hashlib.sha256(content).hexdigest()
                    files[f"{stem}-{digest[:16]}.{ending}"] = digest
                    write_file(folder / f"{stem}-{digest[:16]}.{ending}", content)
                write_file(folder / self.name, json.dumps({**about, "files": files}, indent=1))
                for name in old - set(files):
                    (folder / name).unlink(missing_ok=True)

    def load(self, folder: Path, version: int, make: Callable[[dict[str, Any], dict[str, tuple[Path, bytes]]], T]) -> T:
        """Make a model of its manifest and its files, by their stems; every file is checked against its hash."""
        file = folder / self.name
        try:
            for _ in range(TRIES):
                with suppress(FileNotFoundError):  # replaced between the manifest and its files: the new one is there
                    return make(*self._read(folder, version))
            return make(*self._read(folder, version))
        except ClickprismError:
            raise
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", file=error.filename or file) from None
        except BROKEN as error:
            raise DataError(f"is not {self.what} ({error})", file=file) from None

    def _read(self, folder: Path, version: int) -> tuple[dict[str, Any], dict[str, tuple[Path, bytes]]]:
        about = json.loads((folder / self.name).read_text(encoding="utf-8"))
        if about["format"] != version:
            problem = f"is a model of format {about['format']!r}, this version reads {version}"
            raise DataError(problem, file=folder / self.name)
        contents = {
            str(name).partition("-")[0]: (folder / name, self._content(folder, str(name), digest))
            for name, digest in dict(about["files"]).items()
        }
        return about, contents

    def _content(self, folder: Path, name: str, digest: str) -> bytes:
        if not self.files.fullmatch(name):
            raise DataError(f"names a file that no model has: {name!r}", file=folder / self.name)
        content = (folder / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError("was changed after the model was saved", file=folder / name, remedy="Save the model anew")
        return content

    def _old_files(self, folder: Path) -> set[str]:
        """The files of the model that is there; none where there is none, or where its manifest is broken."""
        try:
            named = json.loads((folder / self.name).read_text(encoding="utf-8"))["files"]
            return {str(name) for name in named if self.files.fullmatch(str(name))}
        except (OSError, ValueError, KeyError, TypeError):
            return set()
