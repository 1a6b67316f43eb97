"""Judged lists: read LETOR, SVMlight and ranklib text, name its errors, write it, and describe it.

A line is `grade qid:<list> <feature>:<value> ... # comment`. `docs/reference/datamodel.md` has every rule.

Arrow reads a block of ordinary lines at once; if any line of a block is not ordinary, Python reads the block line by
line and says what is wrong. Numbers are equal to `numpy.float32(float(text))`, clipped to the range of float32.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, final

import numpy as np

from clickprism._util.files import atomic_file, write_errors
from clickprism._util.tables import Table
from clickprism.data import cache as kept
from clickprism.data.tables import expand, read_bytes
from clickprism.errors import DataError, SettingError
from clickprism.types import Float32, Int32, Int64, JudgedLists, Lists, Text

PathLike: TypeAlias = str | Path
Paths: TypeAlias = PathLike | Sequence[PathLike]
Base: TypeAlias = Literal["auto", 0, 1]
OnError: TypeAlias = Literal["raise", "quarantine"]
Missing: TypeAlias = Literal["error", "nan"]

GROUP_SUFFIXES: Final = (".query", ".group")
BLOCK: Final = 1 << 22  # bytes
WRITTEN_BLOCK: Final = 4096  # rows
LARGEST: Final = float(np.finfo(np.float32).max)
LONGEST_ID: Final = 200  # bytes of a query or document id
LARGEST_ID: Final = 1_000_000  # largest feature id
LARGEST_GRADE: Final = 1000
UTF8_MARK: Final = b"\xef\xbb\xbf"
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
CONTROL: Final = bytes([*range(32), 127])
ONE_A_LINE: Final = bytes.maketrans(b" \t\r:", b"\n\n\n,")
"""Turns features into CSV: one feature a line, its id and value separated by a comma."""
NEXT_ROW: Final = b"\n-1,0\n"

_NUMBER: Final = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TOKEN: Final = re.compile(rb"[^ \t\r]+")
_PRINTABLE: Final = re.compile(rb"[^\x00-\x1f\x7f]*")
_NAMED: Final = re.compile(rb"^[ \t\r]*[^ \t\r\n#]+[ \t\r]+qid:", re.MULTILINE)
_DOCUMENT: Final = re.compile(rb"[ \t\r]*docid[ \t\r]*[=:][ \t\r]*([^ \t\r]*)")
_WRITABLE_ID: Final = re.compile(r"[^\s#]+")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quarantined:
    """A line that was skipped: where it is, what is wrong with it, and the line itself."""

    file: str
    line: int
    column: int
    reason: str
    raw: bytes

    def to_json(self) -> str:
        """Return one line of JSON; `raw` is text in Latin-1, which keeps every byte."""
        return json.dumps(asdict(self) | {"raw": self.raw.decode("latin-1")})


@dataclass(frozen=True, eq=False)
class Reading:
    """What was read: the judged lists, the first and the largest feature id, the lines that were skipped."""

    judged: JudgedLists
    base: int
    largest_id: int
    quarantined: tuple[Quarantined, ...] = ()
    named: bool = True  # whether lists have a `qid:`


class LetorOptions(TypedDict, total=False):
    """Keyword arguments of `read_letor`."""

    features: int | None
    base: Base
    missing: Missing
    on_error: OnError
    cache: kept.Place


@dataclass(frozen=True)
class _Options:
    """How lines are read, the same for every file of a reading."""

    features: int | None
    base: Base
    missing: Missing
    on_error: OnError

    def __post_init__(self) -> None:
        if self.features is not None and self.features < 1:
            raise SettingError("features", self.features, "be at least 1")
        allowed = {"base": ("auto", 0, 1), "missing": ("error", "nan"), "on_error": ("raise", "quarantine")}
        for field, values in allowed.items():
            if (value := getattr(self, field)) not in values:
                raise SettingError(field, value, f"be one of {', '.join(map(repr, values))}")


def read_letor(path: Paths, **options: Unpack[LetorOptions]) -> JudgedLists:
    r"""Read judged lists from LETOR, SVMlight or ranklib text, plain, gzip or zstd.

    Several files are read as one data set: rows of the same `qid` are joined wherever they are, lists in the order of
    first appearance. A file without `qid:` needs the lengths of its lists beside it, one a line: rank.train.query or
    rank.train.group beside rank.train.gz. Broken input is a `DataError` with file, line and column.

    Args:
        path: The file, or the files.
        features: Number of features; by default the largest feature id.
        base: Whether feature ids start from 0 or 1; "auto" is 0 if any id 0 occurs in any of the files, else 1.
        missing: "nan" reads the values `nan` and `null` as missing, kept as NaN; otherwise they are errors.
        on_error: "quarantine" skips broken lines; `scan_letor` also returns them.
        cache: Folder where the parsed arrays are kept for the next time, or None to keep nothing.

    Returns:
        The lists, features as one float32 matrix [documents, features], memory-mapped if they come from the cache.

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
    return scan_letor(path, **options).judged


