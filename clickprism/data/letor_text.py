"""The rows of LETOR text: a compiled loop reads ordinary lines; Python reads the others and says what is wrong.

Numbers come out equal to `numpy.float32(float(text))`, clipped to the range of float32: up to 17 digits go into an
integer that is scaled by a power of ten. A line with a number whose rounding that leaves in doubt is read in Python.
The text is read in blocks, so that besides the matrix only a block is in memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from clickprism._util.compiled import compiled
from clickprism.data.files import Bytes
from clickprism.errors import DataError
from clickprism.types import Float32, Int32, Int64, Text

if TYPE_CHECKING:
    from clickprism.data.letor import Options

BLOCK: Final = 1 << 25  # bytes
LARGEST: Final = float(np.finfo(np.float32).max)
LONGEST_ID: Final = 200  # bytes of a query or document id
LARGEST_ID: Final = 1_000_000  # of a feature
LARGEST_GRADE: Final = 1000
UTF8_MARK: Final = b"\xef\xbb\xbf"
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")

POWERS = np.array([float(f"1e{power}") for power in range(81)])
ENDS = np.isin(np.arange(256), np.frombuffer(b" \t\r\n#", np.uint8))
BLANK = np.isin(np.arange(256), np.frombuffer(b" \t\r", np.uint8))
NUMBER, START, STOP, GRADE, QUERY, QUERY_STOP, HASH, COMMENT, FILLED, ORDINARY = range(10)
"""Columns of what is known of a line: its number in the block, where it starts and stops, its grade, where its query id
starts and stops and its hash, where its comment starts, where its features end among all, whether it is ordinary."""

_NUMBER: Final = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TOKEN: Final = re.compile(rb"[^ \t\r]+")
_PRINTABLE: Final = re.compile(rb"[^\x00-\x1f\x7f]*")
_NAMED: Final = re.compile(rb"^[ \t\r]*[^ \t\r\n#]+[ \t\r]+qid:", re.MULTILINE)
_DOCUMENT: Final = re.compile(rb"[ \t\r]*docid[ \t\r]*[=:][ \t\r]*([^ \t\r]*)")

Bad = tuple[int, int, str, bytes]


class Rules(NamedTuple):
    """How lines are read.

    Attributes:
        named: Whether lists have a `qid:`.
        smallest: The smallest feature id.
        largest: The largest feature id.
        why: Why that is the largest, for errors.
        missing: Whether a value may be missing.
    """

    named: bool
    smallest: int
    largest: int
    why: str
    missing: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """The good rows of a text in their order, and the bad lines: number, column, reason, the line itself.

    Attributes:
        features: One row a document, [rows, features].
        grades: Of each row.
        base: Where feature ids start.
        largest_id: The largest feature id.
        names: Name of each list in the order of first appearance; none if lines have no `qid:`.
        owner: List of each row.
        document_ids: Of each row; None if no line has one.
        quarantined: The bad lines.
        left_out: Places of the bad lines among all lines with data.
        lines: Number of lines with data.
    """

    features: Float32
    grades: Int32
    base: int
    largest_id: int
    names: Text | None
    owner: Int64
    document_ids: Text | None
    quarantined: list[Bad]
    left_out: list[int]
    lines: int


@compiled
def scan(text: Bytes, missing: bool, lines: Int64, ids: Int32, values: Float32) -> int:
    """Read the lines of a text that ends with a newline; return how many have data.

    `lines` has a row for each line, and `ids` and `values` have room for a feature at each colon.
    """
    at, row, number, filled = 0, 0, 0, 0
    while at < len(text):
        number += 1
        begin, at = at, _skip(text, at)
        if text[at] != 10 and text[at] != 35:
            line = lines[row]
            line[NUMBER], line[START], line[COMMENT] = number, begin, -1
            at, sound = _head(text, at, line)
            if sound:
                at, stop = _features(text, at, missing, filled, (ids, values))
                sound = stop >= 0
                filled = stop if sound else filled
            line[ORDINARY], line[FILLED] = sound, filled
            while text[at] != 10 and text[at] != 35:
                at += 1
            if text[at] == 35:
                line[COMMENT] = at + 1
            row += 1
        while text[at] != 10:
            at += 1
        if row and lines[row - 1, NUMBER] == number:
            lines[row - 1, STOP] = at
        at += 1
    return row


@compiled
def _skip(text: Bytes, at: int) -> int:
    """Return the first place from `at` on that is not blank."""
    while BLANK[text[at]]:
        at += 1
    return at


@compiled
def _head(text: Bytes, at: int, line: Int64) -> tuple[int, bool]:
    """Read the grade and the query id of a line: where they end, and whether they are ordinary."""
    start, grade = at, 0
    while 48 <= text[at] <= 57 and grade <= LARGEST_GRADE:
        grade = grade * 10 + text[at] - 48
        at += 1
    sound = at > start and grade <= LARGEST_GRADE and ENDS[text[at]]
    line[GRADE] = grade
    at = _skip(text, at)
    line[QUERY], line[QUERY_STOP], line[HASH] = at, at, 0
    if text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == 58:
        at += 4
        line[QUERY], state = at, np.uint64(14695981039346656037)
        while not ENDS[text[at]]:
            sound = sound and text[at] >= 32 and text[at] != 127
            state = (state ^ np.uint64(text[at])) * np.uint64(1099511628211)
            at += 1
        line[QUERY_STOP], line[HASH] = at, np.int64(state)
        sound = sound and 0 < at - line[QUERY] <= LONGEST_ID
    return at, sound


@compiled
def _features(text: Bytes, at: int, missing: bool, filled: int, out: tuple[Int32, Float32]) -> tuple[int, int]:
    """Read `id:value ...`: where they end, and how many features there are then; -1 if they are not ordinary."""
    ids, values = out
    last = -1
    while True:
        at = _skip(text, at)
        if text[at] == 10 or text[at] == 35:
            return at, filled
        feature, start = 0, at
        while 48 <= text[at] <= 57 and feature <= LARGEST_ID:
            feature = feature * 10 + text[at] - 48
            at += 1
        if at == start or text[at] != 58 or not last < feature <= LARGEST_ID:
            return at, -1
        value, stop = _number(text, at + 1)
        if stop < 0 and missing and _is_nan(text, at + 1):
            value, stop = np.nan, at + 4
        if stop < 0 or not ENDS[text[stop]]:
            return at, -1
        ids[filled], values[filled] = feature, value
        filled += 1
        last, at = feature, stop


@compiled
def _is_nan(text: Bytes, at: int) -> bool:
    return bool(text[at] | 32 == 110 and text[at + 1] | 32 == 97 and text[at + 2] | 32 == 110)


@compiled
def _number(text: Bytes, at: int) -> tuple[float, int]:
    """Read a decimal number: its value, and where it ends; -1 if there is none or its rounding is in doubt."""
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    start, mantissa, exponent, digits = at, 0, 0, 0
    while 48 <= text[at] <= 57:
        mantissa = mantissa * 10 + text[at] - 48
        at += 1
    digits = at - start
    if text[at] == 46:
        at += 1
        start = at
        while 48 <= text[at] <= 57:
            mantissa = mantissa * 10 + text[at] - 48
            at += 1
        exponent = start - at
        digits += at - start
    if not 0 < digits <= 17:
        return 0.0, -1
    if text[at] | 32 == 101:
        at += 1
        down = text[at] == 45
        if down or text[at] == 43:
            at += 1
        start, power = at, 0
        while 48 <= text[at] <= 57 and power < 1000:
            power = power * 10 + text[at] - 48
            at += 1
        if at == start:
            return 0.0, -1
        exponent += -power if down else power
    if not -60 <= exponent <= 20:
        return 0.0, -1
    value = mantissa * POWERS[exponent] if exponent >= 0 else mantissa / POWERS[-exponent]
    exact = mantissa <= 2**53 and exponent >= -22
    if not exact and np.float32(value * (1 - 6e-16)) != np.float32(value * (1 + 6e-16)):
        return 0.0, -1
    return -value if negative else value, at


@compiled
def _fill(features: Float32, lines: Int64, ids: Int32, values: Float32, base: int) -> None:
    """Write the features of ordinary lines into their rows."""
    start = 0
    for row in range(len(lines)):
        if lines[row, ORDINARY]:
            for place in range(start, lines[row, FILLED]):
                features[row, ids[place] - base] = values[place]
        start = lines[row, FILLED]


class _WrongLineError(Exception):
    """A line is broken: the reason, and where it is, counted in bytes from the start of the line."""

    def __init__(self, reason: str, place: int) -> None:
        self.reason, self.place = reason, place


def read_line(line: bytes, rules: Rules) -> tuple[int, bytes, list[int], list[float]]:
    """Return the grade, the query id and the features of any line; raise `_WrongLineError` if it is broken."""
    tokens = [(each.group(), each.start()) for each in _TOKEN.finditer(line.partition(b"#")[0])]
    grade, place = tokens[0] if tokens else (b"", 0)
    if not _NUMBER.fullmatch(grade) or not 0 <= float(grade) <= LARGEST_GRADE or float(grade) % 1:
        raise _WrongLineError(f"expected a grade, a whole number from 0 to {LARGEST_GRADE}", place)
    query, rest = b"", tokens[1:]
    there = bool(rest) and rest[0][0].startswith(b"qid:")
    if rules.named and not there:
        place = rest[0][1] if rest else len(line.partition(b"#")[0])
        raise _WrongLineError("expected qid:<id> after the grade, as on other lines", place)
    if there and not rules.named:
        raise _WrongLineError("found qid: although list lengths come from a file", rest[0][1])
    if there:
        query, place = rest[0][0][4:], rest[0][1] + 4
        printable = _PRINTABLE.match(query)
        end = 0 if printable is None else printable.end()
        if not 0 < len(query) <= LONGEST_ID or end < len(query):
            wrong = place + end if 0 < len(query) <= LONGEST_ID else place
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
        if number < rules.smallest:
            raise _WrongLineError("expected feature ids from 1 (base=0 reads ids from 0)", place)
        if number > rules.largest:
            raise _WrongLineError(f"expected a feature id up to {rules.largest}{rules.why}", place)
        ids.append(number)
        values.append(_value(text, place + len(name) + 1, rules))
    return int(float(grade)), query, ids, values


def _value(text: bytes, place: int, rules: Rules) -> float:
    if text.lower() in (b"nan", b"null"):
        if not rules.missing:
            raise _WrongLineError("expected a number, found a missing value (missing='nan' keeps it)", place)
        return np.nan
    if not _NUMBER.fullmatch(text):
        raise _WrongLineError("expected a finite decimal number", place)
    return max(min(float(text), LARGEST), -LARGEST)


def read_rows(data: bytes, *, file: Path, named: bool | None, options: Options) -> Rows:
    """Read all rows; `named` says whether lists have a `qid:`, None to look."""
    if data.startswith(UTF16_MARKS):
        raise DataError("is UTF-16 text", file=file, remedy="Save it as UTF-8")
    data = data.removeprefix(UTF8_MARK)
    named = _NAMED.search(data) is not None if named is None else named
    base = 0 if options.base == 0 else 1
    work = _Work(data if data.endswith(b"\n") else data + b"\n", file, options, base, named)
    try:
        if not work.run():  # an id 0 shows that ids start from 0
            work = _Work(work.data, file, options, 0, named)
            work.run()
        return work.rows()
    except MemoryError:
        raise work.too_large() from None


def matrix(rows: int, width: int) -> Float32:
    """Return zeros, or raise `MemoryError` however large they are."""
    try:
        return np.zeros((rows, width), np.float32)
    except ValueError:
        raise MemoryError from None


@dataclass(eq=False)
class _Work:
    """The state of reading one text: blocks of rows, and the lines that were left out."""

    data: bytes
    file: Path
    options: Options
    base: int
    named: bool

    def __post_init__(self) -> None:
        limit = LARGEST_ID if self.options.features is None else self.options.features - 1 + self.base
        why = "" if self.options.features is None else f", as features={self.options.features}"
        smallest = 1 if self.options.base == 1 else 0
        self.rules = Rules(self.named, smallest, limit, why, self.options.missing == "nan")
        self.blocks: list[Float32] = []
        self.grades: list[Int64] = []
        self.runs: list[tuple[bytes, int]] = []  # query id and length of each run of rows of one query
        self.documents: list[bytes] = []
        self.bad: list[Bad] = []
        self.left_out: list[int] = []
        self.lines, self.seen, self.top, self.widest = 0, 0, -1, (0, b"")

    def run(self) -> bool:
        """Read all blocks; stop and return False at an id 0 where ids from 0 were not expected."""
        start = 0
        while start < len(self.data):
            stop = self.data.find(b"\n", start + BLOCK) + 1 or len(self.data)
            if not self._block(self.data[start:stop] if stop - start < len(self.data) else self.data):
                return False
            start = stop
        if not self.lines:
            raise DataError("has no line of data", file=self.file)
        return True

    def _block(self, data: bytes) -> bool:
        text = np.frombuffer(data, np.uint8)
        size, features = int(np.count_nonzero(text == 10)), int(np.count_nonzero(text == 58))
        lines, ids = np.empty((size, ORDINARY + 1), np.int64), np.zeros(features + 1, np.int32)
        values = np.empty(features + 1, np.float32)
        lines = lines[: scan(text, self.rules.missing, lines, ids, values)]
        starts = np.concatenate([[0], lines[:-1, FILLED]])
        filled = lines[:, FILLED] > starts
        first = np.where(filled, ids[starts], 1)
        last = np.where(filled, ids[lines[:, FILLED] - 1], -1).astype(np.int64)
        has_query = lines[:, QUERY_STOP] > lines[:, QUERY]
        fits = (first >= self.rules.smallest) & (last <= self.rules.largest) & (has_query == self.named)
        lines[~fits, ORDINARY] = 0
        good = lines[:, ORDINARY] == 1
        others: dict[int, tuple[int, bytes, list[int], list[float]]] = {}
        for row in np.flatnonzero(~good).tolist():
            try:
                others[row] = read_line(data[lines[row, START] : lines[row, STOP]], self.rules)
            except _WrongLineError as error:
                self._leave_out(data, lines[row].tolist(), row, error)
                continue
            good[row], lines[row, GRADE], first[row] = True, others[row][0], 1
            last[row] = -1
            if others[row][2]:
                first[row], last[row] = others[row][2][0], others[row][2][-1]
        if self.options.base == "auto" and self.base == 1 and bool((first[good] == 0).any()):
            return False
        self._keep(data, lines, np.flatnonzero(good), others, last)
        self.lines += len(lines)
        made = matrix(len(lines), max(self.options.features or int(last[good].max(initial=-1)) + 1 - self.base, 0))
        _fill(made, lines, ids, values, self.base)
        for row, (_, _, places, numbers) in others.items():
            made[row, np.array(places, np.int64) - self.base] = numbers
        self.blocks.append(made if good.all() else made[good])
        self.seen += size
        return True

    def _keep(self, data: bytes, lines: Int64, rows: Int64, others: dict[int, Any], last: Int64) -> None:
        """Keep what is known of the good rows of a block besides their features."""
        self.grades.append(lines[rows, GRADE])
        if len(rows) and (top := int(last[rows].max())) > self.top:
            row = int(rows[np.argmax(last[rows])])
            self.top, self.widest = (
                top,
                (self.seen + int(lines[row, NUMBER]), data[lines[row, START] : lines[row, STOP]]),
            )
        if self.named:
            plain = lines[rows, ORDINARY] == 1
            starts = np.ones(len(rows), dtype=np.bool_)
            starts[1:] = (np.diff(lines[rows, HASH]) != 0) | ~plain[1:] | ~plain[:-1]
            places = np.flatnonzero(starts)
            for row, length in zip(rows[places].tolist(), np.diff(places, append=len(rows)).tolist(), strict=True):
                query = others[row][1] if row in others else data[lines[row, QUERY] : lines[row, QUERY_STOP]]
                self.runs.append((query, length))
        comments = lines[rows, COMMENT].tolist()
        ends = lines[rows, STOP].tolist()
        self.documents += [_document(data[a:b]) if a >= 0 else b"" for a, b in zip(comments, ends, strict=True)]

    def _leave_out(self, data: bytes, line: list[int], row: int, error: _WrongLineError) -> None:
        number, column = self.seen + line[NUMBER], error.place + 1
        if self.options.on_error == "raise":
            raise DataError(error.reason, file=self.file, line=number, column=column)
        self.left_out.append(self.lines + row)
        self.bad.append((number, column, error.reason, data[line[START] : line[STOP]].rstrip(b"\r")))

    def rows(self) -> Rows:
        """Return the rows of all blocks."""
        grades = np.concatenate(self.grades).astype(np.int32)
        if not len(grades):
            line, column, reason, _ = self.bad[0]
            problem = f"has no valid line; the first is broken: {reason}"
            raise DataError(problem, file=self.file, line=line, column=column)
        width = self.options.features or self.top + 1 - self.base
        if width <= 0:
            raise DataError("has no features", file=self.file)
        names, owner = self._lists()
        return Rows(
            self._features(len(grades), width),
            grades,
            self.base,
            self.top,
            names,
            owner,
            _texts(self.documents) if any(self.documents) else None,
            self.bad,
            self.left_out,
            self.lines,
        )

    def _features(self, rows: int, width: int) -> Float32:
        if len(self.blocks) == 1 and self.blocks[0].shape[1] == width:
            return self.blocks[0]
        whole, stop = matrix(rows, width), rows
        while self.blocks:
            block = self.blocks.pop()
            whole[stop - len(block) : stop, : block.shape[1]] = block
            stop -= len(block)
        return whole

    def _lists(self) -> tuple[Text | None, Int64]:
        """Return the name of each list in the order of first appearance, and the list of each row."""
        if not self.named:
            return None, np.empty(0, dtype=np.int64)
        known: dict[bytes, int] = {}
        lists = np.array([known.setdefault(query, len(known)) for query, _ in self.runs], dtype=np.int64)
        return _texts(list(known)), np.repeat(lists, [length for _, length in self.runs])

    def too_large(self) -> DataError:
        """Name the good line with the largest feature id, which decides how many features there are."""
        size = f"{self.lines} rows of {self.options.features or self.top + 1 - self.base} features do not fit in memory"
        if self.options.features is not None:
            return DataError(size, file=self.file, remedy="Split the file")
        number, line = self.widest
        content = line.partition(b"#")[0].rstrip()
        return DataError(
            f"{size}; the largest feature id stands here",
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
