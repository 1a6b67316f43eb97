"""The public names of clickprism, the only list of them; `__init__.py` imports each one on first use."""

from .auto.run import auto as auto
from .click_models.pbm import PositionUser as PositionUser
from .data.items import items_of as items_of
from .data.letor import read_letor as read_letor
from .data.recipes import load as load
from .data.sessions import read_sessions as read_sessions
from .data.synthetic import SyntheticSettings as SyntheticSettings
from .data.synthetic import synthetic as synthetic
from .debias import method as method
from .debias.click import Click as Click
from .debias.click import Labels as Labels
from .debias.dla import DualLearning as DualLearning
from .debias.ipw import InversePropensity as InversePropensity
from .diagnosis.diagnose import diagnose as diagnose
from .errors import ClickprismError as ClickprismError
from .evaluation.compare import compare as compare
from .evaluation.counterfactual.run import counterfactual as counterfactual
from .evaluation.measures import evaluate as evaluate
from .experiments.compare import compare_methods as compare_methods
from .experiments.settings import ExperimentSettings as ExperimentSettings
from .experiments.train import judged_validation as judged_validation
from .log.open_log import read_log as read_log
from .log_model.model import LogModel as LogModel
from .log_model.model import LogModelSettings as LogModelSettings
from .model import Model as Model
from .project.run import Project as Project
from .rankers.lambdamart import LambdaMART as LambdaMART
from .rankers.linear import Linear as Linear
from .rankers.mlp import MLP as MLP
from .serve.client import Client as Client
from .simulation.clicks import SimulationSettings as SimulationSettings
from .simulation.clicks import ideal_clicks as ideal_clicks
from .simulation.clicks import simulate as simulate
from .training.fit import fit as fit
from .training.settings import FitSettings as FitSettings
from .types import Clicks as Clicks
from .types import Dataset as Dataset
from .types import JudgedLists as JudgedLists
from .types import Lists as Lists
from .types import Simulation as Simulation

__all__: list[str]
__version__: str
