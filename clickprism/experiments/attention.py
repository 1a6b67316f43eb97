"""The picture of what a saved model looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clickprism.errors import DataError, SettingError
from clickprism.experiments.settings import ExperimentSettings
from clickprism.experiments.stages import Part, load_named
from clickprism.model import Model
from clickprism.types import JudgedLists

PICTURES: Final = (".png", ".svg", ".pdf")


def check_picture(file: Path) -> None:
    """Raise SettingError unless a picture can be written under this name."""
    if file.suffix.lower() not in PICTURES:
        raise SettingError("--attention", str(file), f"end in {', '.join(PICTURES)}")
    if not file.absolute().parent.is_dir():
        raise DataError("cannot be written (there is no such folder)", file=file)


def draw_attention(settings: ExperimentSettings, model: Path, file: Path, *, part: Part = "test") -> None:
    """Write the heat map of what a saved model of the attention ranker looks at, on the data of the settings."""
    from clickprism.evaluation.attention import attention_heat_map, model_attention, save_picture

    dataset, names = load_named(settings.data)
    judged: JudgedLists = getattr(dataset, part)
    figure = attention_heat_map(model_attention(Model.load(model), judged.lists), names=names)
    try:
        save_picture(figure, file)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", file=file) from None
