"""The figures of the paper, and those that show whether they can be trusted: the plateau, the claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clickprism.evaluation.plots import INK, styled
from reproduce.common.page import Look, draws_of, panels_of
from reproduce.inforank.config import CANDIDATES, CLAIMS, DEPENDENCE, LEADING, USERS
from reproduce.inforank.plan import case
from reproduce.inforank.rows import AFTER, EXPOSED, GAP, GRADES, Results, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    GRADES: Look(INK, "", "--"),
    "labels": Look(INK, "h", ":"),
    "inforank": Look("#d64550", "o"),
    "inforank-": Look("#d64550", "<", "--"),
    "inforank_paper": Look("#0f9d76", "D"),
    "inforank_paper-": Look("#0f9d76", ">", "--"),
    "lbd": Look("#1f7fc4", "o"),
    "dla": Look("#1f7fc4", "X"),
    "regression_em": Look("#c767a3", "P"),
    "pal": Look("#7a6ff0", "^"),
    "randomization": Look("#b8860b", "v"),
    "click": Look("#d9660a", "s"),
}
USER_LOOKS = {"pbm": ("#1f7fc4", "o"), "ubm": ("#d9660a", "s"), "ccm": ("#0f9d76", "D")}
HATCHES = ("", "//", "..", "xx")
NAMES = {"attention": "attention ranker", "mlp": "MLP ranker", "lambdamart": "LambdaMART"}
REACH = 2.5  # times the largest difference: intervals of very few draws may leave the picture
WIDTH, LEGEND = 3.1, 2.2  # inches of a panel, and of the legend beside them


def figures_of(results: Results, rows: Sequence[Row]) -> dict[str, tuple[str, Figure]]:
    """Return caption and figure by file name, of all that there are rows for."""
    drawn: dict[str, tuple[str, Figure]] = {}
    for ranker in results.plan.size.rankers:
        mine = [row for row in rows if row.ranker == ranker]
        what = f"{results.plan.data} data, {NAMES[ranker]}"
        drawings: tuple[tuple[str, str, Callable[..., Figure]], ...] = (
            *((name, text, partial(by_user, lines=lines)) for name, text, lines in LINES),
            ("figure_4", "Figure 4: Delta-CI with and without the mutual information, by user model", dependence),
            ("claims", f"Differences in {LEADING} with 95 % intervals over draws", claimed),
        )
        for name, text, draw in drawings:
            part = [row for row in mine if row.table.startswith(name.replace("_", " "))]
            if part:
                drawn[f"{name}_{ranker}"] = f"{text} ({what})", draw(part)
        if (figure := plateaus(results, ranker)) is not None:
            text = f"Validation {LEADING} over training, means over draws: who has reached a plateau"
            drawn[f"plateau_{ranker}"] = f"{text} ({what})", figure
    return drawn


class Line(NamedTuple):
    """A line of panels, one for each user model.

    Attributes:
        table: Whose rows it shows.
        measure: Of the rows.
        axis: Name of what is across, by user model if it differs.
        title: Name of what is up.
    """

    table: str
    measure: str
    axis: str | dict[str, str]
    title: str


ITEMS, STANDING = "relative frequency of the item", "position before"
SEVERITY = {"pbm": "τ", "ccm": "γ₁, falling"}
LINES: tuple[tuple[str, str, tuple[Line, ...]], ...] = (
    (
        "figure_3",
        "Figure 3: mean position after re-ranking, by item frequency and by position before",
        (Line("figure 3 left", AFTER, ITEMS, AFTER), Line("figure 3 right", AFTER, STANDING, AFTER)),
    ),
    (
        "figure_5_left",
        "Figure 5, left: share of the top ten places by popularity of the item",
        (Line("figure 5 left", EXPOSED, "group of items, least clicked first", "share of the top ten places"),),
    ),
    (
        "figure_5_right",
        f"Figure 5, right: {LEADING} and Delta-CI by η",
        (Line("figure 5 right", LEADING, "η", LEADING), Line("figure 5 right", GAP, "η", GAP)),
    ),
    (
        "figure_6",
        f"Figure 6: {LEADING} as position bias grows to the right",
        (Line("figure 6", LEADING, SEVERITY, LEADING),),
    ),
    (
        "figure_7",
        f"Figure 7: {LEADING} by share of the training queries",
        (Line("figure 7", LEADING, "share of the training queries", LEADING),),
    ),
)


@styled
def by_user(rows: Sequence[Row], *, lines: Sequence[Line]) -> Figure:
    """Draw a column for each user model and a line of panels for each measure."""
    users = _users(rows)
    figure, panels = _grid(users, lines=len(lines), height=3.4 if len(lines) == 1 else 2.9)
    for place, (table, measure, axis, title) in enumerate(lines):
        for column, user in enumerate(users):
            axes = panels[place * len(users) + column]
            mine = [row for row in rows if (row.table, row.measure, row.user) == (table, measure, user)]
            if table == "figure 5 left":
                mine = _numbered(mine)
            elif table == "figure 5 right":  # InfoRank- is InfoRank at eta = 0: one line
                mine = [replace(row, method=row.method.removesuffix("-")) for row in mine]
            if mine:
                _lines(axes, mine, titled=place == column == 0)
            if axis != ITEMS:
                axes.set_xticks(sorted({row.at for row in mine if row.at is not None}))
            axes.set_xlabel(axis if isinstance(axis, str) else axis[user])
            if table == "figure 6" and user == "ccm":
                axes.invert_xaxis()
            axes.set_ylabel("" if column else title)
            if not place:
                axes.set_title(user.upper(), fontsize=10)
    _legend(figure)
    return figure


def _numbered(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the number of the group instead of its popularity, in which draws differ."""
    result = []
    for label in dict.fromkeys(row.method for row in rows):
        mine = sorted((row for row in rows if row.method == label), key=lambda row: row.at or 0.0)
        result += [replace(row, at=place + 1.0) for place, row in enumerate(mine)]
    return result


