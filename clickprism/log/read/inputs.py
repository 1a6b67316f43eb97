"""Input files: which they are, where they are, and what is in them."""

from __future__ import annotations

import glob
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import duckdb

from clickprism.data.click_table import Columns
from clickprism.errors import DataError
from clickprism.log.read.formats import BOM, MAGIC, Dialect, answer_rows, blocks, parquet_columns, parquet_rows
from clickprism.log.read.rows import ALIASES, HIT, UBI
from clickprism.log.settings import FIELDS, SourceSettings

COMPRESSED: Final = (".gz", ".gzip", ".zst", ".zstd")
MARKS: Final = ("log.toml", ".alive")
"""Files that mark folders that are no input: a click log, and the temporary folder of a run."""
_ENDINGS: Final = {"json": ".jsonl .ndjson .json", "csv": ".csv .tsv .tab", "parquet": ".parquet .pq"}
FORMATS: Final = {ending: form for form, endings in _ENDINGS.items() for ending in endings.split()}
ORDINAL: Final = re.compile(rb'ordinal[\\"]+\s*:\s*[\\"]*(\d{1,9})')
"""The position in an event of UBI."""
ORDINAL_FILES: Final = 20  # in which positions are looked for
ORDINAL_BYTES: Final = 1 << 20  # of each of them
REMOTE: Final = ("s3://", "gs://", "file://")


