"""Tables 1 to 4, the ceiling, section 7.8 and Figure 4 as rows, with the figures of the paper beside ours."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from clickprism.examination.examine import Examination, examine
from clickprism.log.engines.base import connect
from clickprism.log.ingest import ingest
from clickprism.log.sessions import update_sessions
from clickprism.log.store import LogStore
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Float64
from reproduce.adr.encoders import METHODS
from reproduce.adr.methods import BASE, MIXED, ORACLES, Draw
from reproduce.adr.world import BUCKETS, per_query

EXPECTED: Final = Path(__file__).with_name("expected.csv")
CUTS: Final = (2, 4, 6, 10, 20)
LEAD: Final = "DCG(exp)@4"
TIMES: Final = 2000  # resamples of the queries
ONLINE: Final = "bag of words mix + display_filtering"
AFFINE, PUBLISHED, DEFAULT = (
    "approximated affine, published",
    "approximated doubly robust, published",
    "approximated doubly robust, default",
)
APPROXIMATED: Final = (AFFINE, PUBLISHED, "approximated affine, default", DEFAULT)
COUNTED: Final = ("clicks of counts", "ipw of counts", "affine", "doubly robust, Eq. 4", "log_model")
LEVELS: Final = ("engine", *COUNTED, *METHODS, *(f"vanilla_mix + {name}" for name in MIXED), *APPROXIMATED, *ORACLES)
SAME: Final = 0.05  # a ranking is the same as another if their DCG@4 differ by less than this share of the ideal one


@dataclass(frozen=True)
class Row:
    """One figure: a value with its 95% interval over queries; the paper's is empty where it has none."""

    table: str
    bucket: str
    method: str
    measure: str
    value: float
    low: float
    high: float
    draws: int
    paper: float | None = None


def all_rows(draws: Sequence[Draw], examined: Examination) -> list[Row]:
    """Return every figure of the reproduction."""
    known = {_key(row): row for row in read_expected()}
    rows = [*_levels(draws), *_ceiling(draws), *_table_2(draws), *_table_3(draws), *_table_4(draws)]
    auc = examined.quality.auc
    rows.append(Row("section 7.8", "all", "examination", "AUC", auc, auc, auc, 1))
    return [Row(**{**asdict(row), "paper": known[_key(row)].paper if _key(row) in known else None}) for row in rows]


def _key(row: Row) -> tuple[str, str, str, str]:
    return row.table, row.bucket, row.method, row.measure


def _levels(draws: Sequence[Draw]) -> list[Row]:
    return [
        _row(draws, ("levels", bucket, method, LEAD), lambda one: float(one[0]), [(method, LEAD)], bucket)
        for method in LEVELS
        for bucket in (*BUCKETS, "all")
    ]


def _ceiling(draws: Sequence[Draw]) -> list[Row]:
    return [_relative(draws, "ceiling", bucket, ORACLES[0], COUNTED[0]) for bucket in (*BUCKETS, "all")]


def _table_2(draws: Sequence[Draw]) -> list[Row]:
    methods = (*METHODS[1:], *(f"vanilla_mix + {name}" for name in MIXED), *APPROXIMATED)
    measures = [*(f"DCG(exp)@{cut}" for cut in CUTS), *(f"ERR@{cut}" for cut in CUTS)]
    return [
        _relative(draws, "table 2", "all", method, BASE, measure=measure) for method in methods for measure in measures
    ]


def _table_3(draws: Sequence[Draw]) -> list[Row]:
    rows = []
    for method in ("vanilla_mix + display_filtering", PUBLISHED, DEFAULT):
        for bucket in ("random", "tail"):
            rows.append(_relative(draws, "table 3", bucket, method, ONLINE))
            wanted = [(name, LEAD) for name in (method, ONLINE, ORACLES[0])]
            rows.append(_row(draws, ("table 3", bucket, method, "GSB"), _gsb, wanted, bucket))
    return rows


def _table_4(draws: Sequence[Draw]) -> list[Row]:
    rows = [_relative(draws, "table 4", bucket, method, AFFINE) for method in ("rand", PUBLISHED) for bucket in BUCKETS]
    ours = "approximated affine, default"
    return rows + [
        _relative(draws, "table 4, default", bucket, method, ours)
        for method in ("rand", DEFAULT, "log_model")
        for bucket in BUCKETS
    ]


def _relative(draws: Sequence[Draw], table: str, bucket: str, method: str, base: str, *, measure: str = LEAD) -> Row:
    """Return how much better a method is than another, in percent of the mean of the latter."""

    def gain(means: Float64) -> float:
        return 100 * float(means[0] / means[1] - 1)

    name = table, bucket, method, f"{measure}, %"
    return _row(draws, name, gain, [(method, measure), (base, measure)], bucket)


