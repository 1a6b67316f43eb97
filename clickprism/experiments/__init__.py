"""Whole experiments in one call: data, simulated users, methods, measures.

One `ExperimentSettings` holds every setting there is; a TOML file has the same names. The stages are functions of it,
so that a command can run one (`load_data`, `simulate_log`, `train_method`) or all (`compare_methods`).
"""

from clickprism.experiments.bend import Bend, bend_of
from clickprism.experiments.compare import Run, compare_methods
from clickprism.experiments.results import Results, results_of, write_results
from clickprism.experiments.settings import (
    DataSettings,
    EvaluationSettings,
    ExperimentSettings,
    read_settings,
    resolved,
)
from clickprism.experiments.stages import (
    Data,
    Log,
    evaluate_models,
    judged_validation,
    load_data,
    load_raw,
    make_method,
    simulate_log,
    train_method,
)
from clickprism.experiments.train import Trained, train_ranker

__all__ = [
    "Bend",
    "Data",
    "DataSettings",
    "EvaluationSettings",
    "ExperimentSettings",
    "Log",
    "Results",
    "Run",
    "Trained",
    "bend_of",
    "compare_methods",
    "evaluate_models",
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
    "write_results",
]