def find_inputs(paths: Sequence[Path | str]) -> list[Path]:
    """Return the files of some paths, each once: a file, the known files in a folder (sorted), or those of a pattern.

    Hidden and partial files (.tmp, .part), markers such as _SUCCESS, and the content of click logs (folders with a
    log.toml) are excluded from folders and patterns.

    >>> find_inputs(["no/such/*.jsonl"])
    Traceback (most recent call last):
    clickprism.errors.DataError: no/such/*.jsonl: no file matches. Check the pattern, and quote it for the shell
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not str(path):
            raise DataError("a path is empty", remedy="Say . for the current folder")
        for file in _files(Path(path)):
            found.setdefault(file.resolve(), file)
    return list(found.values())


def extension(path: Path) -> str:
    """Return the suffix that names the format, without the suffix of the compression.

    >>> extension(Path("log.2024.CSV.gz")), extension(Path("log"))
    ('.csv', '')
    """
    name = Path(path.name.lower())
    return (name.with_suffix("") if name.suffix in COMPRESSED else name).suffix


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if extension(each) in FORMATS and _is_input(each, path))
        problem, remedy = "the folder has no log file", f"Log files end in {', '.join(FORMATS)}, .gz, .zst"
    elif path.exists():
        return [path]
    elif glob.has_magic(str(path)):
        root = next(folder for folder in path.parents if not glob.has_magic(str(folder)))
        files = [name for name in map(Path, sorted(glob.glob(str(path), recursive=True))) if _is_input(name, root)]
        problem, remedy = "no file matches", "Check the pattern, and quote it for the shell"
    else:
        raise DataError("there is no such file or folder", file=path, remedy="Check the path")
    if not files:
        raise DataError(problem, file=path, remedy=remedy)
    return files


def _is_input(path: Path, folder: Path) -> bool:
    inner = path.relative_to(folder)
    hidden = any(part.startswith((".", "_")) and part not in (".", "..") for part in inner.parts)
    partial = path.suffix.lower() in (".tmp", ".part", ".partial", ".crdownload")
    if hidden or partial or not path.is_file():
        return False
    return not any((folder / above / mark).is_file() for above in inner.parents for mark in MARKS)


@contextmanager
def local_copies(
    paths: Sequence[Path | str], *, note: Callable[[str], None] | None = None
) -> Iterator[Sequence[Path | str]]:
    """Yield the paths, with temporary copies for those at URLs such as s3://bucket/events/*.jsonl.gz.

    Credentials come from the environment. `note` is called with the name of each file.
    """
    with TemporaryDirectory(prefix="clickprism-") as scratch:
        yield [
            _download(path, Path(scratch, str(number)), note or (lambda _: None))
            if isinstance(path, str) and path.startswith(REMOTE)
            else path
            for number, path in enumerate(paths)
        ]


def _download(url: str, into: Path, note: Callable[[str], None]) -> Path:
    """Copy the files of a URL, which may be a file, a folder or a pattern, to a folder; return it, or the one file."""
    import pyarrow as pa
    from pyarrow import fs

    remedy = "Check the URL, its region and the credentials in the environment"
    try:
        system, root = fs.FileSystem.from_uri(url)
        pattern = root if glob.has_magic(root) else None
        start = root if pattern is None else root[: next(i for i, sign in enumerate(root) if sign in "*?[")]
        folder = start if pattern is None else start.rpartition("/")[0]
        about = system.get_file_info(folder)
        listed = (
            [about]
            if about.is_file
            else system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        )
        files = [each for each in listed if each.is_file and (pattern is None or fnmatchcase(each.path, pattern))]
        if not files:
            raise DataError("there is no such file", file=url, remedy=remedy)
        for each in files:
            target = into / (each.base_name if about.is_file else each.path.removeprefix(folder).lstrip("/"))
            note(f"Fetching {target.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with system.open_input_stream(each.path, compression=None) as source, target.open("wb") as copy:
                while block := source.read(1 << 22):
                    copy.write(block)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot be read ({str(error).splitlines()[0][:200]})", file=url, remedy=remedy) from None
    return target if about.is_file else into


PEEK: Final = 1 << 18
LOOKED_AT: Final = 100
COMMAS: Final = Dialect()
DELIMITERS: Final = (",", ";", "\t", "|")
YANDEX: Final = ("query", "documents", "clicks")
KNOWN: Final = {*FIELDS, *YANDEX}.union(
    *((ways,) if isinstance(ways, str) else ways for ways in (*UBI.values(), *ALIASES.values()))
)
"""Names of columns of the schemas that we know."""
KINDS: Final = {str: "text", bool: "true or false", int: "a number", float: "a number"} | {
    dict: "an object",
    list: "a list",
}
METARANK: Final = ("item", "user", "ranking", "interaction")


@dataclass(frozen=True)
class Detected:
    """What a file holds; `columns` are the names and types of the columns in its first rows."""

    format: str
    schema: str
    dialect: Dialect = COMMAS
    columns: Mapping[str, str] = field(default_factory=dict)


def detect(path: Path, source: SourceSettings) -> Detected:
    """Detect format and schema of a file, as far as the settings do not say them.

    It is an error if its rows can be read but have none of the fields of a known schema.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
    named = FORMATS.get(extension(path), "") if source.format == "auto" else source.format
    if named == "parquet" or (source.format == "auto" and magic == MAGIC):
        schema = parquet_columns(path)
        kinds = {each.name: str(each.type) for each in schema}
        return replace(_with_schema(path, source, "parquet", [schema.names]), columns=kinds)
    start = next(iter(blocks(path, PEEK))).data.removeprefix(BOM)
    lines = [line.decode("utf-8", "replace") for line in start.splitlines()[:LOOKED_AT] if line.strip()]
    if named == "json" or (not named and (not lines or lines[0].lstrip().startswith(("{", "[")))):
        rows, is_answer = [row for line in lines if (row := _object(line)) is not None], _is_answer(lines)
        if is_answer:
            parts = next(answer_rows(path, size=PEEK)).texts[:LOOKED_AT].to_pylist()
            rows = [row for each in parts if (row := _object(each)) is not None]
        form = "answer" if is_answer else "json"
        return replace(_with_schema(path, source, form, [*map(_keys, rows)]), columns=_kinds(rows))
    yandex = source.schema == "yandex"
    dialect = Dialect(source.delimiter, bool(source.quote) and not yandex, source.mapping.header)
    if not source.delimiter:
        tab = yandex or extension(path) in (".tsv", ".tab")
        dialect = replace(dialect, delimiter="\t" if tab else _delimiter(path, source, lines, dialect))
    names = dialect.names or (dialect.fields(lines[0]) if lines else ())
    found = replace(_with_schema(path, source, "csv", [names]), columns={name.strip(): "text" for name in names})
    return replace(found, dialect=replace(dialect, quote=dialect.quote and found.schema != "yandex"))


def _is_answer(lines: Sequence[str]) -> bool:
    """Return whether a file is one JSON value, such as the answer of a search, and not one row per line."""
    first = lines[0].strip() if lines else ""
    return first == "{" or first.startswith("[") or (len(lines) == 1 and "hits" in (_object(first) or {}))


