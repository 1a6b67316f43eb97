"""`clickprism examine`: train the examination model of a log, say what it is worth, put it in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clickprism.cli_old.options import OUTPUT, SETTINGS, EngineName, Json, Log, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line
from clickprism.log.schedule import day_span

if TYPE_CHECKING:
    from clickprism._util.tables import Table
    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore
    from clickprism.observation.examination import Examination, ExaminationSettings

ATTEMPTS = 3
EPILOG = (
    "Examples:\n\nclickprism examine logs/shop\n\n"
    "clickprism examine logs/shop --days 2026-01-01..2026-01-28 --positive-ms 3000 --out runs/examination.html\n\n"
    "clickprism examine logs/shop --clicks others\n\n"
    "clickprism examine logs/shop --engine 'local[*]'"
)


def command(
    log: Log,
    *,
    days: Annotated[
        str | None, typer.Option("--days", metavar="A..B", help="Learn from the searches of these days only.")
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth", metavar="FOLDER", help="What was truly observed, of a simulated log: compare with that too."
        ),
    ] = None,
    positive_ms: Annotated[
        int | None,
        typer.Option(
            "--positive-ms", metavar="N", help="Longer on the screen: examined (5000).", rich_help_panel=SETTINGS
        ),
    ] = None,
    negative_ms: Annotated[
        int | None,
        typer.Option(
            "--negative-ms", metavar="N", help="Shorter on the screen: not examined (1000).", rich_help_panel=SETTINGS
        ),
    ] = None,
    missing: Annotated[
        Literal["unused", "negative"] | None,
        typer.Option(
            "--missing",
            metavar="unused|negative",
            help="What no display time says: nothing (unused), or that a document was never on the screen.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    clicks: Annotated[
        Literal["all", "others", "none"] | None,
        typer.Option(
            "--clicks",
            metavar="all|others|none",
            help="What the model sees of clicks. all is best for click features; others, without the click on the "
            "document itself, for clickprism estimate --estimator doubly_robust, which all would bias.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            "--held-out", metavar="P", help="The share of the searches to measure on (0.2).", rich_help_panel=SETTINGS
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Of the searches held out.", rich_help_panel=SETTINGS),
    ] = None,
    engine: EngineName = "duckdb",
    memory: Memory = "2GB",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.html", help="A report, with the plots beside it as PNG.", rich_help_panel=OUTPUT
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn from display times how likely each document was examined; say how well, and put the model in force."""
    from clickprism.errors import SettingError

    span, output = day_span(days), Output(json, quiet)
    if out is not None and out.suffix != ".html":
        raise SettingError("--out", str(out), "end in .html")
    from clickprism.log.store import LogStore
    from clickprism.observation.examination import check_display_times

    store = LogStore.open(log, note=output.note)
    asked: dict[str, Any] = {
        "positive_ms": positive_ms,
        "negative_ms": negative_ms,
        "missing": missing,
        "clicks": clicks,
        "held_out": held_out,
        "seed": seed,
    }
    with _options():
        base: ExaminationSettings = store.settings.part("examination")
        settings = replace(base, **{name: value for name, value in asked.items() if value is not None})
    check_display_times(store)
    with _options(), store.write(engine=engine, memory=memory, exclusive=False) as writer:
        found, saved = _train(store, writer.engine, output, settings=settings, days=span, truth=truth)
    output.result(_text(found), found.plain() | {"file": str(saved)})
    output.note(f"In force: {saved}")
    if found.warning is not None:
        output.note(found.warning)
    if out is not None:
        output.note(f"Written: {', '.join(map(str, _report(found, log, out)))}")
    output.note(f"Next: {command_line('windows', log)}")


def _train(store: LogStore, engine: Engine, output: Output, **asked: Any) -> tuple[Examination, Path]:
    """A model of the log as it is when the model comes into force; another if the log changed meanwhile."""
    from clickprism.errors import DataError
    from clickprism.log.sessions import update_sessions
    from clickprism.observation.examination import examine, put_in_force

    for _ in range(ATTEMPTS):
        update_sessions(store, engine)
        found = examine(store, engine, **asked)
        saved = put_in_force(store, found.model)
        if saved is not None:
            return found, saved
        output.note("The sessions changed while the model was trained: training again")
    raise DataError(
        f"changed each of the {ATTEMPTS} times that a model was trained; none is saved",
        file=store.folder,
        remedy="Run it again when nothing else writes to the log",
    )


@contextmanager
def _options() -> Iterator[None]:
    """Errors of settings name the option where there is one."""
    from clickprism.errors import SettingError

    try:
        yield
    except SettingError as error:
        named = {"positive_ms", "negative_ms", "missing", "held_out", "seed", "engine", "memory"}
        if error.field not in named:
            raise
        must = str(error).removeprefix(f"{error.field} must ").removesuffix(f", got {error.value!r}")
        raise SettingError(f"--{error.field.replace('_', '-')}", error.value, must) from None


