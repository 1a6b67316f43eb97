"""How likely a document was examined, from what the user did around it: trees that learn from display times.

The examination model of the doubly robust paper (§6.1.1). `examine` trains it on the sessions of a log,
`ExaminationModel.estimate` applies it, `newest_model` reads the one in force.
"""

from clickprism.observation.examination.examine import Examination, check_display_times, examine, put_in_force
from clickprism.observation.examination.files import chosen_model, load_model, newest_model, save_model
from clickprism.observation.examination.model import ExaminationModel
from clickprism.observation.examination.settings import ExaminationSettings

__all__ = [
    "Examination",
    "ExaminationModel",
    "ExaminationSettings",
    "check_display_times",
    "chosen_model",
    "examine",
    "load_model",
    "newest_model",
    "put_in_force",
    "save_model",
]
