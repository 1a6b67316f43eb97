"""The figures of the paper, and those that show whether they can be trusted: the plateau, the claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from clickprism.evaluation.plots import INK, styled
from reproduce.common.page import Look, draws_of, panels_of
from reproduce.lbd.config import CANDIDATES, CLAIMS, LEADING, PANELS, TABLE
from reproduce.lbd.rows import Results, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOM = 0.06  # below the lowest point of the methods that set the scale
LINEAR, TICKS = 0.01, (0.005, 0.01, 0.03, 0.1, 0.3)
SCALE = ("click", "lbd", "lbd_paper")


LOOKS = {
    "labels": Look(INK, "", "--"),
    "oracle": Look(INK, "", ":"),
    "click": Look("#d9660a", "s"),
    "dla": Look("#1f7fc4", "o"),
    "dla-default": Look("#1f7fc4", "o", "--"),
    "vectorization": Look("#7a6ff0", "^"),
    "pair_debias": Look("#b8860b", "v"),
    "regression_em": Look("#c767a3", "P"),
    "unlimited": Look("#8c959f", "X", "-."),
    "lbd-lips": Look("#7a6ff0", "D", "-."),
    "lbd-ber": Look("#5b8c1a", "h", "-."),
    "lbd_paper": Look("#0f9d76", "D"),
    "lbd_code": Look("#46b8a0", "d"),
    "lbd": Look("#d64550", "o"),
    "lbd-c1": Look("#d64550", "o", "--"),
    "lbd-0": Look("#d64550", "s", ":"),
    "lbd-curve": Look("#d64550", "v", ":"),
    "hte": Look("#1f7fc4", "^"),
    "hte-oracle": Look("#7a6ff0", "v"),
    "lbd_paper-hte-oracle": Look("#5b8c1a", "P"),
}
RANKERS = {"linear": "linear ranker", "mlp": "MLP ranker"}
COLOURS = ("#1f7fc4", "#0f9d76", "#d64550", "#7a6ff0", "#b8860b", "#8c959f", "#46b8a0")  # of the claims


def figures_of(results: Results, rows: Sequence[Row]) -> dict[str, tuple[str, Figure]]:
    """Caption and figure by file name, of all that there are rows for."""
    drawn: dict[str, tuple[str, Figure]] = {}
    data = results.plan.data
    for ranker in results.plan.size.rankers:
        what = f"{data} data, {RANKERS[ranker]}"
        for part in PANELS:
            mine = [row for row in rows if row.table == part and row.ranker == ranker]
            if mine:
                caption = f"{part.capitalize()}: {LEADING} over the coupling; bands are standard errors ({what})"
                drawn[f"{part.replace(' ', '_')}_{ranker}"] = caption, over_coupling(mine)
        mine = [row for row in rows if row.table == "claims" and row.ranker == ranker]
        if mine:
            caption = f"Differences that are claimed, the control at coupling 0 beside them ({what})"
            drawn[f"claims_{ranker}"] = caption, claimed(mine)
        maps = [row for row in rows if row.table == "figure 4" and row.ranker == ranker]
        if maps:
            caption = f"Figure 4: {LEADING} by lambda and t, darker is better; the best is framed ({what})"
            drawn[f"figure_4_{ranker}"] = caption, heat_maps(maps)
        if (figure := plateaus(results, ranker)) is not None:
            caption = f"Validation {LEADING} over training, means over seeds: who has reached a plateau ({what})"
            drawn[f"plateau_{ranker}"] = caption, figure
    return drawn


@styled
def over_coupling(rows: Sequence[Row]) -> Figure:
    """A panel of Figure 3; lines that fall far below the rest leave at the bottom, and the legend says how far."""
    figure, (axes,) = panels_of(6.6, 4.2)
    labels = list(dict.fromkeys(row.method for row in rows))
    scale = [row.mean for row in rows if row.method in SCALE] or [row.mean for row in rows]
    floor = min(scale) - ROOM
    for label in labels:
        mine = sorted((row for row in rows if row.method == label), key=lambda row: row.coupling)
        x, y = np.array([row.coupling for row in mine]), np.array([row.mean for row in mine])
        look, title = (
            LOOKS[label],
            CANDIDATES[label].title + draws_of(mine, rows),
        )
        lowest = f" (down to {y.min():.2f})" if y.min() < floor else ""
        axes.plot(
            x, y, color=look.colour, marker=look.marker, linestyle=look.line, label=title + lowest, linewidth=1.8, ms=5
        )
        errors = np.array([row.se or 0.0 for row in mine])
        axes.fill_between(x, y - errors, y + errors, color=look.colour, alpha=0.15, linewidth=0)
    top = max(row.mean for row in rows)
    if min(row.mean for row in rows) < floor:
        axes.set_ylim(floor, top + 0.1 * (top - floor))
    axes.set_xticks(sorted({row.coupling for row in rows}))
    axes.set_xlabel("coupling η")
    axes.set_ylabel(LEADING)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


@styled
def claimed(rows: Sequence[Row]) -> Figure:
    """Each claimed difference over the coupling, with its standard error over draws."""
    figure, (axes,) = panels_of(6.6, 3.8)
    axes.axhline(0, color=INK, linewidth=1)
    pairs = [pair for pair in CLAIMS if any(row.method == " - ".join(pair) for row in rows)]
    couplings = sorted({row.coupling for row in rows})
    step = (min(np.diff(couplings)) if len(couplings) > 1 else 0.1) * 0.12
    for place, pair in enumerate(pairs):
        mine = sorted((row for row in rows if row.method == " - ".join(pair)), key=lambda row: row.coupling)
        x = np.array([row.coupling for row in mine]) + step * (place - (len(pairs) - 1) / 2)
        errors = [row.se or 0.0 for row in mine]
        title = " - ".join(CANDIDATES[label].title for label in pair) + draws_of(mine, rows)
        axes.errorbar(
            x,
            [row.mean for row in mine],
            yerr=errors,
            color=COLOURS[CLAIMS.index(pair)],
            marker="o",
            ms=4,
            lw=1.4,
            capsize=2,
            label=title,
        )
    axes.set_xticks(couplings)
    axes.set_xlabel("coupling η")
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=1.0)
    low, high = min(row.mean - (row.se or 0.0) for row in rows), max(row.mean + (row.se or 0.0) for row in rows)
    low, high = min(1.5 * low, -0.6 * LINEAR), max(1.5 * high, 1.5 * LINEAR)
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in (*(-tick for tick in reversed(TICKS)), 0, *TICKS) if low <= tick <= high])
    axes.yaxis.set_major_formatter("{x:+g}")
    axes.minorticks_off()
    axes.set_ylabel(f"difference in {LEADING}\n(logarithmic beyond {LINEAR:g})")
    figure.legend(loc="outside upper left", frameon=False, fontsize=8.5, labelcolor=INK, ncols=2)
    return figure


@styled
def heat_maps(rows: Sequence[Row]) -> Figure:
    """Figure 4 of one ranker: a map a coupling, lambda down, t across."""
    from matplotlib.patches import Rectangle

    couplings = sorted({row.coupling for row in rows})
    penalties = sorted({row.setting[0] for row in rows if row.setting})
    drops = sorted({row.setting[1] for row in rows if row.setting})
    columns = min(4, len(couplings))
    lines = -(-len(couplings) // columns)
    width, height = 1.0 + columns * (0.5 * len(drops) + 0.35), 0.5 + lines * (0.36 * len(penalties) + 0.75)
    figure, panels = panels_of(max(width, 4.0), max(height, 2.4), lines, columns)
    for axes, coupling in zip(panels, couplings, strict=False):
        values = np.full((len(penalties), len(drops)), np.nan)
        for row in rows:
            if row.coupling == coupling and row.setting:
                values[penalties.index(row.setting[0]), drops.index(row.setting[1])] = row.mean
        high, low = np.nanmax(values), np.nanpercentile(values, 25)
        shade = np.clip((values - low) / max(high - low, 1e-9), 0, 1)
        columns_at, lines_at = np.arange(len(drops) + 1), np.arange(len(penalties) + 1)
        axes.pcolormesh(columns_at, lines_at, shade, cmap="Blues", vmin=-0.1, vmax=1.2)
        for (i, j), value in np.ndenumerate(values):
            if not np.isnan(value):
                ink = "#ffffff" if shade[i, j] > 0.6 else "#101010"
                text = f"{value:.3f}".removeprefix("0")
                axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=ink)
        i, j = np.unravel_index(np.nanargmax(values), values.shape)
        axes.add_patch(Rectangle((float(j), float(i)), 1, 1, fill=False, edgecolor="#d64550", linewidth=2))
        axes.set_xticks(np.arange(len(drops)) + 0.5, [f"{drop:g}" for drop in drops], fontsize=8)
        axes.set_yticks(np.arange(len(penalties)) + 0.5, [f"{penalty:g}" for penalty in penalties], fontsize=8)
        axes.grid(visible=False)
        axes.set_title(f"η = {coupling:g}", fontsize=10)
        axes.set_xlabel("t (dropping)")
        axes.set_ylabel("λ (penalty)")
    for axes in panels[len(couplings) :]:
        axes.set_visible(False)
    return figure


@styled
def plateaus(results: Results, ranker: str) -> Figure | None:
    """Validation over training of every candidate, at the lowest, a middle and the highest coupling."""
    couplings = results.plan.couplings
    shown = sorted({couplings[0], couplings[len(couplings) // 2], couplings[-1]}) if couplings else []
    labels = [
        label
        for label in results.plan.labels
        if label in TABLE and any(results.has(label, ranker, one) for one in shown)
    ]
    if not labels:
        return None
    figure, panels = panels_of(3.2 * len(shown) + 1.9, 3.6, 1, len(shown))
    for axes, coupling in zip(panels, shown, strict=True):
        lows = []
        for label in labels:
            if not results.has(label, ranker, coupling):
                continue
            several = results.results(label, ranker, coupling)
            curve = np.mean([result["curve"] for result in several], axis=0)
            epochs = np.array(several[0]["epochs"], dtype=np.float64)
            look = LOOKS[label]
            title = CANDIDATES[label].title if axes is panels[0] else None
            share = 100 * epochs / epochs[-1]
            axes.plot(share, curve, color=look.colour, linestyle=look.line, lw=1.5, label=title)
            lows += [curve[-1]] if label in SCALE else []
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, min(lows, default=low) - ROOM), high)
        axes.set_title(f"η = {coupling:g}", fontsize=10)
        axes.set_xlabel("share of the training, %")
    panels[0].set_ylabel(f"validation {LEADING}")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8, labelcolor=INK)
    return figure
