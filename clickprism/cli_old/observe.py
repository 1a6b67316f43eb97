"""`clickprism observe`: position curves of a click log, by every estimator that the log supports."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clickprism.cli_old.options import OUTPUT, Json, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.data.sessions import SessionLog
    from clickprism.observation.contexts import Observed
    from clickprism.observation.estimate import Curves, Progress

OPTIONS = {"resamples": "--bootstrap"}  # of settings whose option has another name
MOST = 10  # values of --by that are named as left out
EPILOG = (
    "Examples:\n\nclickprism observe sessions.tsv.gz --out runs/curves\n\n"
    "clickprism observe clicks.npz --method allpairs --method pbm --bootstrap 500\n\n"
    "clickprism observe sessions.tsv.gz --where randomised=1 --method randomised --by device"
)


def command(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="Sessions as TSV or CSV with the columns query, documents, clicks, a file of clickprism simulate, or "
            "the folder of a click log.",
        ),
    ],
    *,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="randomised, allpairs, pbm, ubm, adjacent, pivot or click-through; may be repeated; by default all.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="COLUMN=VALUE", help="Only sessions with this value; may be repeated."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="Also the curves for each value of a column, or query-frequency."),
    ] = None,
    least_sessions: Annotated[
        int, typer.Option("--least-sessions", metavar="N", help="Leave out values of --by with fewer sessions.")
    ] = 1000,
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", help="Look at positions 1 to N only; by default at all.")
    ] = None,
    pivot: Annotated[
        int, typer.Option("--pivot", metavar="K", help="The position that the estimator pivot compares with.")
    ] = 1,
    weights: Annotated[
        Literal["matched", "equal"],
        typer.Option(
            "--weights",
            metavar="matched|equal",
            help="Of documents seen at two positions: by their impressions at both, or as published, all alike.",
        ),
    ] = "matched",
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", metavar="N", help="Weighted logs for the intervals; 0 for no intervals.")
    ] = 200,
    confidence: Annotated[float, typer.Option("--confidence", metavar="P", help="Of the intervals.")] = 0.95,
    unit: Annotated[
        Literal["auto", "query", "list", "session"],
        typer.Option(
            "--unit",
            metavar="auto|query|list|session",
            help="What the bootstrap draws; auto is query, or session where there are few queries.",
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the bootstrap.")] = 0,
    on_error: Annotated[
        Literal["raise", "quarantine"],
        typer.Option("--on-error", metavar="raise|quarantine", help="Stop at a broken line, or leave such lines out."),
    ] = "raise",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="The folder for curves.json and the plots (SVG, PNG).", rich_help_panel=OUTPUT
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate how much is seen at each position, with intervals; say which estimators the log cannot support."""
    from clickprism._util.files import make_folder
    from clickprism._util.tables import to_json
    from clickprism.errors import DataError
    from clickprism.observation import contexts
    from clickprism.observation.bootstrap import Bootstrap

    with settings_named():
        settings = Bootstrap(resamples=bootstrap, confidence=confidence, unit=unit, seed=seed)
        estimators = _estimators(method, {"pivot": pivot, "weights": weights})
    if out is not None:
        make_folder(out)
    output = Output(json, quiet)
    with settings_named():
        chosen = contexts.where(read_any(log, on_error), where or [])
    _account(chosen, output)
    with settings_named(), _bar(output) as progress:
        observed = contexts.observe(
            chosen,
            estimators,
            bootstrap=settings,
            depth=depth,
            by=by,
            least_sessions=least_sessions,
            progress=progress,
        )
    facts = _facts(observed, log=log, by=by, where=where, settings=settings)
    output.result(_words(observed, by=by, least=least_sessions, confidence=settings.confidence), facts)
    if out is not None:
        (out / "curves.json").write_text(to_json(facts) + "\n", encoding="utf-8")
        output.note(f"Written to {out}: curves.json, {', '.join(_draw(observed, out))}")
    if not observed.whole.curves:
        raise DataError("the log supports none of the estimators", remedy="The reasons stand above")
    _next(observed, log, by, output)