def _title(label: str) -> str:
    return "the labels themselves" if label == GRADES else CANDIDATES[label].title


def _lines(axes: Axes, rows: Sequence[Row], *, titled: bool) -> None:
    """A line a method, with a band of its standard error."""
    for label in [label for label in LOOKS if any(row.method == label for row in rows)]:
        mine = sorted((row for row in rows if row.method == label), key=lambda row: row.at or 0.0)
        x, y = np.array([row.at for row in mine]), np.array([row.mean for row in mine])
        look = LOOKS[label]
        title = _title(label) + draws_of(mine, rows) if titled else None
        axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.line, label=title, linewidth=1.6, ms=5)
        errors = np.array([row.se or 0.0 for row in mine])
        axes.fill_between(x, y - errors, y + errors, color=look.colour, alpha=0.15, linewidth=0)


def _grid(columns: Sequence[str], *, lines: int = 1, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    return panels_of(WIDTH * len(columns) + LEGEND, height * lines, lines, len(columns))


def _users(rows: Sequence[Row]) -> list[str]:
    return [user for user in USERS if any(row.user == user for row in rows)]


def _legend(figure: Figure) -> None:
    figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, labelcolor=INK)


@styled
def dependence(rows: Sequence[Row]) -> Figure:
    """Figure 4: bars by user model."""
    figure, (axes,) = panels_of(6.4, 3.6)
    users = _users(rows)
    labels = [label for label in DEPENDENCE if any(row.method == label for row in rows)]
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        mine = {row.user: row for row in rows if row.method == label}
        known = [user for user in users if user in mine]
        x = [users.index(user) + width * (place - (len(labels) - 1) / 2) for user in known]
        axes.bar(
            x,
            [mine[user].mean for user in known],
            width=0.92 * width,
            yerr=[mine[user].se or np.nan for user in known],
            color=LOOKS[label].colour,
            alpha=1.0 if not label.endswith("-") else 0.45,
            hatch=HATCHES[place % len(HATCHES)],
            edgecolor="#ffffff",
            error_kw={"ecolor": INK, "capsize": 2, "lw": 1},
            label=CANDIDATES[label].title + draws_of(mine.values(), rows),
        )
    axes.set_xticks(range(len(users)), [user.upper() for user in users])
    axes.set_ylabel("Delta-CI")
    axes.grid(visible=False, axis="x")
    _legend(figure)
    return figure


