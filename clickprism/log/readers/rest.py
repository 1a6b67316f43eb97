"""Lines of our own rows that are not plain: those of several files are read together, since to plan a query takes long.

See `plain` for the lines that are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from clickprism.log.readers import lines as text
from clickprism.log.readers.chunk import Chunk
from clickprism.log.readers.lines import Lines
from clickprism.log.readers.places import JsonPlaces
from clickprism.log.readers.plan import Reading
from clickprism.log.readers.rows import rows
from clickprism.log.readers.settings import SourceSettings
from clickprism.log.readers.sources import SOURCES
from clickprism.types import Int64


@dataclass(frozen=True, eq=False)
class Rest:
    """Lines of a file that wait to be read."""

    path: Path
    source: SourceSettings
    lines: Lines


def parsed(path: Path, source: SourceSettings, schema: str, lines: Lines) -> Chunk:
    """The rows of JSON lines, by a query."""
    plan = SOURCES[schema](Reading(JsonPlaces(lines), source, path))
    table = pa.table({"text": lines.text(), "line": pa.array(lines.numbers)})
    escaped = b"\\" in lines.data and b"\\u0000" in lines.data

    def raw(indices: Sequence[int]) -> list[bytes]:
        return [lines.raw(index) for index in indices]

    return rows(table, plan, raw=raw, bad=lines.bad, read=lines.read, nul=escaped)


def joined(rests: Sequence[Rest]) -> Rest:
    """The lines of several parts of one file."""
    return replace(rests[0], lines=text.joined([rest.lines for rest in rests]))


def read_rests(rests: Sequence[Rest]) -> list[Chunk]:
    """The rows of each of these, by one query for all that are read in the same way; an error may name any file."""
    chunks: dict[int, Chunk] = {}
    alike: dict[str, list[int]] = {}
    for place, rest in enumerate(rests):
        alike.setdefault(rest.source.latest, []).append(place)
    for places in alike.values():
        chunks |= dict(zip(places, _read_alike([rests[place] for place in places]), strict=True))
    return [chunks[place] for place in range(len(rests))]


def _read_alike(rests: Sequence[Rest]) -> list[Chunk]:
    first = rests[0]
    if len(rests) == 1:
        return [parsed(first.path, first.source, "clickprism", first.lines)]
    lines = text.joined([rest.lines for rest in rests])
    whole = parsed(first.path, first.source, "clickprism", replace(lines, numbers=np.arange(len(lines)), bad=[]))
    bounds = np.cumsum([0, *(len(rest.lines) for rest in rests)])
    tables = [_apart(table, bounds, lines) for table in (whole.good, whole.bad)]
    return [
        Chunk(good, bad, 0, rest.lines.read, None) for rest, good, bad in zip(rests, tables[0], tables[1], strict=True)
    ]


def _apart(table: pa.Table, bounds: Int64, lines: Lines) -> list[pa.Table]:
    """The rows between these bounds, which are of their indices in place of their lines, with their lines."""
    indices = table["line"].to_numpy()
    place = table.schema.get_field_index("line")
    named = table.set_column(place, table.schema.field(place), pa.array(lines.numbers[indices]))
    return [named.slice(start, end - start) for start, end in pairwise(np.searchsorted(indices, bounds).tolist())]
