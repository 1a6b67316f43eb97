"""How likely a document was examined, from what the user did around it: trees that learn from display times.

The examination model of the doubly robust paper (§6.1.1). `examine` trains it on the sessions of a log,
`ExaminationModel.estimate` applies it, `newest_model` reads the current one.
"""

from clickprism.observation.examination.examine import (
    Examination,
    ExaminationSummary,
    check_display_times,
    examine,
    fit_current,
    make_current,
)
from clickprism.observation.examination.files import chosen_model, load_model, newest_model, save_model
from clickprism.observation.examination.model import ExaminationModel
from clickprism.observation.examination_settings import ExaminationSettings

__all__ = [
    "Examination",
    "ExaminationModel",
    "ExaminationSettings",
    "ExaminationSummary",
    "check_display_times",
    "chosen_model",
    "examine",
    "fit_current",
    "load_model",
    "make_current",
    "newest_model",
    "save_model",
]
