"""Files and folders: how everything that clickprism keeps is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

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