@contextmanager
def settings_named() -> Iterator[None]:
    """Errors of settings name the option, not the field."""
    from clickprism.errors import SettingError

    try:
        yield
    except SettingError as error:
        if error.field.startswith("--"):
            raise
        option = OPTIONS.get(error.field, f"--{error.field.replace('_', '-')}")
        must = str(error).removeprefix(f"{error.field} must ").removesuffix(f", got {error.value!r}")
        raise SettingError(option, error.value, must) from None


@contextmanager
def _bar(output: Output) -> Iterator[Progress | None]:
    """A bar on a terminal for the draws of estimators that take long."""
    if output.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("curves", total=None)
        yield lambda name, done, draws: bar.update(task, description=f"draws of {name}", completed=done, total=draws)


def read_any(log: Path, on_error: Literal["raise", "quarantine"]) -> SessionLog:
    """A file of sessions, or the sessions of a click log as they are now."""
    from clickprism.data.sessions import read_log

    if not (log / "log.toml").is_file():
        return read_log(log, on_error=on_error)
    from clickprism.log.lists import session_log
    from clickprism.log.store import LogStore

    return session_log(LogStore.open(log))


def _estimators(names: list[str] | None, values: dict[str, Any]) -> list[Any]:
    from dataclasses import fields

    from clickprism.observation.estimate import ESTIMATORS
    from clickprism.settings import resolve

    classes = [resolve(ESTIMATORS, name, path="--method") for name in dict.fromkeys(names or ESTIMATORS)]
    return [cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values}) for cls in classes]


def _account(log: SessionLog, output: Output) -> None:
    import numpy as np

    clicks = log.clicks
    asked = len(np.unique(clicks.lists.list_of[clicks.rows]))
    output.note(
        f"{clicks.sessions:,} sessions, {asked:,} queries, {int(clicks.clicks.sum()):,} clicks"
        + (f"; {log.outside:,} clicks outside the lists left out" if log.outside else "")
        + (f"; {len(log.quarantined):,} broken lines left out" if log.quarantined else "")
    )
    for line in log.quarantined[:3]:
        output.note(f"  {line.file}:{line.line}: {line.reason}")


def _words(observed: Observed, *, by: str | None, least: int, confidence: float) -> str:
    parts = [f"all: {_curves_text(observed.whole, confidence)}"]
    known = observed.whole.refused
    parts += [f"{by} = {value}: {_curves_text(curves, confidence, known)}" for value, curves in observed.parts.items()]
    left_out = list(observed.left_out.items())
    parts += [f"{by} = {value}: only {count:,} sessions, left out" for value, count in left_out[:MOST]]
    if len(left_out) > MOST:
        parts.append(f"and {len(left_out) - MOST:,} more values with fewer than {least:,} sessions, left out")
    return "\n\n".join(parts)


def _curves_text(curves: Curves, confidence: float, known: dict[str, str] | None = None) -> str:
    """The table of one log: a line a position, a column an estimator; below it what each rests on.

    Reasons that are `known` from above are not repeated.
    """
    from clickprism.observation.curve import relative_error

    found = list(curves.curves.values())
    lines = [f"{curves.sessions:,} sessions"]
    units = {curve.unit for curve in found} - {""}
    if units:
        lines[0] += f"; {confidence:.0%} intervals, drawn by {units.pop()}"
    if found:
        depth = max(map(len, found))
        rows = [[str(place + 1), *(_cell(curve, place) for curve in found)] for place in range(depth)]
        header = ["position", *(curve.name for curve in found)]
        if curves.truth is not None:
            header.insert(1, "truth")
            for place, row in enumerate(rows):
                row.insert(1, f"{curves.truth[place]:.3f}" if place < len(curves.truth) else "-")
        lines += ["", columns(header, rows)]
    facts = []
    for curve in found:
        error = "" if curves.truth is None else f"{relative_error(curve.values, curves.truth):.1%} off the truth; "
        rests = f"{curve.support.documents:,} documents, {curve.support.clicks.sum():,.0f} clicks"
        facts.append([curve.name, f"{error}{rests}; {curve.support.note}"])
    for name, reason in curves.refused.items():
        facts.append([name, f"not supported: {'as above' if (known or {}).get(name) == reason else reason}"])
    return "\n".join([*lines, "", columns(["estimator", "rests on"], facts)])


