"""How far what each criterion takes is from the best candidate, and how well it tracks the true nDCG, over worlds."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import write_file
from clickprism.choice.candidates import CHOSEN_FROM
from reproduce.choice.criteria import NAMES

EXPECTED: Final = Path(__file__).parent / "expected.csv"
FALLBACK: Final = "click/blend"
LEAST: Final = 3  # candidates that a correlation needs


@final
@dataclass(frozen=True)
class Outcome:
    """A criterion in one world.

    Attributes:
        chosen: the candidate taken; the fallback where the criterion takes none.
        defined: whether it took one.
        regret: the best candidate's nDCG less that of the one taken.
        below_click: nDCG of the same ranker on raw clicks less that of the one taken.
        correlation: Spearman's, with nDCG, over the candidates it values; NaN where there are few.
    """

    chosen: str
    defined: bool
    regret: float
    below_click: float
    correlation: float


def outcome(ndcg: Mapping[str, float], values: Mapping[str, float], chosen: str) -> Outcome:
    """What a criterion comes to by the true grades.

    >>> ndcg = {"click/linear": 0.7, "click/blend": 0.72, "pooled/linear": 0.75, "pooled/blend": 0.71}
    >>> found = outcome(ndcg, {}, "pooled/blend")
    >>> round(found.regret, 3), round(found.below_click, 3), found.correlation
    (0.04, 0.01, nan)
    """
    taken = chosen or FALLBACK
    floor = ndcg[f"click/{taken.partition('/')[2]}"]
    return Outcome(
        taken, bool(chosen), max(ndcg.values()) - ndcg[taken], floor - ndcg[taken], _correlation(ndcg, values)
    )


def _correlation(ndcg: Mapping[str, float], values: Mapping[str, float]) -> float:
    from scipy.stats import spearmanr

    pairs = np.array([(values[name], ndcg[name]) for name in values]).reshape(-1, 2)
    if len(pairs) < LEAST or (np.ptp(pairs, axis=0) == 0).any():
        return float("nan")
    return float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)


@final
@dataclass(frozen=True)
class Line:
    """A criterion over worlds, as a row of expected.csv.

    Attributes:
        criterion: its name.
        worlds: how many.
        defined: in how many it took a candidate; in others that is the fallback.
        mean_regret: over all worlds.
        mean_uncoupled: over those in which features do not bend what is seen; empty where there is none.
        mean_among_tuned: over all worlds, if it chose from the candidates of `tune` alone; the best is still of all.
        worst_regret: of one world.
        worst_seed: which.
        most_below_click: of one world.
        correlation: the mean over worlds that have one; empty where none has.
    """

    criterion: str
    worlds: int
    defined: int
    mean_regret: float
    mean_uncoupled: float | None
    mean_among_tuned: float
    worst_regret: float
    worst_seed: int
    most_below_click: float
    correlation: float | None


def line(criterion: str, rows: Sequence[Mapping[str, Any]]) -> Line:
    """A criterion over the rows of `worlds.row_of`."""
    found = [outcome(row["ndcg"], **row["criteria"][criterion]) for row in rows]
    regrets = np.array([each.regret for each in found])
    uncoupled = [each.regret for each, row in zip(found, rows, strict=True) if not row["world"]["coupling"]]
    among = [outcome(row["ndcg"], {}, _among_tuned(**row["criteria"][criterion])).regret for row in rows]
    correlations = [each.correlation for each in found if not np.isnan(each.correlation)]
    return Line(
        criterion,
        len(found),
        sum(each.defined for each in found),
        round(float(regrets.mean()), 4),
        _mean(uncoupled, 4),
        round(float(np.mean(among)), 4),
        round(float(regrets.max()), 4),
        int(rows[int(regrets.argmax())]["seed"]),
        round(max(each.below_click for each in found), 4),
        _mean(correlations, 2),
    )


def _among_tuned(values: Mapping[str, float], chosen: str) -> str:
    """What a criterion takes of the methods that `tune` tries."""
    if chosen.partition("/")[0] in CHOSEN_FROM:
        return chosen
    tried = [name for name in values if name.partition("/")[0] in CHOSEN_FROM]
    return max(tried, key=lambda name: values[name], default="")


def _mean(values: Sequence[float], digits: int) -> float | None:
    return round(float(np.mean(values)), digits) if values else None


def lines(rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Every criterion, the least mean regret first."""
    return sorted((line(name, rows) for name in NAMES), key=lambda each: each.mean_regret)


def write_expected(made: Sequence[Line], file: Path = EXPECTED) -> None:
    """Write expected.csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(Line.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(each) for each in made)
    write_file(file, text.getvalue())


def markdown(made: Sequence[Line]) -> str:
    """For docs/choice.md."""
    header = (
        *("criterion", "defined in", "mean regret", "without coupling", "among those of tune"),
        *("worst", "in world", "most below click", "Spearman"),
    )
    text = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for each in made:
        start = f"| {each.criterion} | {each.defined} of {each.worlds} | {each.mean_regret:.4f}"
        worst = f"{each.worst_regret:.4f} | {each.worst_seed} | {each.most_below_click:.4f}"
        means = f"{_cell(each.mean_uncoupled, 4)} | {each.mean_among_tuned:.4f}"
        text.append(f"{start} | {means} | {worst} | {_cell(each.correlation, 2)} |")
    return "\n".join(text)


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def by_world(rows: Sequence[Mapping[str, Any]], criterion: str) -> str:
    """What a criterion took in each world, and what the best was."""
    text = ["| seed | browsing | severity | trust | coupling | attention | policy | taken | best | regret |"]
    text.append(f"|{'---|' * 10}")
    for row in rows:
        found, world = outcome(row["ndcg"], **row["criteria"][criterion]), row["world"]
        strengths = " | ".join(f"{world[name]:.2f}" for name in ("severity", "trust", "coupling", "attention"))
        best = max(row["ndcg"], key=lambda name: row["ndcg"][name])
        start = f"| {row['seed']} | {world['browsing']} | {strengths} | {world['policy']}"
        text.append(f"{start} | {found.chosen} | {best} | {found.regret:.4f} |")
    return "\n".join(text)
