"""Models as verified folders: a manifest in JSON names the files of the model with their SHA-256.

A part of the hash is in the name of each file. Saving writes new files next to the old ones and then replaces the
manifest in one step: a reader finds the old model or the new one, and writers wait for each other. The hashes detect
damage; they do not prove who made a model, so load models only from people you trust.
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

from clickprism._util.files import create_folder, lock, write_errors, write_file
from clickprism.errors import ClickprismError, DataError

TRIES: Final = 10
BROKEN: Final = (KeyError, ValueError, TypeError, AttributeError, RuntimeError, RecursionError, BadZipFile)
T = TypeVar("T")


@final
@dataclass(frozen=True)
class Manifest:
    """How one kind of model is stored.

    Attributes:
        name: file name of the manifest.
        files: pattern of the names of its files, which are `stem-16 digits of the hash.ending`.
        what: name of the kind in error messages, such as "a model manifest".
        remedy: how to create such a model, for the message if the manifest cannot be read.
    """

    name: str
    files: re.Pattern[str]
    what: str
    remedy: str = ""

    def save(self, folder: Path, about: Mapping[str, Any], contents: Mapping[str, bytes]) -> None:
        """Write a model to a folder; an existing model is replaced in one step, and other files stay."""
        with write_errors(folder):
            create_folder(folder)
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
        """Return what `make` builds from the manifest and the files by stem; each file is checked against its hash."""
        file = folder / self.name
        try:
            for _ in range(TRIES):
                with suppress(FileNotFoundError):  # another process replaced the model after the manifest was read
                    return make(*self._read(folder, version))
            return make(*self._read(folder, version))
        except ClickprismError:
            raise
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
            raise DataError(problem, file=error.filename or file, remedy=self.remedy) from None
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
            raise DataError("was changed after the model was saved", file=folder / name, remedy="Save the model again")
        return content

    def _old_files(self, folder: Path) -> set[str]:
        """Return the names of the files of the present model; none if there is no model or its manifest is broken."""
        try:
            named = json.loads((folder / self.name).read_text(encoding="utf-8"))["files"]
            return {str(name) for name in named if self.files.fullmatch(str(name))}
        except (OSError, ValueError, KeyError, TypeError):
            return set()