def scan_letor(
    path: Paths,
    *,
    features: int | None = None,
    base: Base = "auto",
    missing: Missing = "error",
    on_error: OnError = "raise",
    cache: kept.Place = "default",
) -> Reading:
    """Read judged lists as `read_letor` does, and return the lines that were skipped."""
    options = _Options(features, base, missing, on_error)
    files = [Path(path)] if isinstance(path, str | Path) else [Path(each) for each in path]
    if not files:
        raise DataError("no file to read")
    where = kept.folder(cache)
    readings = [_read_file(file, options, where) for file in files]
    if len({reading.base for reading in readings}) > 1:
        readings = [_read_file(file, replace(options, base=0), where) for file in files]
    for file, reading in zip(files, readings, strict=True):
        if reading.quarantined:
            first, count = reading.quarantined[0], len(reading.quarantined)
            text = "%d broken lines of %s skipped, the first at line %d, column %d: %s"
            log.warning(text, count, file, first.line, first.column, first.reason)
    quarantined = tuple(line for reading in readings for line in reading.quarantined)
    largest = max(reading.largest_id for reading in readings)
    return Reading(_together(files, readings), readings[0].base, largest, quarantined)


def _together(files: Sequence[Path], readings: Sequence[Reading]) -> JudgedLists:
    if len(readings) == 1:
        return readings[0].judged
    named = [reading.named for reading in readings]
    if len(set(named)) > 1:
        without, first = files[named.index(False)], files[named.index(True)]
        raise DataError(
            f"takes its lists from a file of lengths, but {first} from qid:, so the lists cannot be joined",
            file=without,
            remedy="Read them separately, or write qid: into both",
        )
    parts, numbered = widened([reading.judged for reading in readings]), 0
    for place, part in enumerate(parts):
        if not named[0]:  # lists are numbered on over all files
            ids = np.array([str(int(number) + numbered) for number in part.lists.query_ids])
            numbered = int(ids[-1])
            parts[place] = JudgedLists(replace(part.lists, query_ids=ids), part.grades)
    return join(parts)


def widened(parts: Sequence[JudgedLists]) -> list[JudgedLists]:
    """Return the parts with the same number of features; those that a part does not name are 0."""
    width = max(part.lists.features.shape[1] for part in parts)
    short = [width - part.lists.features.shape[1] for part in parts]
    return [
        part.with_features(np.pad(part.lists.features, ((0, 0), (0, lacking)))) if lacking else part
        for part, lacking in zip(parts, short, strict=True)
    ]


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
    """Return lists from rows and the list of each row; lists without rows are dropped."""
    if bool((np.diff(owner) < 0).any()):
        order = np.argsort(owner, kind="stable")
        features, grades, owner = features[order], grades[order], owner[order]
        document_ids = None if document_ids is None else document_ids[order]
    lengths = np.bincount(owner, minlength=len(names))
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    return JudgedLists(Lists(features, offsets, names[lengths > 0], document_ids), grades)


