"""The bytes of a file in blocks, decompressed on the way; what can be read of a broken file is given.

Compression is told by the first bytes, not by the name. Gzip members and zstd frames one after another are one text.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clickprism.errors import DataError
from clickprism.log.read.validate import Bad
from clickprism.types import Bool, Int64

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE: Final = b"\x2a\x4d\x18"
STEP: Final = 1 << 16
OUTPUT: Final = 1 << 17  # gzip gives no more than this at a time; what a fault is in is lost
ZSTD_STEP: Final = 1 << 12  # zstd may give 32 kB for each byte: a step of 4 kB is 128 MB at worst

ZSTD_WINDOW: Final = 1 << 28  # what it looks back, and holds, at most: `zstd --long=28`


@dataclass(frozen=True)
class Block:
    """Some text, how many bytes of the file have been read so far, and why there is no more, if there is a fault.

    A `whole` one is passed on as it is.
    """

    data: bytes
    read: int
    problem: str | None = None
    last: bool = False
    whole: bool = False


def blocks(path: Path, size: int) -> Iterator[Block]:
    """The text of a file in blocks of at most `size` bytes; a fault ends it, with the last block."""
    kept: list[bytes] = []
    held, read = 0, 0
    try:
        with path.open("rb", buffering=0) as file:
            for block in _expanded(file, size):
                read = max(read, block.read)
                view, at = block.data, 0
                while held + len(view) - at >= size or (block.whole and at < len(view)):
                    end = min(at + size - held, len(view))
                    yield Block(b"".join([*kept, view[at:end]]), read)
                    kept, held, at = [], 0, end
                if at < len(view):
                    kept.append(view[at:])
                    held += len(view) - at
                if block.problem:
                    yield Block(b"".join(kept), os.fstat(file.fileno()).st_size, block.problem, last=True)
                    return
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path, remedy="Check the file") from None
    yield Block(b"".join(kept), read, last=True)


def _expanded(file: IO[bytes], size: int) -> Iterator[Block]:
    start = file.read(4)
    file.seek(0)
    if start.startswith(GZIP):
        return _gunzip(file)
    if start == ZSTD or (start[1:] == SKIPPABLE and start[0] >> 4 == 5):
        return _unzstd(file)
    return _plain(file, size)


def _plain(file: IO[bytes], size: int) -> Iterator[Block]:
    """Up to the last line end of each block, if it is near, so that no line is in two of them."""
    near = min(size, STEP)
    while True:
        start = file.tell() + size - near
        cut = os.pread(file.fileno(), near, start).rfind(b"\n") + 1
        if not (data := file.read(size - near + cut if cut else size)):
            return
        yield Block(data, file.tell(), whole=True)


def _gunzip(file: IO[bytes]) -> Iterator[Block]:
    given = file.read(STEP)
    while given:
        member = zlib.decompressobj(31)
        while not member.eof:
            if not given and not (given := file.read(STEP)):
                while data := member.decompress(b"", OUTPUT):
                    yield Block(data, file.tell())
                yield Block(b"", file.tell(), "truncated")
                return
            try:
                data = member.decompress(given, OUTPUT)
            except zlib.error:
                yield Block(b"", file.tell(), "corrupt")
                return
            given = member.unconsumed_tail
            yield Block(data, file.tell())
        given = member.unused_data
        while not (given := given.lstrip(b"\0")) and (given := file.read(STEP)):
            pass  # zeros between or behind members are padding


def _unzstd(file: IO[bytes]) -> Iterator[Block]:
    import zstandard

    given = file.read(ZSTD_STEP)
    while given:
        frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
        while not frame.eof:
            if not given and not (given := file.read(ZSTD_STEP)):
                yield Block(b"", file.tell(), "truncated")
                return
            try:
                data = frame.decompress(given)
            except zstandard.ZstdError:
                yield Block(b"", file.tell(), "corrupt")
                return
            yield Block(data, file.tell())
            given = b""
        given = frame.unused_data or file.read(ZSTD_STEP)


BOM: Final = b"\xef\xbb\xbf"
KEPT: Final = 4096  # bytes that are kept of a line that is too long
MOST: Final = 1 << 18  # lines at a time
_SEARCHED: Final = 1 << 17  # bytes in which line ends are looked for at a time
LF, CR = 10, 13


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines of a text.

    Attributes:
        data: the text.
        starts: where each line starts.
        ends: where its content ends.
        stops: where its line end (LF or CRLF) ends.
        numbers: of the lines in the file, from 1.
        bad: lines that are none of these.
        read: bytes of the file read for these lines.
    """

    data: bytes
    starts: Int64
    ends: Int64
    stops: Int64
    numbers: Int64
    bad: list[Bad] = field(default_factory=list)
    read: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, index: int) -> bytes:
        """The content of one line."""
        return self.data[self.starts[index] : self.ends[index]]

    def take(self, chosen: Int64 | Bool) -> Lines:
        """These lines only."""
        starts, ends, stops, numbers = (each[chosen] for each in (self.starts, self.ends, self.stops, self.numbers))
        return replace(self, starts=starts, ends=ends, stops=stops, numbers=numbers)

    def without(self, chosen: Bool, code: str) -> Lines:
        """The same with some lines among the bad ones."""
        if not chosen.any():
            return self
        bad = [Bad(int(self.numbers[each]), code, None, self.raw(each)) for each in np.flatnonzero(chosen).tolist()]
        return replace(self.take(~chosen), bad=[*self.bad, *bad])

    def alone(self) -> Lines:
        """The same lines without the text between them."""
        text = self.text()
        stops = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, text.offset * 4).astype(np.int64)
        data = b"" if not len(text) else text.buffers()[2][stops[0] : stops[-1]].to_pybytes()
        stops -= stops[0]
        ends = stops[1:] - (self.stops - self.ends)
        return replace(self, data=data, starts=stops[:-1], ends=ends, stops=stops[1:])

    def text(self) -> pa.StringArray:
        """The lines with their line ends as an Arrow array, without a copy where they follow each other."""
        if not len(self):
            return pa.array([], pa.string())
        buffer = pa.py_buffer(self.data)
        if (self.stops[:-1] == self.starts[1:]).all():
            offsets = np.append(self.starts, self.stops[-1]).astype(np.int32)
            return pa.StringArray.from_buffers(len(self), pa.py_buffer(offsets), buffer)
        offsets = np.stack([self.starts, self.stops], 1).ravel().astype(np.int32)
        gaps = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), buffer)
        return gaps.take(pa.array(np.arange(0, len(offsets), 2)))