def first_ordinal(files: Sequence[Path], source: SourceSettings) -> Literal[0, 1] | None:
    """Return the smallest position in the first UBI events of files, 0 or 1; None if they have no positions."""
    found: set[int] = set()
    for file in files[:ORDINAL_FILES]:
        with suppress(DataError):  # of a file that cannot be read, which ingest reports
            about = detect(file, source) if file.is_file() else None
            if about is not None and about.schema == "ubi":
                found |= _ordinals(file, about.format)
    return None if not found else 0 if 0 in found else 1


def _ordinals(file: Path, form: str) -> set[int]:
    """Return positions of UBI events at the start of a file."""
    if form != "parquet":
        return {int(digits) for digits in ORDINAL.findall(next(iter(blocks(file, ORDINAL_BYTES))).data)}
    with duckdb.connect() as connection:
        rows = next(parquet_rows(file, connection, size=ORDINAL_BYTES)).texts
    return {int(digits) for digits in ORDINAL.findall("\n".join(rows.to_pylist()).encode())}


def _delimiter(path: Path, source: SourceSettings, lines: Sequence[str], dialect: Dialect) -> str:
    """Return the delimiter that gives the most known names in the first line.

    In a file without a header, it is the one that gives the right number of fields in the most lines.
    """
    known = KNOWN.union(source.mapping.columns.values())
    scores = {}
    for sign in DELIMITERS:
        parts = [replace(dialect, delimiter=sign).fields(line) for line in lines]
        if dialect.names:
            scores[sign] = sum(len(fields) == len(dialect.names) for fields in parts)
        elif parts and len(parts[0]) > 1:
            scores[sign] = len(known.intersection(map(str.strip, parts[0])))
    best = [sign for sign, score in scores.items() if score == max(scores.values())]
    if len(best) > 1 and (max(scores.values()) or not dialect.names):
        remedy = f"Choose one: --source.delimiter '{json.dumps(best[0])}'"
        problem = f"the columns may be separated by {' or '.join(map(repr, best))}"
        raise DataError(problem, file=path, line=1, remedy=remedy)
    return best[0] if best else ","


def _with_schema(path: Path, source: SourceSettings, form: str, rows: Sequence[Iterable[str]]) -> Detected:
    """Return the schema of the settings, or that of most rows, of which the names of the fields are given."""
    if source.schema != "auto":
        return Detected(form, source.schema)
    if source.mapping:
        return Detected(form, "mapping")
    named = [{name.strip() for name in names} for names in rows]
    votes = Counter(found for has in named if (found := _schema_of(has)) is not None)
    if votes:
        return Detected(form, votes.most_common(1)[0][0])
    names = sorted({name for has in named for name in has if "=" not in name})
    if not all(name.isprintable() for name in names):
        raise DataError("is not UTF-8 text", file=path, line=1, remedy="Convert it to UTF-8")
    if names:
        listed = ", ".join([*names[:12], *(["..."] if len(names) > 12 else [])])
        one_value = "Write one row per line, then it is read as a table"
        remedy = f"It has {listed}. {one_value if form == 'answer' else _as_table(path, names)}"
        raise DataError("the rows have the fields of no known schema", file=path, remedy=remedy)
    return Detected(form, "clickprism")


def _as_table(path: Path, names: Sequence[str]) -> str:
    """Return how to ingest a file of unknown fields as a table with one row for each result."""
    guess = f"See which column may hold what: clickprism log ingest {path.name} --guess"
    roles = Columns().found_in(names).roles()
    if not {"document", "click"} <= {*roles}:
        return guess
    words = [path.name, *(word for role, name in roles.items() for word in ("--map", f"{role}={name}"))]
    return f"{guess}. Or read it as a table: clickprism log ingest {shlex.join(words)} --into LOG"


def _schema_of(has: set[str]) -> str | None:
    """Return the schema of a row with these fields; None if it is not known."""
    if has & {"action_name", "query_response_hit_ids"} or has >= {"user_query", "client_id"}:
        return "ubi"
    if any(name.startswith("event=") for name in has):
        return "metarank"
    return "clickprism" if "search_id" in has else "yandex" if has.issuperset(YANDEX) else None


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _keys(row: dict[str, Any]) -> list[str]:
    if isinstance(row.get(HIT), dict):
        return [*row[HIT]]
    return [*row, *([f"event={row['event']}"] if str(row.get("event")) in METARANK else [])]


def _kinds(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the usual JSON type of each field that a tenth of these rows has."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                found.setdefault(name, Counter())[KINDS[type(value)]] += 1
    return {name: kinds.most_common(1)[0][0] for name, kinds in found.items() if 10 * kinds.total() > len(rows)}