def _read_file(file: Path, options: _Options, where: Path | None) -> Reading:
    """Read one file, from the cache if it was read in the same way before and has not changed."""
    lengths = _group_file(file)
    sources = [file] if lengths is None else [file, lengths]
    how = [options.features, options.base, options.missing]
    key = None if where is None else kept.key_of(sources, how)
    found = None if where is None or key is None else kept.load(where, key)
    if found is None:
        reading = _parse(file, lengths, options)
        if where is None or key is None or kept.key_of(sources, how) != key:
            return reading
        found = kept.load(where, key) if kept.store(where, key, *_to_arrays(reading)) else None
        if found is None:
            return reading
    arrays, facts = found
    bad = [(line, column, reason, raw.encode("latin-1")) for line, column, reason, raw in facts["quarantined"]]
    if bad and options.on_error == "raise":
        raise DataError(bad[0][2], file=file, line=bad[0][0], column=bad[0][1])
    lists = Lists(arrays["features"], arrays["offsets"], arrays["query_ids"], arrays.get("document_ids"))
    skipped = tuple(Quarantined(str(file), *each) for each in bad)
    return Reading(JudgedLists(lists, arrays["grades"]), facts["base"], facts["largest_id"], skipped, facts["named"])


def _to_arrays(reading: Reading) -> tuple[kept.Arrays, dict[str, Any]]:
    lists = reading.judged.lists
    arrays: kept.Arrays = {name: getattr(lists, name) for name in ("features", "offsets", "query_ids")}
    arrays["grades"] = reading.judged.grades
    if lists.document_ids is not None:
        arrays["document_ids"] = lists.document_ids
    lines = [[bad.line, bad.column, bad.reason, bad.raw.decode("latin-1")] for bad in reading.quarantined]
    facts = {"base": reading.base, "largest_id": reading.largest_id, "named": reading.named, "quarantined": lines}
    return arrays, facts


def _group_file(file: Path) -> Path | None:
    if file.is_dir():
        return None
    stems = [file.name, *(file.name.removesuffix(end) for end in (".gz", ".zst")), file.stem, Path(file.stem).stem]
    places = (file.with_name(stem + suffix) for stem in dict.fromkeys(stems) for suffix in GROUP_SUFFIXES)
    return next((place for place in places if place != file and place.is_file()), None)


def _list_lengths(file: Path) -> list[int]:
    lengths = []
    for number, line in enumerate(expand(read_bytes(file), file=file).splitlines(), start=1):
        if word := line.strip():
            if not word.isdigit() or len(word) > 12:
                raise DataError("expected the length of a list, a whole number", file=file, line=number, column=1)
            lengths.append(int(word))
    return lengths


def _parse(file: Path, lengths: Path | None, options: _Options) -> Reading:
    """Read the text of a file; `lengths` has those of its lists if it has no `qid:`."""
    data = expand(read_bytes(file), file=file)
    if not data:
        raise DataError("is empty", file=file)
    if data.startswith(UTF16_MARKS):
        raise DataError("is UTF-16 text", file=file, remedy="Save it as UTF-8")
    data = data.removeprefix(UTF8_MARK)
    named = _NAMED.search(data) is not None
    data = data if data.endswith(b"\n") else data + b"\n"
    rows = _Rows(data, file, options, 0 if options.base == 0 else 1, named=named)
    try:
        if not rows.read():  # an id 0 shows that ids start from 0
            rows = _Rows(data, file, options, 0, named=named)
            rows.read()
        features, grades = rows.matrix()
    except MemoryError:
        raise rows.too_large() from None
    if named:
        known: dict[bytes, int] = {}
        lists = np.array([known.setdefault(query, len(known)) for query, _ in rows.runs], dtype=np.int64)
        names, owner = _texts(list(known)), np.repeat(lists, [length for _, length in rows.runs])
    elif lengths is None:
        expected = " or ".join(Path(file.name).stem + suffix for suffix in GROUP_SUFFIXES)
        raise DataError(
            "has no qid: and no file of list lengths", file=file, remedy=f"Put {expected} into the same folder"
        )
    else:
        sizes = _list_lengths(lengths)
        if sum(sizes) != rows.lines:
            problem = f"its lengths add up to {sum(sizes)}, but {file.name} has {rows.lines} lines of data"
            raise DataError(problem, file=lengths)
        names = np.array([str(number) for number in range(1, len(sizes) + 1)])
        owner = np.delete(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes), rows.skipped)
    document_ids = _texts(rows.documents) if any(rows.documents) else None
    judged = _grouped(features, grades, names, owner, document_ids)
    return Reading(judged, rows.base, rows.top, tuple(Quarantined(str(file), *bad) for bad in rows.bad), named)


