"""The figures: estimates by bucket, the examination model, the A/B tests, what exploration costs and buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clickprism.evaluation.plots import COLOURS, GRID, INK, MARKERS, styled
from reproduce.adr.config import CANDIDATES, LEADING, ONLINE
from reproduce.adr.online import TRAFFIC
from reproduce.adr.rows import LOST, Results, Row, titled
from reproduce.adr.worlds import BUCKETS
from reproduce.common.figures import panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAMILY_COLOURS = {
    "engine": GRID,
    "estimator": COLOURS[0],
    "approximation": COLOURS[6],
    "competitor": COLOURS[1],
    "mixture": COLOURS[2],
    "bound": COLOURS[3],
}
FAMILY_NAMES = {
    "engine": "production ranker",
    "estimator": "offline estimators",
    "approximation": "approximations",
    "competitor": "competitors, text or features",
    "mixture": "mixtures with clicks",
    "bound": "bounds, with the truth",
}


def figures_of(results: Results, rows: Sequence[Row]) -> dict[str, tuple[str, Figure]]:
    """Caption and figure by file name, of all that there are rows for."""
    what = f"{results.plan.data} data"
    drawn: dict[str, tuple[str, Figure]] = {}
    makers: tuple[tuple[str, str, Callable[[Results, Sequence[Row]], Figure | None]], ...] = (
        ("buckets", f"{LEADING} of every method by how often a query is asked", buckets),
        ("figure_4", "Figure 4: the estimated examination by position, and below a click", examined),
        ("table_3", "Table 3: the A/B tests as they went on, with ends that hold at all times", sequences),
        ("costs", "What exploration costs and what it buys", explored),
    )
    for name, caption, draw in makers:
        if (figure := draw(results, rows)) is not None:
            drawn[name] = f"{caption} ({what})", figure
    return drawn


@styled
def buckets(_: Results, rows: Sequence[Row]) -> Figure | None:
    """A dot a method and bucket."""
    found = {(row.method, row.bucket): row for row in rows if row.table == "methods" and row.measure == LEADING}
    methods = [name for name in CANDIDATES if (name, "head") in found]
    if not methods:
        return None
    figure, panels = panels_of(10.4, 0.27 * len(methods) + 1.2, 1, 3)
    places = np.arange(len(methods))[::-1]
    for axes, bucket in zip(panels, BUCKETS, strict=True):
        for place, method in zip(places, methods, strict=True):
            row, family = found[method, bucket], CANDIDATES[method].family
            colour = FAMILY_COLOURS[family]
            axes.errorbar(row.mean, place, xerr=row.se or 0.0, fmt="o", color=colour, ms=5, elinewidth=1.4)
        axes.set_title(bucket)
        axes.set_yticks(places, [titled(method) for method in methods] if bucket == "head" else [])
        axes.set_xlabel(LEADING)
    handles = [panels[0].plot([], [], "o", color=FAMILY_COLOURS[name])[0] for name in FAMILY_COLOURS]
    figure.legend(handles, list(FAMILY_NAMES.values()), loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    return figure


@styled
def examined(_: Results, rows: Sequence[Row]) -> Figure | None:
    """Figure 4 (a) and (b)."""
    first = [row for row in rows if row.table == "figure 4 (a)"]
    second = [row for row in rows if row.table == "figure 4 (b)"]
    if not first:
        return None
    figure, panels = panels_of(8.4, 3.6, 1, 2)
    for method, colour, marker in (("truth", INK, ""), ("estimate", COLOURS[0], "o")):
        _line(panels[0], [row for row in first if row.method == method], method, colour, marker)
    anchors = [name for name in dict.fromkeys(row.method for row in second) if name.startswith("estimate")]
    for place, method in enumerate(anchors):
        mine = [row for row in second if row.method == method]
        _line(panels[1], mine, method.partition(", ")[2], COLOURS[place], MARKERS[place])
        other = [row for row in second if row.method == method.replace("estimate", "truth")]
        _line(panels[1], other, "truth" if method == anchors[-1] else None, INK, "")
    for axes, name in zip(panels, ("(a) all", "(b) below a click"), strict=True):
        axes.set(title=name, xlabel="position", ylabel="examination", ylim=(0, 1.03))
        axes.set_xticks(range(1, 11))
        axes.legend(frameon=False, fontsize=8)
    return figure


def _line(axes: Axes, rows: Sequence[Row], label: str | None, colour: str, marker: str) -> None:
    mine = sorted(rows, key=lambda row: row.at or 0.0)
    x, y = np.array([row.at for row in mine]), np.array([row.mean for row in mine])
    thin = 1.0 if colour == INK else 1.6
    axes.plot(x, y, color=colour, marker=marker, ms=4.5, linewidth=thin, label=label)


@styled
def sequences(results: Results, _: Sequence[Row]) -> Figure | None:
    """The first draw of each A/B test: by judged queries, and by clicks."""
    tests = {method: results.store.found(runs[:1]) for method, runs in results.plan.tests().items()}
    tests = {method: found for method, found in tests.items() if found}
    if not tests:
        return None
    figure, panels = panels_of(9.0, 6.2, 2, 2)
    for line, traffic in enumerate(TRAFFIC):
        for column, (name, unit) in enumerate((("dcg", "judged queries"), ("satisfied", "searches"))):
            axes = panels[2 * line + column]
            for place, (method, found) in enumerate(tests.items()):
                _sequence(axes, found[0][traffic][name], titled(method), COLOURS[(0, 6, 2)[place]])
            axes.axhline(0, color=INK, linewidth=1)
            what = f"{LEADING}" if name == "dcg" else "satisfied clicks"
            axes.set(title=f"{traffic} searches", xlabel=unit, ylabel=f"{what} over base, %", xscale="log")
    handles, labels = panels[0].get_legend_handles_labels()
    against = f"against {titled(ONLINE)}; a dot: decided"
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9, title=against)
    return figure


def _sequence(axes: Axes, test: dict[str, list[float]], label: str, colour: str) -> None:
    scale = 100 / float(np.asarray(test["base"]))
    x, y, low, high = (np.array(test[name], dtype=np.float64) for name in ("at", "means", "lows", "highs"))
    axes.plot(x, y * scale, color=colour, linewidth=1.6, label=label)
    axes.fill_between(x, low * scale, high * scale, color=colour, alpha=0.18, linewidth=0)
    if test["decided"] is not None:
        decided = float(np.asarray(test["decided"]))
        axes.plot([decided], [np.interp(decided, x, y) * scale], "o", color=colour, ms=6)
    ends = np.concatenate([low[len(x) // 3 :], high[len(x) // 3 :], [0.0]]) * scale
    bottom, top = axes.get_ylim() if len(axes.lines) > 2 else (0.0, 0.0)
    axes.set_ylim(min(bottom, 1.1 * float(ends.min())), max(top, 1.1 * float(ends.max())))


@styled
def explored(_: Results, rows: Sequence[Row]) -> Figure | None:
    """Clicks lost, and DCG@4 on tail and head, by the share explored; and what is bought for what it costs."""
    mine = [row for row in rows if row.table.startswith("costs")]
    if not mine:
        return None
    figure, panels = panels_of(10.2, 3.6, 1, 3)
    kinds = [kind for kind in ("uniform", "thompson") if any(row.table.endswith(kind) for row in mine)]
    for place, kind in enumerate(kinds):
        lost = sorted(
            (row for row in mine if row.table.endswith(kind) and row.measure == LOST), key=lambda row: row.at or 0
        )
        x = [100 * (row.at or 0.0) for row in lost]
        panels[0].plot(
            x, [row.mean for row in lost], color=INK, marker=MARKERS[place], linestyle=("-", "--")[place], label=kind
        )
    panels[0].set(title="cost", xlabel="share of searches explored, %", ylabel=LOST)
    for axes, bucket in ((panels[1], "tail"), (panels[2], "head")):
        _gains(axes, [row for row in mine if row.bucket == bucket and row.measure == LEADING], kinds)
        axes.set(title=f"gain, {bucket}", xlabel="share of searches explored, %", ylabel=LEADING)
    panels[0].legend(frameon=False, fontsize=8)
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _gains(axes: Axes, rows: Sequence[Row], kinds: Sequence[str]) -> None:
    for place, method in enumerate(dict.fromkeys(row.method for row in rows)):
        for dashed, kind in enumerate(kinds):
            mine = [row for row in rows if row.method == method and row.table.endswith((kind, "uniform")[row.at == 0])]
            mine = sorted(mine, key=lambda row: row.at or 0.0)
            x, y = np.array([100 * (row.at or 0.0) for row in mine]), np.array([row.mean for row in mine])
            colour, line = COLOURS[(1, 0, 6, 2)[place % 4]], ("-", "--")[dashed]
            axes.plot(
                x, y, color=colour, marker=MARKERS[place], ms=4.5, linestyle=line, label=f"{titled(method)}, {kind}"
            )
            if dashed == 0:
                errors = np.array([row.se or 0.0 for row in mine])
                axes.fill_between(x, y - errors, y + errors, color=colour, alpha=0.15, linewidth=0)