def joined(parts: Sequence[Lines]) -> Lines:
    """The lines of several texts as lines of one text."""
    shifts = np.cumsum([0, *(len(part.data) for part in parts[:-1])])
    starts, ends, stops = (
        np.concatenate([getattr(part, name) + shift for part, shift in zip(parts, shifts, strict=True)])
        for name in ("starts", "ends", "stops")
    )
    data, numbers = b"".join(part.data for part in parts), np.concatenate([part.numbers for part in parts])
    bad, read = [each for part in parts for each in part.bad], sum(part.read for part in parts)
    return Lines(data, starts, ends, stops, numbers, bad, read)


@dataclass(frozen=True, eq=False)
class Text:
    """Whole lines, not yet looked at: any thread can do that.

    Attributes:
        data: the lines.
        newlines: where they end.
        number: of the first one in the file, from 1.
        bad: lines that are none of these.
        read: bytes of the file read for them.
    """

    data: bytes
    newlines: Int64
    number: int
    bad: tuple[Bad, ...] = ()
    read: int = 0


def split(blocks: Iterator[Block], *, max_line: int, blank: bool = False) -> Iterator[Lines]:
    """Cut blocks into lines; lines that are too long, not UTF-8 or hold a NUL, and a cut last line, are bad.

    A line that is too long is never held whole. Without `blank`, empty lines are left out. A byte order mark
    at the start of a line is no part of it.
    """
    for text in cut(blocks, max_line=max_line):
        yield from lines_of(text, max_line=max_line, blank=blank)


