"""`clickprism evaluate`: saved models, measured on judged lists, or valued from a log without any judgement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clickprism.cli_old.options import Config, Json, Measures, Memory, Quiet, Set, settings_of
from clickprism.cli_old.output import Output
from clickprism.errors import SettingError

if TYPE_CHECKING:
    from clickprism.experiments import ExperimentSettings

EPILOG = (
    "Examples:\n\nclickprism evaluate runs/dla\n\n"
    "clickprism evaluate runs/click runs/dla --measure nDCG@10 --measure MRR --part test\n\n"
    "clickprism evaluate runs/attention --attention attention.png\n\n"
    "clickprism evaluate runs/dla --log logs/shop\n\n"
    "clickprism evaluate --log sessions.tsv.gz --scores scores.csv --depth 5 --measure dcg"
)
LOG = "From a log"


def command(
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL...", help="Folders that train, compare or demo wrote; with --log also those of bundle."
        ),
    ] = None,
    *,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="LOG",
            help="Say what each ranker would earn, from this log alone: the folder of a click log, sessions as TSV or "
            "CSV, or a file of clickprism simulate.",
            rich_help_panel=LOG,
        ),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            "--scores",
            metavar="FILE",
            help="A ranker as query, document, score (.csv, .tsv, .jsonl, .parquet); may be repeated.",
            rich_help_panel=LOG,
        ),
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            metavar="NAME",
            help="ips, snips, reward-interaction, cascade-dr, item-position, item-position-dr or position-based; may "
            "be repeated; by default all.",
            rich_help_panel=LOG,
        ),
    ] = None,
    depth: Annotated[int, typer.Option("--depth", metavar="N", help="Positions that count.", rich_help_panel=LOG)] = 10,
    unit: Annotated[
        Literal["query", "search"],
        typer.Option(
            "--unit",
            metavar="query|search",
            help="Intervals for other queries like these, or for other searches of the same ones, which are narrower.",
            rich_help_panel=LOG,
        ),
    ] = "query",
    clip: Annotated[
        float, typer.Option("--clip", metavar="W", help="The largest weight of a search.", rich_help_panel=LOG)
    ] = 1000.0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Of the draws of the curve.", rich_help_panel=LOG)
    ] = 0,
    memory: Memory = "700MB",
    part: Annotated[
        Literal["train", "validation", "test"],
        typer.Option("--part", metavar="train|validation|test", help="Which part of the data."),
    ] = "test",
    measures: Measures = None,
    attention: Annotated[
        Path | None,
        typer.Option(
            "--attention",
            metavar="FILE",
            help="A heat map of which features look at which, of one attention ranker: .png, .svg or .pdf.",
        ),
    ] = None,
    config: Config = None,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure models on the data they were trained for, or that of --config; compare them with the first.

    With --log no judgement is needed: it says how many clicks a search each ranker would earn (--measure clicks, or
    dcg) against what the log earned, and refuses where the log never showed what the ranker would. A file of
    clickprism simulate has its features by the settings that made it: --config and --set.
    """
    if scores or estimator:
        raise SettingError("--log", None, "be given where --scores or --estimator is")
    if not models:
        raise SettingError("MODEL", None, "be given, one or more")
    _measure(models, part, measures, attention, config=config, sets=sets, output=Output(json, quiet))


def _measure(
    models: list[Path],
    part: Literal["train", "validation", "test"],
    measures: list[str] | None,
    attention: Path | None,
    *,
    config: Path | None,
    sets: list[str] | None,
    output: Output,
) -> None:
    """On judged lists."""
    from clickprism.evaluation.tables import as_dict
    from clickprism.experiments import evaluate_models
    from clickprism.experiments.attention import check_picture, draw_attention
    from clickprism.experiments.bundle import model_folder

    folders = [model_folder(path) for path in models]
    if attention is not None:
        check_picture(attention)
    if attention is not None and len(folders) > 1:
        raise SettingError("--attention", str(attention), "go with one model, as it is one picture")
    settings = _settings(folders, config, sets, measures)
    names = [folder.parent.name if folder.name == "model" else folder.name for folder in folders]
    labels = names if len(set(names)) == len(names) else [str(path) for path in models]
    if attention is not None:
        draw_attention(settings, folders[0], attention, part=part)
        output.note(f"attention: {attention}")
    comparison = evaluate_models(settings, dict(zip(labels, folders, strict=True)), part=part, seeds=_seeds(folders))
    output.comparison(comparison, as_dict(comparison))


def _seeds(folders: list[Path]) -> list[int]:
    """The seeds of the models, where each has settings of its own with one seed, as `train` writes them."""
    files = [(folder.parent if folder.name == "model" else folder) / "settings.toml" for folder in folders]
    seeds = [settings_of(file, None).seeds for file in files if file.is_file()]
    told = len(seeds) == len(folders) and all(len(several) == 1 for several in seeds)
    return sorted({several[0] for several in seeds}) if told else []


def _settings(
    folders: list[Path], config: Path | None, sets: list[str] | None, measures: list[str] | None
) -> ExperimentSettings:
    """The settings of `--config`, or those found beside the models, which must then agree on the data."""
    places = [] if config is not None else [place for folder in folders for place in folder.parents[:2]]
    found = [file for place in places if (file := place / "settings.toml").is_file()]
    files: list[Path | None] = [*dict.fromkeys(found)] or [config]
    read: list[ExperimentSettings] = [settings_of(file, sets, evaluation__measures=measures) for file in files]
    if any(settings.data != read[0].data for settings in read):
        raise SettingError("--config", None, "name the data, as the models were trained on different data")
    return read[0]