def _gsb(means: Float64) -> float:
    return float(means[3])


def _row(
    draws: Sequence[Draw],
    name: tuple[str, str, str, str],
    of: Callable[[Float64], float],
    wanted: Sequence[tuple[str, str]],
    bucket: str,
) -> Row:
    """Return a function of weighted means over the queries of all draws, with a bootstrap interval over queries."""
    parts, weights = [], []
    for draw in draws:
        judged, truth = draw.world.truth.judged, draw.world.truth
        values = [per_query(judged, draw.scores[method], measure) for method, measure in wanted]
        if of is _gsb:
            difference = values[0] - values[1]
            values.append(100 * np.where(np.abs(difference) < SAME * values[2], 0.0, np.sign(difference)))
        chosen = (
            np.ones(len(truth.bucket), bool) if bucket in ("all", "random") else truth.bucket == BUCKETS.index(bucket)
        )
        parts.append(np.stack(values)[:, chosen])
        weights.append(truth.searches[chosen] if bucket == "random" else np.ones(int(chosen.sum())))
    table, weight = np.concatenate(parts, axis=1), np.concatenate(weights)
    random = np.random.default_rng(7)
    sampled = random.integers(0, len(weight), (TIMES, len(weight)))
    spread = [of((table[:, rows] @ weight[rows]) / weight[rows].sum()) for rows in sampled]
    low, high = np.quantile(spread, (0.025, 0.975))
    return Row(*name, of(table @ weight / weight.sum()), float(low), float(high), len(draws))


def examination_of(folder: Path, *, searches: int, seed: int = 0) -> Examination:
    """Train the examination model on a raw log of users that read from the top and stop (section 7.8, Figure 4)."""
    raw = write_raw_log(folder / "raw", RawLogSettings(searches=searches, days=7, seed=seed))
    ingest([raw.folder / "events"], folder / "log", threads=1)
    store = LogStore.open(folder / "log")
    with connect("duckdb", threads=1) as engine:
        update_sessions(store, engine)
        return examine(store, engine, truth=raw.folder / "truth")[1]


def read_expected() -> list[Row]:
    """Return the rows of expected.csv: every figure of the paper, and ours as last recorded."""
    with EXPECTED.open(encoding="utf-8", newline="") as file:
        return [_parsed(row) for row in csv.DictReader(file)]


def _parsed(row: dict[str, str]) -> Row:
    value, low, high = (float(row[name] or "nan") for name in ("value", "low", "high"))
    paper = float(row["paper"]) if row["paper"] else None
    names = row["table"], row["bucket"], row["method"], row["measure"]
    return Row(*names, value, low, high, int(row["draws"] or 0), paper)


def write_expected(rows: Sequence[Row]) -> None:
    """Write our figures beside those of the paper."""
    with EXPECTED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([each.name for each in fields(Row)])
        for row in rows:
            numbers = [f"{value:.3f}" for value in (row.value, row.low, row.high)]
            paper = "" if row.paper is None else f"{row.paper:g}"
            writer.writerow([row.table, row.bucket, row.method, row.measure, *numbers, row.draws, paper])


def markdown(rows: Sequence[Row], draws: Sequence[Draw]) -> str:
    """Return all tables as text."""
    facts, lines = (
        draws[0].facts,
        ["## table 1, first draw", "", "| data | queries | pairs | impressions |"],
    )
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {name} | {one['queries']:,} | {one['pairs']:,} | {one['impressions']:,} |"
        for name, one in facts["table 1"].items()
    ]
    for table in dict.fromkeys(row.table for row in rows):
        own = [row for row in rows if row.table == table]
        columns = list(dict.fromkeys((row.bucket, row.measure) for row in own))
        lines += ["", f"## {table}", "", "| | " + " | ".join(f"{b}: {m}" for b, m in columns) + " |"]
        lines.append("|---" * (len(columns) + 1) + "|")
        for method in dict.fromkeys(row.method for row in own):
            cells = {(row.bucket, row.measure): _cell(row) for row in own if row.method == method}
            lines.append(f"| {method} | " + " | ".join(cells.get(column, "") for column in columns) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    signed = "%" in row.measure or row.measure == "GSB"
    text = f"{row.value:+.1f} ({row.low:+.1f} to {row.high:+.1f})" if signed else f"{row.value:.2f}"
    return text if row.paper is None else f"{text}; paper {row.paper:g}"