def _tables(found: Examination) -> list[Table]:
    """What is said on the terminal and in the report alike."""
    from clickprism._util.tables import Table

    counts, settings = found.counts, found.model.settings
    rows = [[name, f"{counts[key]:,}", f"{counts[key] / counts['rows']:.1%}"] for key, name in _kinds(settings)]
    measured = [("labels by display time", found.quality)]
    if found.truth is not None:
        measured.append(("true observation", found.truth.quality))
    quality = [
        [
            name,
            f"{worth.rows:,}",
            f"{worth.positive:.3f}",
            f"{worth.auc:.4f}",
            f"{worth.log_loss:.4f}",
            f"{worth.entropy:.4f}",
            f"{worth.calibration_error:.4f}",
        ]
        for name, worth in measured
    ]
    bins = [
        [f"{one.low:.1f} to {one.high:.1f}", f"{one.rows:,}", f"{one.estimate:.3f}", f"{one.share:.3f}"]
        for one in found.quality.bins
    ]
    importance = [[name.replace("_", " "), f"{share:.1%}"] for name, share in found.importance.items()]
    header = ["held-out searches", "rows", "positive", "AUC", "log loss", "of a constant", "calibration error"]
    return [
        Table("What the display times say", ["rows", "count", "share"], rows),
        Table("How good the estimates are", header, quality),
        Table("Calibration on the labels", ["estimate", "rows", "mean estimate", "share positive"], bins),
        Table("What the splits gain", ["feature", "share"], importance),
        Table("By position", *_positions(found)),
    ]


def _kinds(settings: ExaminationSettings) -> list[tuple[str, str]]:
    return [
        ("rows", "all that count"),
        ("positive", f"positive: over {settings.positive_ms:,} ms"),
        ("negative", f"negative: under {settings.negative_ms:,} ms"),
        ("between", "between, not learned from"),
        ("missing", "without a display time, not learned from"),
    ]


def _positions(found: Examination) -> tuple[list[str], list[list[str]]]:
    labels = {point.position: point.value for point in found.labels}
    true = {} if found.truth is None else {point.position: point.value for point in found.truth.by_position}
    rows = []
    for point in found.by_position:
        row = [str(point.position), f"{point.rows:,}", f"{point.value:.3f}", _share(labels.get(point.position))]
        rows.append(row if found.truth is None else [*row, _share(true.get(point.position))])
    header = ["position", "rows", "mean estimate", "share positive"]
    return header if found.truth is None else [*header, "truly observed"], rows


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _text(found: Examination) -> str:
    return "\n\n".join(columns(list(table.header), [list(row) for row in table.rows]) for table in _tables(found))


def _report(found: Examination, log: Path, out: Path) -> list[Path]:
    """Write the page, and the plots beside it; the paths of all."""
    from clickprism._util.files import make_folder
    from clickprism.evaluation.examination_plots import anchor_curves, calibration_curve, examination_curve
    from clickprism.evaluation.plots import svg
    from clickprism.evaluation.report import write_report
    from clickprism.settings import plain

    make_folder(out.parent)
    plots: dict[str, tuple[str, Any]] = {
        "position": ("Examination by position", examination_curve(found)),
        "anchor": ("Examination below a click", anchor_curves(found)),
        "calibration": ("Calibration on the searches held out", calibration_curve(found)),
    }
    written = [out]
    for name, (_, figure) in plots.items():
        path = out.with_name(f"{out.stem}-{name}.png")
        figure.savefig(path, dpi=150)
        written.append(path)
    days, model = list(found.model.sessions), found.model
    tables, span = _tables(found), days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    truth = "" if found.truth is None else f" Against true observation: AUC {found.truth.quality.auc:.4f}."
    write_report(
        out,
        title="The examination model",
        summary=(
            f"Learned from {found.learned:,} rows of the searches of {span}, merged into "
            f"{found.cells:,} cells. AUC {found.quality.auc:.4f} on the labels of searches held out.{truth}"
        ),
        comparison=tables[:2],
        figures={caption: svg(figure, title=caption) for caption, figure in plots.values()},
        settings={"log": str(log), "fingerprint": model.fingerprint, "examination": plain(model.settings)},
        more={"In detail": tables[2:]},
        notes=[
            "Estimates are calibrated to the labels, which leave out display times between the thresholds.",
            "Below a click: rows whose nearest click above is at that position; the first point is the click itself.",
            *([] if found.warning is None else [f"{found.warning}."]),
        ],
        next_commands=[command_line("windows", log)],
    )
    return written
