"""Whole experiments in one call: data, simulated users, methods, measures.

One `ExperimentSettings` holds all settings; a TOML file has the same names. `train_ranker`, `compare_methods`,
`feedback_loop` and `run_demo` each take one settings object and return one result.
"""

from clickprism.experiments.bias import Coupling, coupling_of
from clickprism.experiments.compare import compare_methods, evaluate_judged
from clickprism.experiments.data import Data, Log, load_data, load_raw, simulate_log
from clickprism.experiments.feedback import FeedbackResults, feedback_loop, write_feedback
from clickprism.experiments.results import Results, Run, results_of, write_results
from clickprism.experiments.settings import (
    DataSettings,
    DemoSettings,
    EvaluationSettings,
    ExperimentSettings,
    FeedbackSettings,
    read_settings,
    resolved,
)
from clickprism.experiments.train import Trained, judged_validation, make_method, train_method, train_ranker

__all__ = [
    "Coupling",
    "Data",
    "DataSettings",
    "DemoSettings",
    "EvaluationSettings",
    "ExperimentSettings",
    "FeedbackResults",
    "FeedbackSettings",
    "Log",
    "Results",
    "Run",
    "Trained",
    "compare_methods",
    "coupling_of",
    "evaluate_judged",
    "feedback_loop",
    "judged_validation",
    "load_data",
    "load_raw",
    "make_method",
    "read_settings",
    "resolved",
    "results_of",
    "simulate_log",
    "train_method",
    "train_ranker",
    "write_feedback",
    "write_results",
]
