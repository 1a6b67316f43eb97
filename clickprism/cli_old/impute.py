"""`clickprism impute`: a model that estimates pairs without clicks of their own, trained and applied."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism.cli_old.options import OUTPUT, SETTINGS, Config, Json, Quiet, Set
from clickprism.cli_old.output import Output, command_line

if TYPE_CHECKING:
    from clickprism.relevance.by_features import FeatureImputationSettings, FittedFeatures
    from clickprism.relevance.imputation import FittedImputation
    from clickprism.relevance.impute import ImputationSettings
    from clickprism.relevance.randomised import FirstSlot
    from clickprism.training.text_settings import TextRecord

EPILOG = (
    "Examples:\n\n"
    "clickprism impute --clicks first.tsv --queries queries.tsv --documents documents.tsv --out runs/imputation\n\n"
    "clickprism impute --clicks logs/shop --queries queries.jsonl --documents documents.jsonl --epochs 1 "
    "--out runs/imputation\n\n"
    "clickprism impute --clicks logs/shop --features features.letor --ranker lambdamart --out runs/imputation\n\n"
    "clickprism impute --apply runs/imputation --pairs pairs.tsv --queries queries.tsv --documents documents.tsv "
    "--out imputed.parquet\n\n"
    "clickprism impute --clicks logs/shop --folds 5 --pairs pairs.tsv --features features.tsv --out imputed.parquet"
)


ENDS = {"epochs": "all steps", "patience": "no better for a while", "interrupted": "interrupted"}


def command(
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The folder for the imputation; with --pairs, the .parquet, .jsonl, .csv or .tsv for its estimates.",
            rich_help_panel=OUTPUT,
        ),
    ],
    queries: Annotated[
        Path | None,
        typer.Option("--queries", metavar="FILE", help="The texts of queries: TSV, CSV, JSON lines or Parquet."),
    ] = None,
    documents: Annotated[
        Path | None, typer.Option("--documents", metavar="FILE", help="The texts of documents, likewise.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features",
            metavar="PATH",
            help="In place of texts, the features of pairs: LETOR lines that end in # docid = ID, a .tsv, .csv, .jsonl "
            "or .parquet of query_id, document_id and numbers, or an ingested log whose impressions carry them.",
        ),
    ] = None,
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
        typer.Option(
            "--pairs", metavar="FILE", help="With --apply or --folds: a table of query_id, document_id to estimate."
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            "--folds",
            metavar="N",
            help="Learn N times, and estimate each query by what others' clicks taught: for estimates from the same "
            "log, whose clicks would else count twice.",
        ),
    ] = 0,
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
    ranker: Annotated[
        str | None,
        typer.Option(
            "--ranker",
            metavar="NAME",
            help="With --features: linear, mlp or lambdamart, or the folder of a trained model to calibrate.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            metavar="N",
            help="At most: the setting fit.epochs. For texts 0, the default, trains no language model: clicks then say "
            "what words and likeness are worth, in seconds.",
            rich_help_panel=SETTINGS,
        ),
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
    """Learn relevance from texts or features by first-slot clicks, or apply it; Ctrl-C keeps the best so far."""
    from clickprism.errors import SettingError
    from clickprism.rankers.language_model import check_installed

    output = Output(json, quiet)
    for wrong, name, value, words in (
        ((clicks is None) == (apply is None), "--clicks", clicks, "be given to learn, or else --apply"),
        (pairs is None and apply is not None, "--pairs", pairs, "be given with --apply"),
        (pairs is None and folds, "--pairs", pairs, "be given with --folds"),
        (pairs is not None and apply is None and not folds, "--pairs", pairs, "be given with --apply or --folds only"),
        (folds and apply is not None, "--folds", folds, "not be given with --apply"),
        (features is None and queries is None, "--queries", queries, "be given, or else --features"),
        (features is None and documents is None, "--documents", documents, "be given with --queries"),
        (features is not None and queries is not None, "--features", features, "not be given with --queries"),
        (features is not None and model is not None, "--model", model, "be given for texts only"),
        (features is None and ranker is not None, "--ranker", ranker, "be given with --features only"),
    ):
        if wrong:
            raise SettingError(name, value if value is None or isinstance(value, int) else str(value), words)
    if features is None:
        check_installed("clickprism impute by texts")
    from clickprism.relevance.impute import FeatureSource, TextSource, apply_imputation, cross_impute, train_imputation

    for log in {path.resolve() for path in (clicks, features) if path is not None and path.is_dir()}:
        _refresh(log, output)
    with _bar(output) as show:
        source: FeatureSource | TextSource
        if features is not None:
            named = None if ranker is None or Path(ranker).is_dir() else ranker
            chosen = _feature_settings(config, sets, ranker=named, epochs=epochs, seed=seed)
            source = FeatureSource(features, ranker=ranker, settings=chosen)
        elif queries is not None and documents is not None:
            settings = _settings(config, sets, model=model, epochs=epochs, seed=seed)
            source = TextSource(queries, documents, settings=settings, note=output.note, show=show)
        if pairs is not None:
            if apply is not None:
                values = apply_imputation(apply, source, pairs, out)
            elif clicks is not None:
                values = cross_impute(clicks, source, pairs, out, folds=folds, seed=seed or 0)
            data: dict[str, Any] = {"pairs": len(values), "mean": float(values.mean()), "file": str(out)}
            output.result(f"{len(values):,} pairs, mean imputation {values.mean():.4f}: {out}", data)
            return
        if clicks is not None:
            slot, done = train_imputation(clicks, source, out)
    _report(output, slot, done, out)
    given = ["--features", features] if features is not None else ["--queries", queries, "--documents", documents]
    again = command_line("impute", "--apply", out, "--pairs", "PAIRS", *given, "--out", "imputed.parquet")
    output.note(f"Next: {again}")


def _refresh(log: Path, output: Output) -> None:
    """Make the sessions of a log those of its events."""
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore

    store = LogStore.open(log, note=output.note)
    with store.write() as writer:
        engine = writer.engine
        update_sessions(store, engine)


def _settings(config: Path | None, sets: list[str] | None, **flags: Any) -> ImputationSettings:
    """The settings of an imputation by texts that config, flags and `--set` make, in this order."""
    from clickprism.relevance.impute import ImputationSettings
    from clickprism.settings import build

    names = {"model": "encoder.model", "epochs": "fit.epochs", "seed": "fit.seed"}
    return build(ImputationSettings, _values(config, sets, names, flags))


def _feature_settings(config: Path | None, sets: list[str] | None, **flags: Any) -> FeatureImputationSettings:
    """Those of an imputation by features, likewise."""
    from dataclasses import replace

    from clickprism.relevance.by_features import FeatureImputationSettings
    from clickprism.settings import build, plain

    values = _values(config, sets, {"ranker": "ranker.name", "epochs": "fit.epochs", "seed": "fit.seed"}, flags)
    usual = FeatureImputationSettings()
    loop = build(type(usual.fit), plain(usual.fit) | values.pop("fit", {}), path="fit")
    return replace(build(FeatureImputationSettings, values), fit=loop)


def _values(
    config: Path | None, sets: list[str] | None, names: dict[str, str], flags: dict[str, Any]
) -> dict[str, Any]:
    from clickprism.settings import override, read_toml

    values = {} if config is None else read_toml(config)
    for name, value in flags.items():
        if value is not None:
            table, key = names[name].split(".")
            values = {**values, table: {**values.get(table, {}), key: value}}
    return override(values, sets or ())


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


def _report(output: Output, slot: FirstSlot, done: FittedImputation | FittedFeatures, out: Path) -> None:
    from dataclasses import asdict

    from clickprism.relevance.by_features import FittedFeatures
    from clickprism.settings import plain

    data: dict[str, Any] = {
        "pairs": len(slot),
        "impressions": int(slot.impressions.sum()),
        "clicks": int(slot.clicks.sum()),
        "imputation": str(out),
    }
    lines = [f"{len(slot):,} pairs, {slot.impressions.sum():,} first-slot impressions, click rate {slot.rate:.3f}"]
    if isinstance(done, FittedFeatures):
        fitted = done.fitted
        data |= {"kind": "features", "left_out": done.left_out, "ranker": done.imputation.model.ranker.name}
        data |= {"best_epoch": fitted and fitted.best_epoch, "stopped": fitted and fitted.stopped}
        if done.left_out:
            lines.append(f"{done.left_out:,} pairs left out, which have no features")
        if fitted is not None:
            lines.append(f"best epoch {fitted.best_epoch} ({ENDS[fitted.stopped]})")
    else:
        text = done.fitted
        data |= {"kind": "text", "encoder": plain(text.network.settings), "residual": text.network.residual}
        data |= {"epoch": None if text.cost is None else asdict(text.cost), "best_step": text.best_step}
        data |= {"stopped": text.stopped, "history": [asdict(record) for record in text.history]}
        if text.cost is not None:
            lines.append(f"best step {text.best_step} ({ENDS[text.stopped]})")
        if not text.network.residual:
            lines.append("by what the texts say without training, on the scale of the clicks")
    if not math.isnan(done.losses["best"]):
        names = {"best": "", "untrained": "untrained ", "constant": "of the click rate alone "}
        told = ", ".join(f"{names[name]}{value:.4f}" for name, value in done.losses.items())
        lines.append(f"loss on queries that had no other part: {told}")
    output.result("\n".join([*lines, f"imputation: {out}"]), data | {"loss": done.losses})
    if done.losses["best"] >= done.losses["constant"]:
        output.note("warning: there it is no better than the click rate alone: fill more first slots at random")
    if data["stopped"] == "interrupted":
        from clickprism.cli_old.app import INTERRUPTED

        output.note("Interrupted; the best so far is kept")
        raise typer.Exit(INTERRUPTED)
