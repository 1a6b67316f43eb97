"""Examination models as files: LightGBM's text and a JSON about it; the newest of a folder is the current one.

Reading runs no code: the text is checked against its SHA-256 and read by LightGBM as data.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from clickprism._util.files import read_json, write_file
from clickprism.errors import DataError, SettingError
from clickprism.log.schema import BEHAVIOUR, EXAMINATION_UNIT
from clickprism.observation.examination.model import AGAIN, FORMAT, VERSION, ExaminationModel
from clickprism.observation.examination_settings import ExaminationSettings
from clickprism.settings import build, plain

KEPT: Final = 10
NAME: Final = "examination-"


def save_model(model: ExaminationModel, folder: Path) -> Path:
    """Save a model as the newest of a folder, unless it is that already; the last ten are kept.

    The JSON appears last and whole, so a model is there whole or not at all. Two at once must hold the log's lock.

    Returns:
        The path of the JSON; the trees are beside it, with the suffix .txt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = json.dumps(_about(model), indent=1, sort_keys=True) + "\n"
    before = model_files(folder)
    if before and before[-1].read_text(encoding="utf-8") == about and before[-1].with_suffix(".txt").exists():
        return before[-1]
    number = 1 + (_number(before[-1]) if before else 0)
    path = folder / f"{NAME}{number:06d}.json"
    write_file(path.with_suffix(".txt"), model.text)
    write_file(path, about)
    for old in before[: -(KEPT - 1)]:
        old.unlink(missing_ok=True)
        old.with_suffix(".txt").unlink(missing_ok=True)
    return path


def newest_model(folder: Path) -> ExaminationModel | None:
    """Return the current model of a folder; None if there is none."""
    files = model_files(folder)
    return load_model(files[-1]) if files else None


def chosen_model(folder: Path, name: str | None) -> ExaminationModel | None:
    """Return the examination model that a command was asked to use.

    Args:
        folder: the folder of the models of a log.
        name: path of a model's JSON file, "none" for no model, or None for the current model of the log, if it has one.
    """
    if name == "none":
        return None
    return newest_model(folder) if name is None else load_model(Path(name))


def model_files(folder: Path) -> list[Path]:
    """The JSON files of the models of a folder, the newest last."""
    return sorted((path for path in folder.glob(f"{NAME}*.json") if path.stem[len(NAME) :].isdecimal()), key=_number)


def load_model(path: Path) -> ExaminationModel:
    """Read a model from its JSON and the trees beside it; every part is checked."""
    about = read_json(path, remedy=AGAIN)
    try:
        text = path.with_suffix(".txt").read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"is not an examination model ({error})", file=path, remedy=AGAIN) from None
    except FileNotFoundError as error:
        raise DataError("is not there", file=error.filename, remedy=AGAIN) from None
    expected = {"format": FORMAT, "version": VERSION, "features": list(BEHAVIOUR), "unit": EXAMINATION_UNIT}
    for name, value in expected.items():
        if about.get(name) != value:
            raise DataError(f"has {name} {about.get(name)!r}, not {value!r}", file=path, remedy=AGAIN)
    if about.get("sha256") != hashlib.sha256(text.encode()).hexdigest():
        raise DataError(
            "is not the file that its JSON names (another SHA-256)", file=path.with_suffix(".txt"), remedy=AGAIN
        )
    try:
        settings = build(ExaminationSettings, about.get("settings", {}), path="settings")
    except SettingError as error:
        raise DataError(str(error), file=path, remedy=AGAIN) from None
    sessions: Any = about.get("sessions")
    quality: Any = about.get("quality")
    if not _is_table(sessions, str) or not _is_table(quality, (int, float)):
        raise DataError("does not say what it was trained on", file=path, remedy=AGAIN)
    model = ExaminationModel(text, settings, sessions, quality)
    if about.get("fingerprint") != model.fingerprint:
        raise DataError("has another fingerprint than its parts", file=path, remedy=AGAIN)
    _ = model.booster
    return model


def _about(model: ExaminationModel) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "features": list(BEHAVIOUR),
        "unit": EXAMINATION_UNIT,
        "sha256": hashlib.sha256(model.text.encode()).hexdigest(),
        "fingerprint": model.fingerprint,
        "settings": plain(model.settings),
        "sessions": dict(model.sessions),
        "quality": dict(model.quality),
    }


def _is_table(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, dict) and all(isinstance(one, kind) for one in value.values())


def _number(path: Path) -> int:
    return int(path.stem[len(NAME) :])