def _cell(curve: Any, place: int) -> str:
    if place == 0 or curve.lower[place] != curve.lower[place]:
        return f"{curve.values[place]:.3f}"
    return f"{curve.values[place]:.3f} [{curve.lower[place]:.3f}, {curve.upper[place]:.3f}]"


def _facts(observed: Observed, *, log: Path, by: str | None, where: list[str] | None, settings: Any) -> dict[str, Any]:
    from clickprism.settings import plain

    return {
        "log": str(log),
        "where": where or [],
        "by": by,
        "bootstrap": plain(settings),
        **_plain(observed.whole),
        "parts": {value: _plain(curves) for value, curves in observed.parts.items()},
        "left_out": observed.left_out,
    }


def _plain(curves: Curves) -> dict[str, Any]:
    from clickprism.observation.curve import relative_error

    truth = curves.truth
    made = {name: curve.plain() for name, curve in curves.curves.items()}
    if truth is not None:
        for name, curve in curves.curves.items():
            made[name]["error"] = relative_error(curve.values, truth)
    return {
        "sessions": curves.sessions,
        "truth": None if truth is None else truth.tolist(),
        "curves": made,
        "refused": curves.refused,
        "best": None if curves.best is None else curves.best.name,
    }


def _draw(observed: Observed, out: Path) -> list[str]:
    """One plot of all estimators, and one of the best estimator in every part; the names of the files."""
    from clickprism.evaluation.plots import observation_intervals, svg

    whole = observed.whole
    plots = {"curves": (whole.truth, whole.curves)}
    parts = {value: curves.best for value, curves in observed.parts.items()}
    best = {value: curve for value, curve in parts.items() if curve is not None}
    if best:
        plots["parts"] = (None, best)
    names = []
    for name, (truth, curves) in plots.items():
        if not curves:
            continue
        estimates = {key: curve.values for key, curve in curves.items()}
        intervals = {key: (curve.lower, curve.upper) for key, curve in curves.items() if curve.unit}
        figure = observation_intervals(truth, estimates, intervals=intervals)
        title = f"Observation by position, by {', '.join(curves)}"
        (out / f"{name}.svg").write_text(svg(figure, title=title), encoding="utf-8")
        figure.savefig(out / f"{name}.png", dpi=150)
        names += [f"{name}.svg", f"{name}.png"]
    return names


def _next(observed: Observed, log: Path, by: str | None, output: Output) -> None:
    """What to do with the curve; a session file has no features, so there is nothing to train on."""
    best = observed.whole.best
    if best is None:
        return
    setting = f"methods.ipw.propensities=[{','.join(f'{value:.4g}' for value in best.values)}]"
    if log.suffix == ".npz":
        words = command_line("train", "--clicks", log, "--method", "ipw", "--set", setting, "--out", "runs/ipw")
        output.note(f"Next, with the curve of {best.name}: {words}")
    else:
        output.note(f"The curve of {best.name} as a setting, for training, which needs features: {setting}")
    if observed.differ is not None:
        high, low, position = observed.differ
        one, other = (observed.parts[value].curves[best.name].values[position - 1] for value in (high, low))
        output.note(
            f"But the curves of {by} = {high} and {by} = {low} differ beyond their intervals, most at position "
            f"{position} ({one:.3f} and {other:.3f}): one curve for all may fit neither"
        )
