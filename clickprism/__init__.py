"""clickprism: a click is relevance times observation; clickprism splits the two.

The names below are the front door; each is imported when it is first used, so that `import clickprism` is quick and
needs none of the optional parts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from clickprism.choice.tune import tune
    from clickprism.data.items import items_of
    from clickprism.data.letor import read_letor
    from clickprism.data.recipes import load
    from clickprism.data.sessions import read_sessions
    from clickprism.data.synthetic import SyntheticSettings, synthetic
    from clickprism.debias import method
    from clickprism.debias.click import Click
    from clickprism.debias.dla import DualLearning
    from clickprism.debias.ipw import InversePropensity
    from clickprism.debias.labels import Labels
    from clickprism.diagnosis.of_log import diagnose
    from clickprism.errors import ClickprismError
    from clickprism.evaluation.compare import compare
    from clickprism.evaluation.counterfactual import counterfactual
    from clickprism.evaluation.curves import by_position, exposure_shares
    from clickprism.evaluation.measures import evaluate
    from clickprism.experiments import ExperimentSettings, compare_methods, judged_validation
    from clickprism.experiments.auto.run import auto
    from clickprism.log.logged import read_logged
    from clickprism.model import Model
    from clickprism.observation.estimate import estimate_curves
    from clickprism.rankers.lambdamart import LambdaMART
    from clickprism.rankers.linear import Linear
    from clickprism.rankers.mlp import MLP
    from clickprism.simulation.clicks import SimulationSettings, ideal_clicks, simulate
    from clickprism.training.fit import fit
    from clickprism.training.settings import FitSettings
    from clickprism.truth import Simulation
    from clickprism.types import Clicks, Dataset, JudgedLists, Lists
    from clickprism.users.pbm import PositionUser

_HOMES = {
    "Click": "debias.click",
    "Clicks": "types",
    "ClickprismError": "errors",
    "Dataset": "types",
    "DualLearning": "debias.dla",
    "ExperimentSettings": "experiments",
    "FitSettings": "training.settings",
    "InversePropensity": "debias.ipw",
    "JudgedLists": "types",
    "Labels": "debias.labels",
    "LambdaMART": "rankers.lambdamart",
    "Linear": "rankers.linear",
    "Lists": "types",
    "MLP": "rankers.mlp",
    "Model": "model",
    "PositionUser": "users.pbm",
    "Simulation": "truth",
    "SimulationSettings": "simulation.clicks",
    "SyntheticSettings": "data.synthetic",
    "auto": "experiments.auto.run",
    "by_position": "evaluation.curves",
    "compare": "evaluation.compare",
    "compare_methods": "experiments",
    "counterfactual": "evaluation.counterfactual",
    "diagnose": "diagnosis.of_log",
    "estimate_curves": "observation.estimate",
    "evaluate": "evaluation.measures",
    "exposure_shares": "evaluation.curves",
    "fit": "training.fit",
    "ideal_clicks": "simulation.clicks",
    "items_of": "data.items",
    "judged_validation": "experiments",
    "load": "data.recipes",
    "method": "debias",
    "read_letor": "data.letor",
    "read_logged": "log.logged",
    "read_sessions": "data.sessions",
    "simulate": "simulation.clicks",
    "synthetic": "data.synthetic",
    "tune": "choice.tune",
}

__all__ = [
    "MLP",
    "Click",
    "ClickprismError",
    "Clicks",
    "Dataset",
    "DualLearning",
    "ExperimentSettings",
    "FitSettings",
    "InversePropensity",
    "JudgedLists",
    "Labels",
    "LambdaMART",
    "Linear",
    "Lists",
    "Model",
    "PositionUser",
    "Simulation",
    "SimulationSettings",
    "SyntheticSettings",
    "__version__",
    "auto",
    "by_position",
    "compare",
    "compare_methods",
    "counterfactual",
    "diagnose",
    "estimate_curves",
    "evaluate",
    "exposure_shares",
    "fit",
    "ideal_clicks",
    "items_of",
    "judged_validation",
    "load",
    "method",
    "read_letor",
    "read_logged",
    "read_sessions",
    "simulate",
    "synthetic",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            value = getattr(import_module(f"clickprism.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            from clickprism.errors import missing_extra

            raise missing_extra(error) from None
        globals()[name] = value
        return value
    raise AttributeError(f"module 'clickprism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
