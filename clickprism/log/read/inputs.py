"""Input files: which they are, and by their names what is in them."""

from __future__ import annotations

import glob
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from clickprism.errors import DataError
from clickprism.log.read.formats import BOM, MAGIC, Dialect, blocks, parquet_columns
from clickprism.log.read.sources import ALIASES, HIT, UBI
from clickprism.log.settings import FIELDS, SourceSettings

COMPRESSED: Final = (".gz", ".gzip", ".zst", ".zstd")
OURS: Final = ("log.toml", ".alive")
"""Marks of folders that are no input: a click log, and the staging of a run."""
FORMATS: Final = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def find_inputs(paths: Sequence[Path | str]) -> list[Path]:
    """The files that paths name, each once: a file, the known files under a folder (sorted), or a pattern's.

    Hidden files, partial ones (.tmp, .part), markers such as _SUCCESS, and whatever is in a click log of ours (a folder
    with a log.toml), are left out of folders and patterns.

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
    """The ending that names the format, without that of the compression.

    >>> extension(Path("log.2024.CSV.gz")), extension(Path("log"))
    ('.csv', '')
    """
    name = Path(path.name.lower())
    return (name.with_suffix("") if name.suffix in COMPRESSED else name).suffix


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if extension(each) in FORMATS and _whole(each, path))
        if not files:
            known = ", ".join(FORMATS)
            raise DataError("the folder has no log file", file=path, remedy=f"Log files end in {known}, .gz, .zst")
        yield from files
    elif path.exists():
        yield path
    elif glob.has_magic(str(path)):
        names = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        root = next(folder for folder in path.parents if not glob.has_magic(str(folder)))
        files = [name for name in names if _whole(name, root)]
        if not files:
            raise DataError("no file matches", file=path, remedy="Check the pattern, and quote it for the shell")
        yield from files
    else:
        raise DataError("there is no such file or folder", file=path, remedy="Check the path")


def _whole(path: Path, folder: Path) -> bool:
    inner = path.relative_to(folder)
    if any(part.startswith((".", "_")) and part not in (".", "..") for part in inner.parts):
        return False
    if path.suffix.lower() in (".tmp", ".part", ".partial", ".crdownload") or not path.is_file():
        return False
    return not any((folder / above / mark).is_file() for above in inner.parents for mark in OURS)


PEEK: Final = 1 << 18
LOOKED_AT: Final = 100
COMMAS: Final = Dialect()
DELIMITERS: Final = (",", ";", "\t", "|")
YANDEX: Final = ("query", "documents", "clicks")
KNOWN: Final = {*FIELDS, *YANDEX}.union(
    *((ways,) if isinstance(ways, str) else ways for ways in (*UBI.values(), *ALIASES.values()))
)
"""Names of columns of the schemas that we know."""
KINDS: Final = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    dict: "an object",
    list: "a list",
}
METARANK: Final = ("item", "user", "ranking", "interaction")


@dataclass(frozen=True)
class Detected:
    """What a file holds, and why that is thought; `columns` are the names and types of those in its first rows."""

    format: str
    schema: str
    why: str
    dialect: Dialect = COMMAS
    columns: Mapping[str, str] = field(default_factory=dict)


def detect(path: Path, source: SourceSettings) -> Detected:
    """Detect format and schema of a file; what the settings say is taken as it is.

    An error if its rows can be read but have none of the fields that a known schema has.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
    if source.format == "parquet" or (source.format == "auto" and (magic == MAGIC or _named(path) == "parquet")):
        schema = parquet_columns(path)
        kinds = {each.name: str(each.type) for each in schema}
        return replace(_settled(path, source, "parquet", [schema.names], COMMAS), columns=kinds)
    start = next(iter(blocks(path, PEEK))).data.removeprefix(BOM)
    lines = [line.decode("utf-8", "replace") for line in start.splitlines()[:LOOKED_AT] if line.strip()]
    known = source.format if source.format != "auto" else _named(path)
    if known == "json" or (not known and (not lines or lines[0].lstrip().startswith(("{", "[")))):
        rows = [row for line in lines if (row := _object(line)) is not None]
        return replace(_settled(path, source, "json", [*map(_keys, rows)], COMMAS), columns=_kinds(rows))
    yandex = source.schema == "yandex"
    dialect = Dialect(source.delimiter, bool(source.quote) and not yandex, source.mapping.header)
    if not source.delimiter:
        tab = yandex or extension(path) in (".tsv", ".tab")
        dialect = replace(dialect, delimiter="\t" if tab else _delimiter(path, source, lines, dialect))
    names = dialect.names or (dialect.fields(lines[0]) if lines else ())
    kinds = {name.strip(): "text" for name in names}
    return replace(_settled(path, source, "csv", [names], dialect), columns=kinds)


