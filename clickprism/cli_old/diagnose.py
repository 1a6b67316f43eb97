"""`clickprism diagnose`: which biases a log has, whether relevance can be learned from it, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clickprism.cli_old.observe import settings_named
from clickprism.cli_old.options import OUTPUT, AnySeed, Config, Json, Memory, Quiet, Set, names_from, settings_of
from clickprism.cli_old.output import Output, command_line

if TYPE_CHECKING:
    from clickprism.data.logged import Logged
    from clickprism.diagnosis.finding import Diagnosis

FILE, REPORT = "diagnosis.json", "report.html"
EPILOG = (
    "Examples:\n\nclickprism diagnose logs/shop --out runs/diagnosis\n\n"
    "clickprism diagnose sessions.tsv.gz --day date --only position,trust\n\n"
    "clickprism diagnose clicks.npz --config settings.toml --json"
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
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="NAMES", help="Findings, parted by commas; by default all that there are."),
    ] = None,
    day: Annotated[
        str | None,
        typer.Option("--day", metavar="COLUMN", help="Of sessions: the column of the day; by default day or date."),
    ] = None,
    ranker: Annotated[
        str | None,
        typer.Option("--ranker", metavar="COLUMN", help="Of sessions: that of the ranker; by default ranker."),
    ] = None,
    randomised: Annotated[
        str | None,
        typer.Option(
            "--randomised",
            metavar="COLUMN",
            help="Of sessions: that which is 1 where chance ordered the list; by default randomised.",
        ),
    ] = None,
    on_error: Annotated[
        Literal["raise", "quarantine"],
        typer.Option("--on-error", metavar="raise|quarantine", help="Stop at a broken line, or leave such lines out."),
    ] = "raise",
    seed: AnySeed = 0,
    memory: Memory = "700MB",
    config: Config = None,
    sets: Set = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help=f"The folder for {FILE} and {REPORT} with figures.", rich_help_panel=OUTPUT
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which biases a log has, what it cannot tell, whether relevance can be learned from it, and what to do.

    Of a click log the findings are also kept in its folder, where the page of clickprism serve shows them. A file of
    clickprism simulate has its features only by the settings that made it: --config and --set, or the default ones.
    """
    from datetime import UTC, datetime

    from clickprism._util.files import make_folder, write_file
    from clickprism._util.tables import to_json
    from clickprism.diagnosis.diagnose import check_names
    from clickprism.diagnosis.of_log import diagnose
    from clickprism.diagnosis.report import as_json
    from clickprism.log.logged import read_logged

    output, chosen = Output(json, quiet), names_from(only)
    with settings_named():
        check_names(chosen)
    if out is not None:
        make_folder(out)
    with settings_named(), _progress(output) as say:
        say("reading the log")
        if log.suffix == ".npz":
            logged = _simulated(log, config, sets, output)
        else:
            logged = read_logged(
                log, day=day, ranker=ranker, randomised=randomised, on_error=on_error, memory=memory, note=output.note
            )
        made = diagnose(
            logged, only=chosen, seed=seed, progress=say, as_of=datetime.now(UTC).isoformat(timespec="seconds")
        )
    facts = as_json(made, log=str(log), account=logged.account)
    _show(made, facts, output)
    kept = [folder for folder in (log if log.is_dir() else None, out) if folder is not None]
    for folder in kept if chosen is None else kept[-1:] if out is not None else []:
        write_file(folder / FILE, to_json(facts) + "\n")
    if out is not None:
        _write(made, logged, log, out, seed)
        output.note(f"Written to {out}: {FILE}, {REPORT}")
    else:
        output.note(f"With figures: {command_line('diagnose', log, '--out', 'runs/diagnosis')}")


def _simulated(log: Path, config: Path | None, sets: list[str] | None, output: Output) -> Logged:
    """Clicks with the features of the data they were made on; without, where nobody named it and it is another."""
    from clickprism.errors import DataError
    from clickprism.experiments.stages import load_data
    from clickprism.log.logged import read_logged

    data = load_data(settings_of(config, sets).data)
    try:
        return read_logged(log, lists=data.dataset.train.lists)
    except DataError:
        if config is not None or sets:
            raise
    logged = read_logged(log)
    output.note("The documents are not those of the default settings, so their features are not known: give --config")
    return logged


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is worked on, while it is."""
    if output.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda doing: status.update(f"{doing} ...")


def _show(made: Diagnosis, facts: dict[str, object], output: Output) -> None:
    from clickprism.diagnosis.report import as_rich, as_text

    if output.json or not sys.stdout.isatty():
        output.result(as_text(made), facts)
        return
    from rich.console import Console

    Console(highlight=False).print(as_rich(made))


def _write(made: Diagnosis, logged: Logged, log: Path, out: Path, seed: int) -> None:
    from clickprism.diagnosis.report import write_diagnosis

    following = [command_line("observe", log, "--out", "runs/curves")]
    if logged.has_features:
        following.append(command_line("auto", log, "--out", "runs/auto"))
    write_diagnosis(
        out / REPORT,
        made,
        log=log.name or str(log),
        account=logged.account,
        settings={"log": str(log), "seed": seed, "findings": list(made.findings)},
        next_commands=following,
    )
