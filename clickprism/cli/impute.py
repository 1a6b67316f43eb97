"""`clickprism impute`: a language model that estimates pairs without clicks of their own, trained and applied."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism.cli.options import OUTPUT, SETTINGS, Config, Json, Quiet, Set
from clickprism.cli.output import Output, command_line

if TYPE_CHECKING:
    from clickprism.relevance.imputation import FittedImputation
    from clickprism.relevance.impute import ImputationSettings
    from clickprism.relevance.randomised import FirstSlot
    from clickprism.training.text_settings import TextRecord

EPILOG = (
    "Examples:\n\n"
    "clickprism impute --clicks first.tsv --queries queries.tsv --documents documents.tsv --out runs/imputation\n\n"
    "clickprism impute --clicks logs/shop --queries queries.jsonl --documents documents.jsonl --out runs/imputation\n\n"
    "clickprism impute --apply runs/imputation --pairs pairs.tsv --queries queries.tsv --documents documents.tsv "
    "--out imputed.parquet"
)


def command(
    *,
    queries: Annotated[
        Path, typer.Option("--queries", metavar="FILE", help="The texts of queries: TSV, CSV, JSON lines or Parquet.")
    ],
    documents: Annotated[Path, typer.Option("--documents", metavar="FILE", help="The texts of documents, likewise.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The folder for the imputation; with --apply, the file.parquet or file.jsonl for its estimates.",
            rich_help_panel=OUTPUT,
        ),
    ],
    clicks: Annotated[
        Path | None,
        typer.Option(
            "--clicks",
            metavar="PATH",
            help="To learn from: a table of query_id, document_id, clicks, impressions in a randomised first slot, "
            "or an ingested log whose searches mark them.",
        ),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option("--apply", metavar="DIR", help="Do not learn: estimate pairs by the imputation in this folder."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option("--pairs", metavar="FILE", help="With --apply: a table of query_id, document_id to estimate."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The language model: a folder, a name on the Hugging Face hub, or minilm, which needs no network: the "
            "setting encoder.model.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", metavar="N", help="At most: the setting fit.epochs.", rich_help_panel=SETTINGS),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, metavar="N", help="Of everything random: the setting fit.seed.", rich_help_panel=SETTINGS
        ),
    ] = None,
    config: Config = None,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a language model on first-slot clicks, or apply it; Ctrl-C keeps the best so far."""
    from clickprism.errors import SettingError
    from clickprism.rankers.language_model import check_installed

    check_installed("clickprism impute")
    from clickprism.relevance.impute import apply_imputation, train_imputation

    output = Output(json, quiet)
    if (clicks is None) == (apply is None):
        raise SettingError("--clicks", None if clicks is None else str(clicks), "be given to learn, or else --apply")
    if apply is not None:
        if pairs is None:
            raise SettingError("--pairs", None, "be given with --apply")
        values = apply_imputation(apply, pairs, queries, documents, out)
        data: dict[str, Any] = {"pairs": len(values), "mean": float(values.mean()), "file": str(out)}
        output.result(f"{len(values):,} pairs, mean imputation {values.mean():.4f}: {out}", data)
        return
    if pairs is not None or clicks is None:
        raise SettingError("--pairs", str(pairs), "be given with --apply only")
    settings = _settings(config, sets, model=model, epochs=epochs, seed=seed)
    with _bar(output) as show:
        slot, done = train_imputation(clicks, queries, documents, out, settings=settings, note=output.note, show=show)
    output.result(_text(slot, done, out), _plain(slot, done, out))
    if done.fitted.stopped == "interrupted":
        from clickprism.cli.app import INTERRUPTED

        output.note("Interrupted; the best so far is kept")
        raise typer.Exit(INTERRUPTED)
    words = ["impute", "--apply", out, "--pairs", "PAIRS", "--queries", queries, "--documents", documents]
    output.note(f"Next: {command_line(*words, '--out', 'imputed.parquet')}")


def _settings(config: Path | None, sets: list[str] | None, **flags: Any) -> ImputationSettings:
    """The settings that config, flags and `--set` make, in this order."""
    from clickprism.relevance.impute import ImputationSettings
    from clickprism.settings import build, override, read_toml

    values = {} if config is None else read_toml(config)
    names = {"model": "encoder.model", "epochs": "fit.epochs", "seed": "fit.seed"}
    for name, value in flags.items():
        if value is not None:
            table, key = names[name].split(".")
            values = {**values, table: {**values.get(table, {}), key: value}}
    return build(ImputationSettings, override(values, sets or ()))


@contextmanager
def _bar(output: Output) -> Iterator[Callable[[int, int, TextRecord | None], None]]:
    """Show the steps: a bar on a terminal, else a line a validation."""

    def line(_step: int, steps: int, record: TextRecord | None) -> None:
        if record is not None:
            output.note(f"step {record.step} of {steps}: {_words(record)}")

    if output.quiet or not sys.stderr.isatty():
        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[words]}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("steps", total=None, words="")

        def update(step: int, steps: int, record: TextRecord | None) -> None:
            progress.update(task, total=steps, completed=step)
            if record is not None:
                progress.update(task, words=_words(record))

        yield update


def _words(record: TextRecord) -> str:
    held_out = "" if record.held_out is None else f"  held-out {record.held_out:.4f}"
    return f"loss {record.loss:.4f}{held_out}  {record.pairs_per_second:,.0f} pairs/s"


def _plain(slot: FirstSlot, done: FittedImputation, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from clickprism.settings import plain

    fitted = done.fitted
    return {
        "pairs": len(slot),
        "impressions": int(slot.impressions.sum()),
        "clicks": int(slot.clicks.sum()),
        "encoder": plain(fitted.network.settings),
        "epoch": None if fitted.cost is None else asdict(fitted.cost),
        "loss": {"constant": fitted.constant, "untrained": fitted.untrained, "best": fitted.best},
        "best_step": fitted.best_step,
        "stopped": fitted.stopped,
        "history": [asdict(record) for record in fitted.history],
        "imputation": str(out),
    }


def _text(slot: FirstSlot, done: FittedImputation, out: Path) -> str:
    fitted = done.fitted
    ends = {"epochs": "all steps", "patience": "no better for a while", "interrupted": "interrupted"}
    lines = [
        f"{len(slot):,} pairs, {slot.impressions.sum():,} first-slot impressions, click rate {slot.rate:.3f}",
        f"best step {fitted.best_step} ({ends[fitted.stopped]})",
    ]
    if fitted.cost is None:
        lines.pop()
    if not fitted.network.residual:
        lines.append("by what the texts say without training, on the scale of the clicks")
    if not math.isnan(fitted.best):
        lines.append(
            f"loss on queries that had no other part: {fitted.best:.4f}; untrained {fitted.untrained:.4f}, "
            f"of the click rate alone {fitted.constant:.4f}"
        )
    return "\n".join([*lines, f"imputation: {out}"])
