"""Judged lists: LETOR, SVMlight and ranklib text read, with its errors found and named, and written; facts about lists.

A line is `grade qid:<list> <feature>:<value> ... # comment`. `docs/datamodel.md` has every rule.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from clickprism._util.files import atomic_file, write_errors, write_file
from clickprism._util.tables import Table
from clickprism.data import cache as kept
from clickprism.data.files import expand, read_bytes
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Int32, Int64, JudgedLists, Lists, Text

PathLike: TypeAlias = str | Path
Base: TypeAlias = Literal["auto", 0, 1]
OnError: TypeAlias = Literal["raise", "quarantine"]
Missing: TypeAlias = Literal["error", "nan"]

GROUP_SUFFIXES = (".query", ".group")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quarantined:
    """A line that was left out: where it is, what is wrong with it, and the line itself."""

    file: str
    line: int
    column: int
    reason: str
    raw: bytes

    def to_json(self) -> str:
        """One line of JSON; `raw` as text in Latin-1, which keeps every byte."""
        return json.dumps(asdict(self) | {"raw": self.raw.decode("latin-1")})


@dataclass(frozen=True, eq=False)
class Reading:
    """What was read: the judged lists, the base of the feature ids, the largest of them, the lines left out."""

    judged: JudgedLists
    base: int
    largest_id: int
    quarantined: tuple[Quarantined, ...] = ()

    def write_quarantine(self, path: PathLike) -> None:
        """Write the lines that were left out, one JSON object a line."""
        write_file(Path(path), "".join(f"{line.to_json()}\n" for line in self.quarantined))


@dataclass(frozen=True)
class Options:
    """How lines are read, the same for every file of a reading."""

    features: int | None = None
    base: Base = "auto"
    missing: Missing = "error"
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        if self.features is not None and self.features < 1:
            raise SettingError("features", self.features, "be at least 1")
        for field, value, allowed in (
            ("base", self.base, ("auto", 0, 1)),
            ("missing", self.missing, ("error", "nan")),
            ("on_error", self.on_error, ("raise", "quarantine")),
        ):
            if value not in allowed:
                raise SettingError(field, value, f"be one of {', '.join(map(repr, allowed))}")


def read_letor(
    path: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    base: Base = "auto",
    missing: Missing = "error",
    query_file: PathLike | None = None,
    on_error: OnError = "raise",
    cache: kept.Place = "default",
) -> JudgedLists:
    r"""Read judged lists from LETOR, SVMlight or ranklib text, plain, gzip or zstd.

    Several files are read as one data set: rows of the same `qid` are joined wherever they are, lists in the order of
    first appearance. Broken input is a `DataError` with file, line and column.

    Args:
        path: the file, or the files.
        features: how many features there are; by default the largest feature id decides.
        base: whether feature ids start from 0 or 1; "auto" is 0 if any id 0 occurs in any of the files, else 1.
        missing: "nan" takes the values `nan` and `null` for missing ones, kept as NaN; otherwise they are errors.
        query_file: the lengths of the lists, one a line, for files without `qid:`; found by itself beside the data
            (rank.train.gz has rank.train.query or rank.train.group).
        on_error: "quarantine" leaves broken lines out; `scan_letor` also says which.
        cache: the folder where the parsed arrays are kept for the next time, or None to keep nothing.

    Returns:
        The lists, features as one float32 matrix [documents, features], memory-mapped where they come from the cache.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "small.txt")
    ...     size = file.write_text("2 qid:7 1:0.5 3:1 # docid = a\n0 qid:7 2:-1e-2 # docid = b\n")
    ...     judged = read_letor(file, cache=None)
    >>> judged.lists.features.tolist(), judged.grades.tolist()
    ([[0.5, 0.0, 1.0], [0.0, -0.009999999776482582, 0.0]], [2, 0])
    >>> judged.lists.query_ids.tolist(), judged.lists.document_ids.tolist()
    (['7'], ['a', 'b'])
    """
    reading = scan_letor(
        path,
        features=features,
        base=base,
        missing=missing,
        query_file=query_file,
        on_error=on_error,
        cache=cache,
    )
    return reading.judged


def scan_letor(
    path: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    base: Base = "auto",
    missing: Missing = "error",
    query_file: PathLike | None = None,
    on_error: OnError = "raise",
    cache: kept.Place = "default",
) -> Reading:
    """Read judged lists as `read_letor` does, and say which lines were left out."""
    options = Options(features, base, missing, on_error)
    files = [Path(path)] if isinstance(path, str | Path) else [Path(each) for each in path]
    if not files:
        raise DataError("no file to read")
    if query_file is not None and len(files) > 1:
        raise SettingError("query_file", str(query_file), "not be given with several files, which each have their own")
    lengths = None if query_file is None else Path(query_file)
    where = kept.folder(cache)
    parsed = [_cached(file, lengths, options, where) for file in files]
    if len({part.base for part in parsed}) > 1:
        parsed = [_cached(file, lengths, replace(options, base=0), where) for file in files]
    for file, part in zip(files, parsed, strict=True):
        if part.quarantined:
            first, count = part.quarantined[0], len(part.quarantined)
            text = "%d broken lines left out of %s, the first at line %d, column %d: %s"
            log.warning(text, count, file, first.line, first.column, first.reason)
    quarantined = tuple(line for part in parsed for line in part.quarantined)
    return Reading(_together(files, parsed), parsed[0].base, max(part.largest_id for part in parsed), quarantined)


@dataclass(frozen=True, eq=False)
class _Parsed:
    """One file: its lists, whether they have names of their own, and what was left out."""

    judged: JudgedLists
    base: int
    largest_id: int
    named: bool
    quarantined: tuple[Quarantined, ...]


def _together(files: Sequence[Path], parsed: Sequence[_Parsed]) -> JudgedLists:
    if len(parsed) == 1:
        return parsed[0].judged
    named = [part.named for part in parsed]
    if len(set(named)) > 1:
        without, first = files[named.index(False)], files[named.index(True)]
        raise DataError(
            f"takes its lists from a file of lengths, but {first} from qid:, so that they cannot be told apart",
            file=without,
            remedy="Read them apart, or write qid: into both",
        )
    width = max(part.judged.lists.features.shape[1] for part in parsed)
    parts, numbered = [], 0
    for part in parsed:
        lists = part.judged.lists
        short = width - lists.features.shape[1]
        features = np.pad(lists.features, ((0, 0), (0, short))) if short else lists.features
        ids = lists.query_ids
        if not part.named:
            ids = np.array([str(int(number) + numbered) for number in ids])
            numbered = int(ids[-1])
        parts.append(JudgedLists(Lists(features, lists.offsets, ids, lists.document_ids), part.judged.grades))
    return join(parts)


def _cached(file: Path, query_file: Path | None, options: Options, where: Path | None) -> _Parsed:
    """One file, from the cache if its content was read in the same way before."""
    path = query_file if query_file is not None else _group_file(file)
    lengths = None if path is None else _Lengths(path, read_bytes(path), given=query_file is not None)
    if where is None:
        return _parse(file, read_bytes(file), lengths, options)
    content = kept.recall(where, file)
    found = None if content is None else kept.load(where, _key(content, lengths, options))
    if found is None:
        before = kept.state(file)
        raw = read_bytes(file)
        content = kept.digest(raw)
        kept.remember(where, file, content, before)
        key = _key(content, lengths, options)
        found = kept.load(where, key)
        if found is None:
            parsed = _parse(file, raw, lengths, options)
            found = kept.load(where, key) if kept.store(where, key, *_to_arrays(parsed)) else None
            if found is None:
                return parsed
    return _from_arrays(*found, file=file, on_error=options.on_error)


@dataclass(frozen=True, eq=False)
class _Lengths:
    """A file of list lengths as it was read once, and whether it was given or found."""

    path: Path
    raw: bytes
    given: bool


def _key(content: str, lengths: _Lengths | None, options: Options) -> str:
    groups = "" if lengths is None else kept.digest(lengths.raw)
    given = lengths is not None and lengths.given
    how = [content, groups, given, options.features, options.base, options.missing]
    return kept.digest(json.dumps(how).encode())


def _to_arrays(parsed: _Parsed) -> tuple[kept.Arrays, dict[str, Any]]:
    lists = parsed.judged.lists
    arrays: kept.Arrays = {
        "features": lists.features,
        "grades": parsed.judged.grades,
        "offsets": lists.offsets,
        "query_ids": lists.query_ids,
    }
    if lists.document_ids is not None:
        arrays["document_ids"] = lists.document_ids
    lines = [[bad.line, bad.column, bad.reason, bad.raw.decode("latin-1")] for bad in parsed.quarantined]
    facts = {"base": parsed.base, "largest_id": parsed.largest_id, "named": parsed.named, "quarantined": lines}
    return arrays, facts


def _from_arrays(arrays: kept.Arrays, facts: dict[str, Any], *, file: Path, on_error: OnError) -> _Parsed:
    bad = tuple(
        Quarantined(str(file), line, column, reason, raw.encode("latin-1"))
        for line, column, reason, raw in facts["quarantined"]
    )
    if bad and on_error == "raise":
        raise DataError(bad[0].reason, file=file, line=bad[0].line, column=bad[0].column)
    lists = Lists(arrays["features"], arrays["offsets"], arrays["query_ids"], arrays.get("document_ids"))
    judged = JudgedLists(lists, arrays["grades"])
    return _Parsed(judged, facts["base"], facts["largest_id"], facts["named"], bad)


def _group_file(file: Path) -> Path | None:
    if file.is_dir():
        return None
    stems = [file.name, *(file.name.removesuffix(end) for end in (".gz", ".zst")), file.stem, Path(file.stem).stem]
    for stem in dict.fromkeys(stems):
        for suffix in GROUP_SUFFIXES:
            candidate = file.with_name(stem + suffix)
            if candidate != file and candidate.is_file():
                return candidate
    return None


def _parse(file: Path, raw: bytes, lengths: _Lengths | None, options: Options) -> _Parsed:
    from clickprism.data.letor_text import read_rows

    if not raw:
        raise DataError("is empty", file=file)
    given = lengths is not None and lengths.given
    rows = read_rows(expand(raw, file=file), file=file, named=False if given else None, options=options)
    if rows.names is not None:
        names, owner = rows.names, rows.owner
    elif lengths is None:
        expected = " or ".join(Path(file.name).stem + suffix for suffix in GROUP_SUFFIXES)
        raise DataError("has no qid: and no file of list lengths", file=file, remedy=f"Put {expected} beside it")
    else:
        names, owner = _owners(lengths, file, rows.lines)
        owner = np.delete(owner, rows.left_out)
    quarantined = tuple(Quarantined(str(file), *bad) for bad in rows.quarantined)
    judged = _grouped(rows.features, rows.grades, names, owner, rows.document_ids)
    return _Parsed(judged, rows.base, rows.largest_id, rows.names is not None, quarantined)


def join(parts: Sequence[JudgedLists]) -> JudgedLists:
    """Return the lists of several parts as one; lists with the same query id are joined, in order of appearance."""
    if not parts:
        raise DataError("nothing to join")
    lists = [part.lists for part in parts]
    widths = {each.features.shape[1] for each in lists}
    if len(widths) > 1:
        raise DataError(f"parts have different numbers of features: {sorted(widths)}")
    known: dict[str, int] = {}
    groups = [[known.setdefault(str(name), len(known)) for name in each.query_ids] for each in lists]
    owner = [np.array(group, np.int64)[each.list_of] for group, each in zip(groups, lists, strict=True)]
    unnamed = all(each.document_ids is None for each in lists)
    ids = [np.full(each.documents, "") if each.document_ids is None else each.document_ids for each in lists]
    return _grouped(
        np.concatenate([each.features for each in lists]),
        np.concatenate([part.grades for part in parts]),
        np.array(list(known)),
        np.concatenate(owner),
        None if unnamed else np.concatenate(ids),
    )


def _grouped(features: Float32, grades: Int32, names: Text, owner: Int64, document_ids: Text | None) -> JudgedLists:
    """Lists from rows and the list that owns each; lists without rows are dropped."""
    if bool((np.diff(owner) < 0).any()):
        order = np.argsort(owner, kind="stable")
        features, grades, owner = features[order], grades[order], owner[order]
        document_ids = None if document_ids is None else document_ids[order]
    lengths = np.bincount(owner, minlength=len(names))
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    return JudgedLists(Lists(features, offsets, names[lengths > 0], document_ids), grades)


def _owners(given: _Lengths, data: Path, lines: int) -> tuple[Text, Int64]:
    """The number of each list in a group file, from 1, and the list of each line of the data."""
    path, lengths = given.path, []
    for number, line in enumerate(expand(given.raw, file=path).splitlines(), start=1):
        word = line.strip()
        if not word:
            continue
        if not word.isdigit() or len(word) > 12:
            raise DataError("expected the length of a list, a whole number", file=path, line=number, column=1)
        lengths.append(int(word))
    if sum(lengths) != lines:
        raise DataError(f"its lengths add up to {sum(lengths)}, but {data.name} has {lines} lines of data", file=path)
    names = np.array([str(number) for number in range(1, len(lengths) + 1)])
    return names, np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


WRITTEN_BLOCK = 4096
MAX_ID = 200
_ID = re.compile(r"[^\s#]+")


def write_letor(judged: JudgedLists, path: Path | str) -> None:
    """Write judged lists as text that `read_letor` reads back value for value; whole or not at all.

    Every feature is written, from 1, with nine digits, which are enough for float32. A missing value is `nan`, which
    wants `missing="nan"` on reading.
    """
    path = Path(path)
    lists = judged.lists
    _check_ids("query id", lists.query_ids, empty=False)
    if lists.document_ids is not None:
        _check_ids("document id", lists.document_ids, empty=True)
    with write_errors(path), atomic_file(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(_blocks(judged))


def _blocks(judged: JudgedLists) -> Iterator[str]:
    lists = judged.lists
    values = " ".join(f"{column}:%.9g" for column in range(1, lists.features.shape[1] + 1))
    names = lists.query_ids[lists.list_of]
    for start in range(0, lists.documents, WRITTEN_BLOCK):
        rows = slice(start, start + WRITTEN_BLOCK)
        heads = zip(judged.grades[rows].tolist(), names[rows].tolist(), strict=True)
        bodies = map(values.__mod__, map(tuple, lists.features[rows].tolist()))
        ids = [""] * len(names[rows]) if lists.document_ids is None else lists.document_ids[rows].tolist()
        yield "".join(
            f"{grade} qid:{name} {body} # docid = {document}\n" if document else f"{grade} qid:{name} {body}\n"
            for (grade, name), body, document in zip(heads, bodies, ids, strict=True)
        )


def _check_ids(what: str, ids: Text, *, empty: bool) -> None:
    for name in np.unique(ids).tolist():
        if not (_ID.fullmatch(name) and len(name.encode()) <= MAX_ID) and not (empty and name == ""):
            raise DataError(f"the {what} {name!r} cannot stand in LETOR text", remedy="Use ids without blanks and #")


COUNTED_BLOCK = 65536


@dataclass(frozen=True)
class Facts:
    """The size and shape of judged lists.

    Attributes:
        lists: how many.
        documents: in all lists together.
        features: of each document.
        shortest: documents of the shortest list.
        longest: documents of the longest list.
        grades: the share of documents of each grade, grade 0 first.
        without_relevant: lists in which every grade is 0.
        missing: values that are missing, all features together.
    """

    lists: int
    documents: int
    features: int
    shortest: int
    longest: int
    grades: tuple[float, ...]
    without_relevant: int
    missing: int


@dataclass(frozen=True)
class FileFacts:
    """What one file of judged lists contains.

    Attributes:
        file: Path of the file.
        facts: Size and shape of its lists.
        quarantined: Number of broken lines that were skipped.
    """

    file: str
    facts: Facts
    quarantined: int

    def table(self) -> Table:
        """Return one row for each fact."""
        it = self.facts
        rows = [
            ["lists", f"{it.lists:,}"],
            ["documents", f"{it.documents:,}"],
            ["documents per list", f"{it.shortest} to {it.longest}"],
            ["features", str(it.features)],
            *[[f"grade {grade}", f"{share:.1%}"] for grade, share in enumerate(it.grades)],
            ["lists without a relevant document", f"{it.without_relevant:,}"],
            ["missing values", f"{it.missing:,}"],
            ["broken lines skipped", f"{self.quarantined:,}"],
        ]
        return Table("", [self.file, ""], rows)


@dataclass(frozen=True)
class FilesFacts:
    """What several files of judged lists contain."""

    files: tuple[FileFacts, ...]

    def tables(self) -> list[Table]:
        """Return one table for each file."""
        return [file.table() for file in self.files]


def facts(judged: JudgedLists) -> Facts:
    """Count.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((4, 2), np.float32), np.array([0, 3, 4]), np.array(["a", "b"]))
    >>> facts(JudgedLists(lists, np.array([0, 2, 0, 0], np.int32))).grades
    (0.75, 0.0, 0.25)
    """
    lists, features = judged.lists, judged.lists.features
    relevant = np.bincount(lists.list_of, weights=judged.grades > 0, minlength=len(lists))
    shares = np.bincount(judged.grades) / max(lists.documents, 1)
    return Facts(
        lists=len(lists),
        documents=lists.documents,
        features=features.shape[1],
        shortest=int(lists.lengths.min(initial=lists.documents)),
        longest=int(lists.lengths.max(initial=0)),
        grades=tuple(shares.tolist()),
        without_relevant=int((relevant == 0).sum()),
        missing=sum(
            int(np.isnan(features[i : i + COUNTED_BLOCK]).sum()) for i in range(0, len(features), COUNTED_BLOCK)
        ),
    )