@styled
def claimed(rows: Sequence[Row]) -> Figure:
    """Each claimed difference by user model, with Student's interval over draws."""
    rows = [row for row in rows if row.table == "claims" and row.measure == LEADING]
    users = _users(rows)
    pairs = [" - ".join(pair) for pair in CLAIMS if any(row.method == " - ".join(pair) for row in rows)]
    figure, (axes,) = panels_of(7.4, 1.0 + 0.24 * len(pairs) * max(len(users), 2))
    axes.axvline(0, color=INK, linewidth=1)
    step = 0.8 / max(len(users), 1)
    for shift, user in enumerate(users):
        look = Look(*USER_LOOKS[user])
        mine = {row.method: row for row in rows if row.user == user}
        known = [pair for pair in pairs if pair in mine]
        y = [pairs.index(pair) + step * (shift - (len(users) - 1) / 2) for pair in known]
        means = np.array([mine[pair].mean for pair in known])
        ends = [(mine[pair].low, mine[pair].high) for pair in known]
        low = np.array([mean if end[0] is None else end[0] for mean, end in zip(means, ends, strict=True)])
        high = np.array([mean if end[1] is None else end[1] for mean, end in zip(means, ends, strict=True)])
        axes.errorbar(
            means,
            y,
            xerr=[means - low, high - means],
            color=look.colour,
            marker=look.marker,
            ms=5,
            lw=0,
            elinewidth=1.4,
            capsize=2,
            label=user.upper(),
        )
    axes.set_yticks(range(len(pairs)), [_pair(pair) for pair in pairs], fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlabel(f"difference in {LEADING}")
    reach = REACH * max(abs(row.mean) for row in rows)
    left, right = axes.get_xlim()
    axes.set_xlim(max(left, -reach), min(right, reach))
    axes.xaxis.set_major_formatter("{x:+.3f}")
    _legend(figure)
    return figure


def _pair(pair: str) -> str:
    return " -\n".join(CANDIDATES[label].title for label in pair.split(" - "))


@styled
def plateaus(results: Results, ranker: str) -> Figure | None:
    """Validation over training of the claimed methods, a panel a user model."""
    from matplotlib.ticker import MaxNLocator

    labels = [label for label in LOOKS if label in CANDIDATES and CANDIDATES[label].claimed]
    known = results.usual
    users = [user for user in results.plan.size.users if any((one.user, one.ranker) == (user, ranker) for one in known)]
    if not users:
        return None
    figure, panels = _grid(users, height=3.6)
    for axes, user in zip(panels, users, strict=True):
        for label in labels:
            one = case(label, ranker, user)
            several = results.results(one) if one in known else []
            if not several or not all(result["curve"] for result in several):
                continue
            curve = np.mean([result["curve"] for result in several], axis=0)
            epochs = np.array(several[0]["epochs"], dtype=np.float64)
            look, title = LOOKS[label], CANDIDATES[label].title if axes is panels[0] else None
            axes.plot(
                epochs, curve, color=look.colour, linestyle=look.line, marker=look.marker, ms=3.5, lw=1.4, label=title
            )
        axes.set_title(user.upper(), fontsize=10)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not any(axes.lines for axes in panels):
        return None
    panels[0].set_ylabel(f"validation {LEADING}")
    _legend(figure)
    return figure
