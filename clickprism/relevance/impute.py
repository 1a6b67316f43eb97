"""From files to an imputation and back: first-slot clicks and texts in, a model out; pairs in, their imputation out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.tables import Table, read_table
from clickprism.data.texts import read_texts
from clickprism.data.vocabulary import Names
from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.rankers.cross_encoder import CrossEncoder
from clickprism.relevance.imputation import FittedImputation, TextImputation, fit_imputation
from clickprism.relevance.randomised import FirstSlot, read_first_slot
from clickprism.training.text_settings import TextFitSettings
from clickprism.types import Float64, Int64, Text

if TYPE_CHECKING:
    from clickprism.data.columns import Kind
    from clickprism.training.text_settings import TextRecord

PAIR: Final = ("query_id", "document_id")
COUNTS: Final = ("clicks", "impressions")
ENDINGS: Final = (".parquet", ".jsonl")


@final
@dataclass(frozen=True)
class ImputationSettings:
    """All settings of an imputation by text: the encoder, and how it is trained."""

    encoder: CrossEncoder = field(default_factory=CrossEncoder)
    fit: TextFitSettings = field(default_factory=TextFitSettings)


def train_imputation(
    clicks: Path,
    queries: Path,
    documents: Path,
    out: Path,
    *,
    settings: ImputationSettings | None = None,
    note: Callable[[str], None] = lambda _: None,
    show: Callable[[int, int, TextRecord | None], None] = lambda _step, _steps, _record: None,
) -> tuple[FirstSlot, FittedImputation]:
    """Fine-tune a language model on first-slot clicks, and save it.

    Args:
        clicks: a table of query_id, document_id, clicks, impressions, or the folder of an ingested log.
        queries: the texts of the queries.
        documents: the texts of the documents.
        out: the folder for the imputation.
        settings: of the encoder and of training.
        note: is told beforehand what an epoch costs.
        show: is told of every step.
    """
    settings = ImputationSettings() if settings is None else settings
    slot = read_slot(clicks)
    words = read_texts(queries), read_texts(documents)
    done = fit_imputation(slot, *words, encoder=settings.encoder, settings=settings.fit, note=note, show=show)
    done.imputation.save(out)
    return slot, done


def apply_imputation(folder: Path, pairs: Path, queries: Path, documents: Path, out: Path) -> Float64:
    """Write query_id, document_id, imputation of every pair of a table to a Parquet or JSON lines file."""
    if out.suffix not in ENDINGS:
        raise SettingError("--out", str(out), f"end in {' or '.join(ENDINGS)}")
    ids = _ids(_read(pairs, PAIR))
    loaded = TextImputation.load(folder, queries=read_texts(queries), documents=read_texts(documents))
    values = loaded.impute(*ids)
    write_imputed(out, *ids, values)
    return values


def read_slot(path: Path) -> FirstSlot:
    """First-slot clicks: of a table, whose rows of the same pair are added up, or of an ingested log."""
    if path.is_dir():
        from clickprism.log.store import LogStore

        return read_first_slot(LogStore.open(path))
    table = _read(path, (*PAIR, *COUNTS))
    clicks, impressions = (_counts(table, name) for name in COUNTS)
    wrong = np.flatnonzero((clicks > impressions) | (clicks < 0))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {clicks[row]} clicks on {impressions[row]} impressions"
        remedy = "Clicks are from 0 to impressions"
        raise DataError(problem, file=path, line=int(table.lines[row]), remedy=remedy)
    query_ids, document_ids = _ids(table)
    return FirstSlot.of(query_ids, document_ids, clicks, impressions=impressions)


def write_imputed(path: Path, query_ids: Text, document_ids: Text, values: Float64) -> None:
    """Pairs with their imputation, a row each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        rows = zip(query_ids.tolist(), document_ids.tolist(), values.tolist(), strict=True)
        lines = (json.dumps({"query_id": a, "document_id": b, "imputation": c}, ensure_ascii=False) for a, b, c in rows)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MissingExtraError("log", "writing Parquet") from None
    columns = {"query_id": query_ids.tolist(), "document_id": document_ids.tolist(), "imputation": values}
    parquet.write_table(arrow.table(columns), path)


def _read(path: Path, names: tuple[str, ...]) -> Table:
    """A table that has these columns, and no row that is broken."""
    kinds: dict[str, Kind] = {name: "names" if name in PAIR else "numbers" for name in names}
    table = read_table(path, lambda name: kinds.get(name, "none"))
    missing = [name for name in names if name not in table.columns]
    if missing:
        remedy = f"Its columns are {', '.join(table.header)}; needed are {', '.join(names)}"
        raise DataError(f"has no column {missing[0]!r}", file=path, remedy=remedy)
    if table.broken:
        first = table.broken[0]
        raise DataError(first.reason, file=path, line=first.line, remedy="Correct the row, or leave it out")
    if not len(table):
        raise DataError("has no row", file=path, remedy=f"Give rows of {', '.join(names)}")
    return table


def _ids(table: Table) -> tuple[Text, Text]:
    columns: list[Any] = [table.columns[name] for name in PAIR]
    for name, column in zip(PAIR, columns, strict=True):
        if not isinstance(column, Names) or "" in column.values:
            raise DataError(f"has a row without a {name}", file=table.file, remedy="Give both ids in every row")
    return columns[0].texts("queries"), columns[1].texts("documents")


def _counts(table: Table, name: str) -> Int64:
    values: Any = table.columns[name]
    wrong = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {name} {values[row]:g}"
        raise DataError(problem, file=table.file, line=int(table.lines[row]), remedy="Counts are whole numbers")
    counts: Int64 = values.astype(np.int64)
    return counts
