"""`clickprism evaluate`: saved models, measured on judged lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clickprism.cli.options import Config, Json, Measures, Quiet, Set, settings_of
from clickprism.cli.output import Output
from clickprism.errors import SettingError

if TYPE_CHECKING:
    from clickprism.experiment import ExperimentSettings

EPILOG = (
    "Examples:\n\nclickprism evaluate runs/dla\n\n"
    "clickprism evaluate runs/click runs/dla --measure nDCG@10 --measure MRR --part test\n\n"
    "clickprism evaluate runs/attention --attention attention.png"
)


def command(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Folders that train, compare or demo wrote.")
    ],
    *,
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
    """Measure models on the data they were trained for, or that of --config; compare them with the first."""
    from clickprism.evaluation.tables import as_dict
    from clickprism.experiment import evaluate_models
    from clickprism.experiment.attention import check_picture, draw_attention
    from clickprism.experiment.bundle import model_folder

    folders = [model_folder(path) for path in models]
    if attention is not None:
        check_picture(attention)
    if attention is not None and len(folders) > 1:
        raise SettingError("--attention", str(attention), "go with one model, as it is one picture")
    settings = _settings(folders, config, sets, measures)
    names = [folder.parent.name if folder.name == "model" else folder.name for folder in folders]
    labels = names if len(set(names)) == len(names) else [str(path) for path in models]
    output = Output(json, quiet)
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
    read = [settings_of(file, sets, evaluation__measures=measures) for file in dict.fromkeys(found)]
    if not read:
        return settings_of(config, sets, evaluation__measures=measures)
    if any(settings.data != read[0].data for settings in read):
        raise SettingError("--config", None, "name the data, as the models were trained on different data")
    return read[0]
