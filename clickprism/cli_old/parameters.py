"""`clickprism parameters`: how clicks at each position follow from those in the first slot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clickprism.cli_old.observe import read_any, settings_named
from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.observation.estimate_parameters import EstimatedParameters
    from clickprism.observation.parameters import ClickParameters
    from clickprism.observation.placed import PlacedCounts

EPILOG = (
    "Examples:\n\nclickprism parameters logs/shop --out runs/parameters.json\n\n"
    "clickprism parameters logs/shop --by randomised --depth 5\n\n"
    "clickprism parameters sessions.tsv.gz --by harvest --by em --json"
)


def command(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="The folder of a click log, sessions as TSV or CSV with the columns query, documents, clicks, or a "
            "file of clickprism simulate.",
        ),
    ],
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="NAME",
            help="randomised (first slots filled at random), harvest (documents seen at several positions), em "
            "(maximum likelihood) or all; may be repeated; by default all.",
        ),
    ] = None,
    only_random: Annotated[
        bool,
        typer.Option(
            "--only-random",
            help="With randomised: count nothing but what chance placed, at all positions; for rankings that follow "
            "clicks. Needs whole lists in random order.",
        ),
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option("--depth", metavar="N", help="Positions 1 to N; by default as many as the log supports."),
    ] = None,
    theta: Annotated[
        Literal["auto", "curve", "none"],
        typer.Option(
            "--theta",
            metavar="auto|curve|none",
            help="Examination at each position: the mean of the log's estimates, if it has any (auto), or the curve of "
            "the position-based model with 1 at the first (curve).",
        ),
    ] = "auto",
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", metavar="N", help="Weighted logs for the intervals; 0 for no intervals.")
    ] = 200,
    confidence: Annotated[float, typer.Option("--confidence", metavar="P", help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the bootstrap.")] = 0,
    on_error: Annotated[
        Literal["raise", "quarantine"],
        typer.Option("--on-error", metavar="raise|quarantine", help="Stop at a broken line, or leave such lines out."),
    ] = "raise",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.json",
            help="Write the parameters to use, for other commands.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate how clicks at each position follow from those in the first slot, with intervals; say what is unknown."""
    from clickprism.errors import DataError, SettingError
    from clickprism.observation.bootstrap import Bootstrap
    from clickprism.observation.estimate_parameters import PARAMETER_ESTIMATORS, estimate_all
    from clickprism.settings import choose

    output = Output(json, quiet)
    if out is not None and out.suffix != ".json":
        raise SettingError("--out", str(out), "end in .json")
    names = list(PARAMETER_ESTIMATORS) if not by or "all" in by else list(dict.fromkeys(by))
    with settings_named():
        settings = Bootstrap(resamples=bootstrap, confidence=confidence, seed=seed)
    own: dict[str, dict[str, Any]] = {"randomised": {"only": only_random}}
    estimators = [choose(PARAMETER_ESTIMATORS, {"name": name, **own.get(name, {})}, path="--by") for name in names]
    placed = _placed(log, on_error, output)
    with settings_named():
        placed = _theta(placed if depth is None else placed.cut(depth), theta)
        made = estimate_all(placed, estimators, bootstrap=settings, shallower=depth is None)
    output.result(_text(made, confidence), _facts(made, log))
    best = made.best
    if best is None:
        raise DataError("the log supports none of the estimators", remedy="The reasons stand above")
    for note in best.notes:
        output.note(f"note: {note}")
    if out is None:
        words = command_line("parameters", log, "--out", "parameters.json")
        output.note(f"Next, keep those of {best.source}: {words}")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    best.write(out)
    output.note(f"Written: {out}, by {best.source}")


def _placed(log: Path, on_error: Literal["raise", "quarantine"], output: Output) -> PlacedCounts:
    """What stood where: of a click log by its sessions, of a file by its lines."""
    from clickprism.observation.placed import PlacedCounts

    in_folder = (log / "log.toml").is_file()
    placed = _of_log(log, output) if in_folder else PlacedCounts.of_sessions(read_any(log, on_error))
    counts, chance = placed.counts, placed.randomised
    words = "" if chance is None else f", {chance.impressions.sum():,.0f} of them at places filled at random"
    output.note(f"{counts.impressions.sum():,.0f} impressions{words}; {counts.clicks.sum():,.0f} clicks")
    return placed


def _of_log(log: Path, output: Output) -> PlacedCounts:
    """What stood where in a click log, once its sessions are those of its events."""
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore
    from clickprism.observation.placed import place

    store = LogStore.open(log, note=output.note)
    with store.write() as writer:
        engine = writer.engine
        update_sessions(store, engine)
        return place(store)


def _theta(placed: PlacedCounts, theta: str) -> PlacedCounts:
    from dataclasses import replace

    from clickprism.observation.estimate_parameters import with_curve

    if theta == "curve":
        return with_curve(placed)
    return placed if theta == "auto" else replace(placed, theta=None)


def _text(made: EstimatedParameters, confidence: float) -> str:
    """A line a position, two columns an estimator; below it what each rests on."""
    lines, found = [], list(made.found.values())
    if found:
        lines = [
            "P(click at k) = alpha c_1 + beta, with c_1 the click probability in the first slot"
            + (f"; {confidence:.0%} intervals" if _known(found[0]) else ""),
            "",
        ]
        theta = max(found, key=len).theta
        header = ["position", *(f"{name} {each.source}" for each in found for name in ("alpha", "beta"))]
        rows = [
            [str(place + 1), *(_cell(each, name, place) for each in found for name in ("alpha", "beta"))]
            for place in range(max(map(len, found)))
        ]
        if theta is not None:
            header.append("theta")
            for row, value in zip(rows, theta, strict=True):
                row.append(f"{value:.3f}")
        lines += [columns(header, rows), ""]
    facts = [[each.source, each.notes[1]] for each in found]
    facts += [[name, f"not supported: {reason}"] for name, reason in made.refused.items()]
    lines.append(columns(["estimator", "rests on"], facts))
    for (one, other), places in made.apart.items():
        if len(places):
            named = ", ".join(map(str, places))
            lines.append(f"{one} and {other} disagree beyond their intervals at position {named}")
    return "\n".join(lines)


def _known(made: ClickParameters) -> bool:
    from math import isfinite

    return isfinite(made.alpha_lower[-1])


def _cell(made: ClickParameters, name: str, place: int) -> str:
    if place >= len(made):
        return "-"
    value, low, high = (getattr(made, each)[place] for each in (name, f"{name}_lower", f"{name}_upper"))
    return f"{value:.3f}" if place == 0 or not _known(made) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _facts(made: EstimatedParameters, log: Path) -> dict[str, Any]:
    return {
        "log": str(log),
        "parameters": {name: each.plain() for name, each in made.found.items()},
        "refused": made.refused,
        "best": None if made.best is None else made.best.source,
        "apart": {f"{one}, {other}": places.tolist() for (one, other), places in made.apart.items()},
    }