def _delimiter(path: Path, source: SourceSettings, lines: Sequence[str], dialect: Dialect) -> str:
    """What parts fields: of several that could, the one that gives the most names we know in the first line.

    Of a file without a header, the one that gives the right number of fields in the most lines.
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
        shown = " or ".join(repr(sign) for sign in best)
        remedy = f"Choose one: --source.delimiter '{json.dumps(best[0])}'"
        raise DataError(f"the columns may be parted by {shown}", file=path, line=1, remedy=remedy)
    return best[0] if best else ","


def _settled(
    path: Path, source: SourceSettings, form: str, rows: Sequence[Iterable[str]], dialect: Dialect
) -> Detected:
    """What the settings say; else the schema of most rows, each of which is given by the names of its fields."""
    if source.schema != "auto":
        return Detected(form, source.schema, "the settings say so", dialect)
    if source.mapping:
        return Detected(form, "mapping", "a mapping is given", dialect)
    named = [{name.strip() for name in names} for names in rows]
    votes = Counter(told for has in named if (told := _schema_of(has)) is not None)
    if votes:
        (schema, marks), _ = votes.most_common(1)[0]
        quote = Dialect(dialect.delimiter, quote=False) if schema == "yandex" else dialect
        return Detected(form, schema, f"there is {marks}", quote)
    names = sorted({name for has in named for name in has if "=" not in name})
    if names:
        shown = ", ".join([*names[:12], *(["..."] if len(names) > 12 else [])])
        remedy = f"It has {shown}. Give --schema, or a file for --mapping that names your columns (docs/datamodel.md)"
        raise DataError("the rows have the fields of no known schema", file=path, remedy=remedy)
    return Detected(form, "clickprism", "no row could be read to tell", dialect)


def _schema_of(has: set[str]) -> tuple[str, str] | None:
    """The schema of a row with these fields, and the fields that mark it; None if it is not known."""
    marks: dict[str, Sequence[str]] = {
        "ubi": [name for name in ("action_name", "query_response_hit_ids") if name in has],
        "metarank": [name for name in has if name.startswith("event=")],
        "clickprism": [name for name in ("search_id",) if name in has],
        "yandex": YANDEX if has.issuperset(YANDEX) else (),
    }
    if not marks["ubi"] and {"user_query", "client_id"} <= has:
        marks["ubi"] = ["user_query", "client_id"]
    return next(((schema, ", ".join(sorted(found))) for schema, found in marks.items() if found), None)


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _keys(row: dict[str, Any]) -> list[str]:
    if isinstance(row.get(HIT), dict):
        return [*row[HIT]]
    metarank = row.get("event") in METARANK if isinstance(row.get("event"), str) else False
    return [*row, *([f"event={row['event']}"] if metarank else [])]


def _kinds(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The usual type of each field that a tenth of these rows has, as JSON has it."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                found.setdefault(name, Counter())[KINDS[type(value)]] += 1
    common = {name: kinds for name, kinds in found.items() if 10 * kinds.total() > len(rows)}
    return {name: kinds.most_common(1)[0][0] for name, kinds in common.items()}


def _named(path: Path) -> str:
    return FORMATS.get(extension(path), "")