def matrix(rows: int, width: int) -> Float32:
    """Return zeros, or raise `MemoryError` however large they are."""
    try:
        return np.zeros((rows, width), np.float32)
    except ValueError:
        raise MemoryError from None


class _WrongLineError(Exception):
    """A line is broken: the reason, and where it is, counted in bytes from the start of the line."""

    def __init__(self, reason: str, place: int) -> None:
        self.reason, self.place = reason, place


@dataclass(frozen=True, eq=False)
class _Block:
    """Lines of a text: grade and query of each, and the features of all, one after the other."""

    grades: Int64
    queries: Sequence[bytes]
    counts: Int64  # features of each line
    ids: Int32
    values: Float32


@final
class _Rows:
    """The rows of a text: read block by block, with the lines that are broken.

    Attributes:
        runs: Query id and length of each run of rows of one query.
        documents: Document id of each row; empty where there is none.
        bad: Number, column, reason and bytes of each broken line.
        skipped: Places of the broken lines among all lines with data.
        lines: Number of lines with data.
        top: Largest feature id.
        widest: Number and text of the line with that id.
    """

    def __init__(self, data: bytes, file: Path, options: _Options, base: int, *, named: bool) -> None:
        self.data, self.file, self.options, self.base, self.named = data, file, options, base, named
        self.smallest = 1 if options.base == 1 else 0
        self.largest = LARGEST_ID if options.features is None else options.features - 1 + base
        self.blocks: list[_Block] = []
        self.runs: list[tuple[bytes, int]] = []
        self.documents: list[bytes] = []
        self.bad: list[tuple[int, int, str, bytes]] = []
        self.skipped: list[int] = []
        self.lines, self.top, self.widest = 0, -1, (0, b"")

    def read(self) -> bool:
        """Read all blocks; stop and return False at an id 0 where ids from 0 were not expected."""
        start = number = 0
        while start < len(self.data):
            stop = self.data.find(b"\n", start + BLOCK) + 1 or len(self.data)
            data = self.data[start:stop]
            lines = data.split(b"\n")
            contents = [line.partition(b"#")[0] for line in lines] if b"#" in data else lines
            used = [place for place, content in enumerate(contents) if content.strip(b" \t\r")]
            if used and not self._block(
                [number + place + 1 for place in used],
                [lines[place] for place in used],
                [contents[place] for place in used],
            ):
                return False
            start, number = stop, number + len(lines) - 1
        if not self.lines:
            raise DataError("has no line of data", file=self.file)
        return True

    def _block(self, numbers: list[int], lines: list[bytes], contents: list[bytes]) -> bool:
        block = self._ordinary(contents)
        if block is None:
            block, good = self._one_by_one(numbers, lines)
            numbers = [numbers[row] for row in good]
            lines, contents = ([each[row] for row in good] for each in (lines, contents))
        else:
            self.lines += len(lines)
        if self.options.base == "auto" and self.base == 1 and block.ids.min(initial=1) == 0:
            return False
        if (top := int(block.ids.max(initial=-1))) > self.top:
            row = int(np.searchsorted(np.cumsum(block.counts), np.argmax(block.ids), side="right"))
            self.top, self.widest = top, (numbers[row], lines[row])
        self.blocks.append(block)
        self.runs += [(query, sum(1 for _ in group)) for query, group in groupby(block.queries)]
        pairs = zip(lines, contents, strict=True)
        self.documents += [
            _document(line[len(content) + 1 :]) if len(content) < len(line) else b"" for line, content in pairs
        ]
        return True

    def _ordinary(self, contents: list[bytes]) -> _Block | None:
        """Read lines at once; None if any of them is not ordinary."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        heads = [content.split(None, 1 + self.named) for content in contents]
        words = [head[0] for head in heads]
        if min(map(len, heads)) < 1 + self.named or max(map(len, words)) > 4 or not b"".join(words).isdigit():
            return None
        grades = np.fromiter(map(int, words), np.int64, len(words))
        queries = [head[1] for head in heads] if self.named else []
        usual = all(
            4 < len(query.translate(None, CONTROL)) == len(query) <= LONGEST_ID + 4 and query.startswith(b"qid:")
            for query in set(queries)
        )
        flat = NEXT_ROW.join([head[-1] if len(head) > 1 + self.named else b"" for head in heads]).translate(ONE_A_LINE)
        if not usual or b"\x0b" in flat or b"\x0c" in flat or grades.max() > LARGEST_GRADE:
            return None
        try:
            table = pacsv.read_csv(
                pa.BufferReader(flat),
                read_options=pacsv.ReadOptions(column_names=["id", "value"]),
                parse_options=pacsv.ParseOptions(quote_char=False),
                convert_options=pacsv.ConvertOptions(
                    column_types={"id": pa.int32(), "value": pa.float64()}, null_values=[]
                ),
            )
        except pa.ArrowInvalid:
            return None
        ids, values = (table[name].to_numpy() for name in ("id", "value"))
        ends, real = np.append(np.flatnonzero(ids < 0), len(ids)), ids >= 0
        if len(ends) != len(heads) or (not ids.all() and b"\n-0" in flat):  # negative ids
            return None
        rising = bool(((ids[1:] > ids[:-1]) | (ids[1:] < 0)).all())
        fits = self.smallest <= ids.min(where=real, initial=LARGEST_ID) and ids.max(initial=-1) <= self.largest
        if not (rising and fits and np.isfinite(values).all()):
            return None
        counts = np.diff(ends, prepend=-1) - 1
        clipped = np.clip(values[real], -LARGEST, LARGEST).astype(np.float32)
        return _Block(grades, [query[4:] for query in queries], counts, ids[real], clipped)

    def _one_by_one(self, numbers: list[int], lines: list[bytes]) -> tuple[_Block, list[int]]:
        """Read any lines; return the good ones and their places."""
        rows, good = [], []
        for place, (number, line) in enumerate(zip(numbers, lines, strict=True)):
            try:
                rows.append(self._line(line))
                good.append(place)
            except _WrongLineError as error:
                if self.options.on_error == "raise":
                    raise DataError(error.reason, file=self.file, line=number, column=error.place + 1) from None
                self.skipped.append(self.lines + place)
                self.bad.append((number, error.place + 1, error.reason, line.rstrip(b"\r")))
        self.lines += len(lines)
        return _Block(
            np.array([row[0] for row in rows], dtype=np.int64),
            [row[1] for row in rows] if self.named else [],
            np.array([len(row[2]) for row in rows], dtype=np.int64),
            np.array([each for row in rows for each in row[2]], dtype=np.int32),
            np.array([each for row in rows for each in row[3]], dtype=np.float32),
        ), good

    def _line(self, line: bytes) -> tuple[int, bytes, list[int], list[float]]:
        """Return the grade, the query id and the features of any line; raise `_WrongLineError` if it is broken."""
        content = line.partition(b"#")[0]
        tokens = [(each.group(), each.start()) for each in _TOKEN.finditer(content)]
        grade, place = tokens[0] if tokens else (b"", 0)
        if not _NUMBER.fullmatch(grade) or not 0 <= float(grade) <= LARGEST_GRADE or float(grade) % 1:
            raise _WrongLineError(f"expected a grade, a whole number from 0 to {LARGEST_GRADE}", place)
        query, rest = b"", tokens[1:]
        if self.named:
            if not rest or not rest[0][0].startswith(b"qid:"):
                place = rest[0][1] if rest else len(content)
                raise _WrongLineError("expected qid:<id> after the grade, as on other lines", place)
            query, place = rest[0][0][4:], rest[0][1] + 4
            printable = _PRINTABLE.match(query)
            end = 0 if printable is None else printable.end()
            fits = 0 < len(query) <= LONGEST_ID
            if not fits or end < len(query):
                wrong = place + end if fits else place
                raise _WrongLineError(f"expected an id of 1 to {LONGEST_ID} printable bytes after qid:", wrong)
            rest = rest[1:]
        ids: list[int] = []
        values: list[float] = []
        for token, place in rest:
            name, colon, text = token.partition(b":")
            if not (colon and name.isdigit()):
                raise _WrongLineError("expected a feature as <id>:<value>", place)
            number = int(name) if len(name) <= 18 else 10**18
            if ids and number <= ids[-1]:
                raise _WrongLineError("expected a larger feature id than the one before", place)
            if number < self.smallest:
                raise _WrongLineError("expected feature ids from 1 (base=0 reads ids from 0)", place)
            if number > self.largest:
                why = "" if self.options.features is None else f", as features={self.options.features}"
                raise _WrongLineError(f"expected a feature id up to {self.largest}{why}", place)
            ids.append(number)
            values.append(self._value(text, place + len(name) + 1))
        return int(float(grade)), query, ids, values

    def _value(self, text: bytes, place: int) -> float:
        if text.lower() in (b"nan", b"null"):
            if self.options.missing != "nan":
                raise _WrongLineError("expected a number, found a missing value (missing='nan' keeps it)", place)
            return np.nan
        if not _NUMBER.fullmatch(text):
            raise _WrongLineError("expected a finite decimal number", place)
        return max(min(float(text), LARGEST), -LARGEST)

    def matrix(self) -> tuple[Float32, Int32]:
        """Return the features and the grade of each good row; blocks are released one by one."""
        grades = np.concatenate([block.grades for block in self.blocks]).astype(np.int32)
        if not len(grades):
            line, column, reason, _ = self.bad[0]
            problem = f"has no valid line; the first is broken: {reason}"
            raise DataError(problem, file=self.file, line=line, column=column)
        width = self.options.features or self.top + 1 - self.base
        if width <= 0:
            raise DataError("has no features", file=self.file)
        whole, stop = matrix(len(grades), width), len(grades)
        while self.blocks:
            block = self.blocks.pop()
            stop -= len(block.grades)
            starts = np.arange(stop, stop + len(block.grades)) * width - self.base
            whole.reshape(-1)[np.repeat(starts, block.counts) + block.ids] = block.values
        return whole, grades

    def too_large(self) -> DataError:
        """Return an error that names the good line with the largest feature id, which decides the width."""
        size = f"{self.lines} rows of {self.options.features or self.top + 1 - self.base} features do not fit in memory"
        if self.options.features is not None:
            return DataError(size, file=self.file, remedy="Split the file")
        number, line = self.widest
        content = line.partition(b"#")[0].rstrip()
        return DataError(
            f"{size}; the largest feature id is here",
            file=self.file,
            line=number,
            column=max(content.rfind(b" "), content.rfind(b"\t")) + 2,
            remedy="If it is a mistake, say how many features there are: features=N; else split the file",
        )


def _document(comment: bytes) -> bytes:
    """Return the document id in a comment: `docid = X`, or its only word; else nothing."""
    found = _DOCUMENT.match(comment)
    text = comment.strip(b" \t\r") if found is None else found[1]
    single = found is not None or not re.search(rb"[ \t\r]", text)
    return text if single and len(text) <= LONGEST_ID and _PRINTABLE.fullmatch(text) else b""


def _texts(values: list[bytes]) -> Text:
    return np.array([value.decode("utf-8", "backslashreplace") for value in values], dtype=np.str_)


def write_letor(judged: JudgedLists, path: Path | str) -> None:
    """Write judged lists as text from which `read_letor` reads the same values; whole or not at all.

    Every feature is written, from 1, with nine digits, which are enough for float32. A missing value is `nan`, which
    is read with `missing="nan"`.
    """
    path, lists = Path(path), judged.lists
    no_ids = np.full(lists.documents, "")
    for what, ids in (("query id", lists.query_ids), ("document id", lists.document_ids)):
        for name in [] if ids is None else np.unique(ids).tolist():
            writable = _WRITABLE_ID.fullmatch(name) and len(name.encode()) <= LONGEST_ID
            if not writable and (name or what == "query id"):
                remedy = "Use ids without blanks and #"
                raise DataError(f"the {what} {name!r} cannot be written in LETOR text", remedy=remedy)
    line = " ".join(f"{column}:%.9g" for column in range(1, lists.features.shape[1] + 1))

    def texts() -> Iterator[str]:
        queries, documents = lists.query_ids[lists.list_of], lists.document_ids
        for start in range(0, lists.documents, WRITTEN_BLOCK):
            rows = slice(start, start + WRITTEN_BLOCK)
            bodies = map(line.__mod__, map(tuple, lists.features[rows].tolist()))
            ids = (no_ids if documents is None else documents)[rows].tolist()
            for grade, query, body, each in zip(judged.grades[rows], queries[rows], bodies, ids, strict=True):
                yield f"{grade} qid:{query} {body}{f' # docid = {each}' if each else ''}\n"

    with write_errors(path), atomic_file(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(texts())


@dataclass(frozen=True)
class FileFacts:
    """The size and shape of a file of judged lists.

    Attributes:
        file: The file.
        lists: Number of lists.
        documents: Number of documents.
        features: Number of features.
        shortest: Documents of the shortest list.
        longest: Documents of the longest list.
        grades: Share of documents of each grade, grade 0 first.
        without_relevant: Number of lists in which every grade is 0.
        missing: Number of missing values.
        quarantined: Number of broken lines that were skipped.

    >>> lists = Lists(np.zeros((4, 2), np.float32), np.array([0, 3, 4]), np.array(["a", "b"]))
    >>> FileFacts.of("x.txt", JudgedLists(lists, np.array([0, 2, 0, 0], np.int32))).grades
    (0.75, 0.0, 0.25)
    """

    file: str
    lists: int
    documents: int
    features: int
    shortest: int
    longest: int
    grades: tuple[float, ...]
    without_relevant: int
    missing: int
    quarantined: int

    @classmethod
    def of(cls, file: PathLike, judged: JudgedLists, *, quarantined: int = 0) -> FileFacts:
        """Return the facts about the lists in a file, in which so many broken lines were skipped."""
        lists = judged.lists
        relevant = np.bincount(lists.list_of, weights=judged.grades > 0, minlength=len(lists))
        return cls(
            file=str(file),
            lists=len(lists),
            documents=lists.documents,
            features=lists.features.shape[1],
            shortest=int(lists.lengths.min(initial=lists.documents)),
            longest=int(lists.lengths.max(initial=0)),
            grades=tuple((np.bincount(judged.grades) / max(lists.documents, 1)).tolist()),
            without_relevant=int((relevant == 0).sum()),
            missing=int(np.isnan(lists.features).sum()),
            quarantined=quarantined,
        )


@dataclass(frozen=True)
class FilesFacts:
    """What several files of judged lists contain."""

    files: tuple[FileFacts, ...]

    def tables(self) -> list[Table]:
        """Return one table for each file, with one row for each fact."""
        tables = []
        for it in self.files:
            rows = [
                ["lists", f"{it.lists:,}"],
                ["documents", f"{it.documents:,}"],
                ["documents per list", f"{it.shortest} to {it.longest}"],
                ["features", str(it.features)],
                *[[f"grade {grade}", f"{share:.1%}"] for grade, share in enumerate(it.grades)],
                ["lists without a relevant document", f"{it.without_relevant:,}"],
                ["missing values", f"{it.missing:,}"],
                ["broken lines skipped", f"{it.quarantined:,}"],
            ]
            tables.append(Table("", [it.file, ""], rows))
        return tables