def cut(blocks: Iterator[Block], *, max_line: int) -> Iterator[Text]:
    """Cut blocks between lines; what is left of a line that is too long, and a cut last line, are bad."""
    pending, number, read, skipped = bytearray(), 1, 0, b""
    for block in blocks:
        data, bad = block.data, []
        if skipped:
            end = data.find(b"\n") + 1
            data = data[end:] if end else b""
            if end:
                bad = [Bad(number, "too-long", None, skipped)]
                number, skipped = number + 1, b""
        cut = data.rfind(b"\n") + 1
        whole = b""
        if cut:
            whole = data if cut == len(data) and not pending else b"".join([pending, memoryview(data)[:cut]])
            pending = bytearray()
        pending += data[cut:]
        if block.last and not block.problem and not skipped:
            whole, pending = whole + pending, bytearray()
        if len(pending) > max_line + 1 + len(BOM):
            head = bytes(pending).removeprefix(BOM) if number == 1 and not whole else pending
            skipped, pending = bytes(head[: min(KEPT, max_line)]), bytearray()
        newlines = _newlines(np.frombuffer(whole, np.uint8))
        first, number = number, number + len(newlines)
        if block.problem or (block.last and skipped):
            bad.append(Bad(number, block.problem or "too-long", None, skipped or bytes(pending)))
        if whole or bad or block.read > read:
            yield Text(whole, newlines, first, tuple(bad), block.read - read)
        read = block.read


def lines_of(text: Text, *, max_line: int, blank: bool = False) -> Iterator[Lines]:
    """The lines of a text, some at a time."""
    data, number, found = text.data, text.number, text.newlines
    cuts = [0, *(found[MOST - 1 : -1 : MOST] + 1).tolist(), len(data)]
    for place, (start, stop) in enumerate(pairwise(cuts)):
        ends = found[place * MOST : (place + 1) * MOST] - start
        lines = _lines(data[start:stop], ends, number, max_line=max_line, blank=blank)
        number += len(ends)
        if stop == len(data):
            lines = replace(lines, bad=[*text.bad, *lines.bad], read=text.read)
        yield lines


def _newlines(text: NDArray[np.uint8]) -> Int64:
    """Where they are, found in pieces that stay in the cache."""
    found = [start + np.flatnonzero(text[start : start + _SEARCHED] == LF) for start in range(0, len(text), _SEARCHED)]
    return np.concatenate([np.empty(0, np.int64), *found])


def _lines(data: bytes, newlines: Int64, number: int, *, max_line: int, blank: bool) -> Lines:
    view = np.frombuffer(data, np.uint8)
    stops, ends = newlines + 1, newlines
    if data and view[-1] != LF:
        stops, ends = np.append(stops, len(data)), np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(1, len(stops)), np.int64), stops[:-1]])
    if (view[starts] == BOM[0]).any():  # files that were put together have one in the middle
        marked = starts[starts + len(BOM) <= len(data)]
        for place, byte in enumerate(BOM):
            marked = marked[view[marked + place] == byte]
        starts[np.searchsorted(starts, marked)] += len(BOM)
    if len(ends):
        ends = ends - ((ends > starts) & (view[np.maximum(ends, 1) - 1] == CR))
    lines = Lines(data, starts, ends, stops, number + np.arange(len(stops)))
    if not blank and not (filled := lines.ends > lines.starts).all():
        lines = lines.take(filled)
    long = lines.ends - lines.starts > max_line
    if long.any():
        heads = [(int(lines.numbers[each]), lines.raw(each)) for each in np.flatnonzero(long).tolist()]
        bad = [Bad(line, "too-long", None, raw[: min(KEPT, max_line)]) for line, raw in heads]
        lines = replace(lines.take(~long), bad=bad)
    if b"\0" in data:
        zeros = np.flatnonzero(view == 0)
        lines = lines.without(np.searchsorted(zeros, lines.stops) > np.searchsorted(zeros, lines.starts), "nul-byte")
    return lines.without(broken_text(lines.data, lines.starts, lines.stops), "not-utf8")


def broken_text(data: bytes | memoryview, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Bool:
    r"""Which of the values between `starts` and `stops`, in rising order, are not UTF-8, found by halving.

    >>> broken_text(b"ab\xffc", np.array([0, 1, 2, 3]), np.array([1, 2, 3, 4])).tolist()
    [False, False, True, False]
    """
    broken = np.zeros(len(starts), bool)
    view = memoryview(data)
    parts = [(0, len(starts))] if len(starts) else []
    while parts:
        first, last = parts.pop()
        if not _is_text(view[starts[first] : stops[last - 1]]):
            middle = (first + last) // 2
            if last - first == 1:
                broken[first] = True
            else:
                parts += [(first, middle), (middle, last)]
    return broken


def _is_text(data: memoryview) -> bool:
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
