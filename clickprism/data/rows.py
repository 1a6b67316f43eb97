"""The rows of one LETOR text: drives the compiled parser and turns its codes into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clickprism.data import parse
from clickprism.data.files import Bytes
from clickprism.data.parse import How, Out, Place
from clickprism.errors import DataError
from clickprism.types import Float32, Int32, Int64, Text

if TYPE_CHECKING:
    from clickprism.data.letor import Options

UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

REASONS = {
    parse.GRADE: f"expected a grade, a whole number from 0 to {parse.LARGEST_GRADE}",
    parse.NO_QUERY: "expected qid:<id> after the grade, as on other lines",
    parse.UNWANTED_QUERY: "found qid: although list lengths come from a file",
    parse.QUERY: f"expected an id of 1 to {parse.LONGEST_ID} printable bytes after qid:",
    parse.FEATURE: "expected a feature as <id>:<value>",
    parse.ORDER: "expected a larger feature id than the one before",
    parse.BELOW: "expected feature ids from 1 (base=0 reads ids from 0)",
    parse.NUMBER: "expected a finite decimal number",
    parse.MISSING: "expected a number, found a missing value (missing='nan' keeps it)",
}

Bad = tuple[int, int, str, bytes]


@dataclass(frozen=True, eq=False)
class Rows:
    """The good rows of a text in their order, and the bad lines: number, column, reason, the line itself."""

    features: Float32
    grades: Int32
    base: int
    largest_id: int
    named: bool
    names: Text
    owner: Int64
    document_ids: Text | None
    quarantined: list[Bad]
    left_out: list[int]
    lines: int


def read_rows(text: Bytes, *, file: Path, named: bool | None, options: Options) -> Rows:
    """Read all rows; `named` says whether lists have a `qid:`, None to look."""
    head = text[:3].tobytes()
    if head.startswith(UTF16_MARKS):
        raise DataError("is UTF-16 text", file=file, remedy="Save it as UTF-8")
    start = len(UTF8_MARK) if head == UTF8_MARK else 0
    lines, widest, found = parse.measure(text, start)
    if lines == 0:
        raise DataError("has no line of data", file=file)
    work = _Work(text, start, file, found if named is None else named, options, lines, widest)
    try:
        work.run()
    except MemoryError:
        work.narrow()
    return work.rows()


def matrix(rows: int, width: int) -> Float32:
    """Zeros, or `MemoryError` however large they are."""
    try:
        return np.zeros((rows, width), np.float32)
    except ValueError:
        raise MemoryError from None


@dataclass(eq=False)
class _Work:
    """The state of reading one text: the arrays being filled, and what was left out."""

    text: Bytes
    start: int
    file: Path
    named: bool
    options: Options
    lines: int
    widest: int
    base: int = 1
    count: int = 0
    top: int = -1
    bad: list[Bad] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)

    def run(self, *, dry: bool = False) -> None:
        """Read all lines; a dry run keeps no values."""
        base = self.options.base
        self._run(1 if base == "auto" else base, auto=base == "auto", dry=dry)

    def narrow(self) -> None:
        """Read again in no more memory than the good lines need: a broken one may name any feature id."""
        self.run(dry=True)
        self.widest = self.top
        try:
            self.run()
        except MemoryError:
            raise self._too_large() from None

    def _run(self, base: int, *, auto: bool, dry: bool) -> None:
        self.base = base
        self.out = self._allocate(0 if dry else max(self.options.features or self.widest + 1 - base, 0))
        self.bad.clear()
        self.left_out.clear()
        how = How(self.named, base, auto, self._limit(), self.options.missing == "nan")
        place = Place(self.start, 1, 0, -1)
        code = parse.HARD
        while code != parse.END:
            code, place, wrong, hards = parse.fill(self.text, place, self.out, how)
            if code == parse.HARD:
                for column, begin, stop in self.out.hard[:hards]:
                    value = float(self.text[begin:stop].tobytes())
                    self.out.features[place.row - 1, column] = max(min(value, parse.LARGEST), -parse.LARGEST)
            elif code == parse.ZERO:
                self._run(0, auto=False, dry=dry)
                return
            elif code != parse.END:
                place = self._leave_out(code, place, wrong)
        self.count, self.top = place.row, place.top

    def _allocate(self, width: int) -> Out:
        features = matrix(self.lines, width)
        queries, documents = np.zeros((self.lines, 2), np.int64), np.zeros((self.lines, 2), np.int64)
        hard = np.zeros((width + 1, 3), np.int64)
        return Out(features, np.zeros(self.lines, np.int32), queries, documents, hard)

    def _too_large(self) -> DataError:
        """Name the good line with the largest feature id, which decides how many features there are."""
        size = f"{self.lines} rows of {self.options.features or self.top + 1 - self.base} features do not fit in memory"
        if self.options.features is not None:
            return DataError(size, file=self.file, remedy="Split the file")
        broken = {line for line, *_ in self.bad}
        at, line = self.start, 1
        while True:
            stop = parse.content_end(self.text, at)
            start = parse.skip(self.text, at)
            if start < stop and line not in broken and parse.last_feature(self.text, start, stop) == self.top:
                break
            at, line = parse.line_end(self.text, stop) + 1, line + 1
        content = self.text[at:stop].tobytes().rstrip()
        column = max(content.rfind(b" "), content.rfind(b"\t")) + 2
        return DataError(
            f"{size}; the largest feature id stands here",
            file=self.file,
            line=line,
            column=column,
            remedy="Where it is a mistake, say how many features there are: features=N; else split the file",
        )

    def _leave_out(self, code: int, place: Place, wrong: int) -> Place:
        at, line, row, top = place
        reason, column = self._reason(code), wrong - at + 1
        if self.options.on_error == "raise":
            raise DataError(reason, file=self.file, line=line, column=column)
        stop = parse.line_end(self.text, at)
        self.left_out.append(row + len(self.bad))
        self.bad.append((line, column, reason, self.text[at:stop].tobytes().rstrip(b"\r")))
        self.out.features[row] = 0
        return Place(stop + 1, line + 1, row, top)

    def _limit(self) -> int:
        return parse.LARGEST_ID if self.options.features is None else self.options.features - 1 + self.base

    def _reason(self, code: int) -> str:
        if code != parse.ABOVE:
            return REASONS[code]
        given = self.options.features
        return f"expected a feature id up to {self._limit()}" + ("" if given is None else f", as features={given}")

    def rows(self) -> Rows:
        if self.count == 0:
            line, column, reason, _ = self.bad[0]
            raise DataError(
                f"has no valid line; the first is broken: {reason}", file=self.file, line=line, column=column
            )
        width = self.options.features or self.top + 1 - self.base
        if width <= 0:
            raise DataError("has no features", file=self.file)
        features = self.out.features[: self.count, :width]
        names, owner = self._lists()
        return Rows(
            features if features.flags.c_contiguous else np.ascontiguousarray(features),
            self.out.grades[: self.count],
            self.base,
            self.top,
            self.named,
            names,
            owner,
            self._document_ids(),
            self.bad,
            self.left_out,
            self.lines,
        )

    def _lists(self) -> tuple[Text, Int64]:
        """The name of each list in the order of first appearance, and the list of each row."""
        if not self.named:
            return np.empty(0, dtype=np.str_), np.empty(0, dtype=np.int64)
        queries = self.out.queries[: self.count]
        starts = parse.run_starts(self.text, queries)
        known: dict[bytes, int] = {}
        lists = [known.setdefault(self.text[a:b].tobytes(), len(known)) for a, b in queries[starts].tolist()]
        names = np.array([name.decode("utf-8", "backslashreplace") for name in known])
        lengths = np.diff(starts, append=self.count)
        return names, np.repeat(np.array(lists, dtype=np.int64), lengths)

    def _document_ids(self) -> Text | None:
        found = self.out.documents[: self.count]
        longest = int((found[:, 1] - found[:, 0]).max())
        if longest == 0:
            return None
        out = np.zeros((self.count, longest), np.uint8)
        parse.gather(self.text, found, out)
        encoded = out.view(f"S{longest}").ravel()
        if int(out.max()) < 128:
            return encoded.astype(np.str_)
        return np.char.decode(encoded, "utf-8", "backslashreplace")
