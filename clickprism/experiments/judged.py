"""Saved models, measured on judged lists, and what an attention ranker attends to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.compare import Comparison
from clickprism.evaluation.measures import Measure
from clickprism.experiments.bundle import model_folder
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.experiments.stages import Part, evaluate_models, load_named
from clickprism.model import Model
from clickprism.settings import build, read_toml
from clickprism.types import JudgedLists

PICTURES: Final = (".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class JudgedSettings:
    """On what models are measured, and by what.

    Attributes:
        measure: Measure, such as nDCG@10, MRR or ERR@10; may be repeated. By default those that the first model was
            trained with.
        part: Part of the data to measure on.
        data: Judged lists to measure on. By default those that the models were trained for.
    """

    measure: tuple[str, ...] = ()
    part: Part = "test"
    data: DataSettings | None = None

    def __post_init__(self) -> None:
        for name in self.measure:
            Measure.parse(name)


DEFAULT: Final = JudgedSettings()


def evaluate_judged(models: Sequence[Path], *, settings: JudgedSettings = DEFAULT) -> Comparison:
    """Measure saved models on judged lists; the others are compared with the first.

    Args:
        models: Folders of runs or models.
        settings: The lists and measures.
    """
    folders = [model_folder(path) for path in models]
    names = [folder.parent.name if folder.name == "model" else folder.name for folder in folders]
    labels = names if len(set(names)) == len(names) else [str(path) for path in models]
    experiment = settings_of(folders, settings)
    return evaluate_models(
        experiment, dict(zip(labels, folders, strict=True)), part=settings.part, seeds=_seeds(folders)
    )


def settings_of(folders: Sequence[Path], settings: JudgedSettings = DEFAULT) -> ExperimentSettings:
    """Return the settings saved beside the models, which must agree on the data unless the data is given."""
    found = [file for folder in folders for place in folder.parents[:2] if (file := place / "settings.toml").is_file()]
    read = [build(ExperimentSettings, read_toml(file)) for file in dict.fromkeys(found)] or [ExperimentSettings()]
    if settings.data is None and any(each.data != read[0].data for each in read):
        raise SettingError("data", None, "name the data, as the models were trained on different data")
    measured = read[0].evaluation if not settings.measure else replace(read[0].evaluation, measures=settings.measure)
    return replace(read[0], data=settings.data or read[0].data, evaluation=measured)


def _seeds(folders: Sequence[Path]) -> list[int]:
    """Return the seeds of the models, if each was saved with settings of a single run."""
    files = [(folder.parent if folder.name == "model" else folder) / "settings.toml" for folder in folders]
    read = [build(ExperimentSettings, read_toml(file)) for file in files if file.is_file()]
    known = len(read) == len(folders) and all(each.runs == 1 for each in read)
    return sorted({each.seed for each in read}) if known else []


def draw_attention(model: Path, file: Path, *, settings: JudgedSettings = DEFAULT) -> None:
    """Write the heat map of which features an attention ranker attends to.

    Args:
        model: Folder of a run or model.
        file: Picture to write: .png, .svg or .pdf.
        settings: The lists on which attention is averaged.
    """
    from clickprism.evaluation.attention import attention_heat_map, model_attention, save_picture

    if file.suffix.lower() not in PICTURES:
        raise SettingError("attention", str(file), f"end in {', '.join(PICTURES)}")
    if not file.absolute().parent.is_dir():
        raise DataError("cannot be written (there is no such folder)", file=file)
    folder = model_folder(model)
    dataset, names = load_named(settings_of([folder], settings).data)
    judged: JudgedLists = getattr(dataset, settings.part)
    figure = attention_heat_map(model_attention(Model.load(folder), judged.lists), names=names)
    try:
        save_picture(figure, file)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=file) from None
