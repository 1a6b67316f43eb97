"""Diagnose a log: fit its model once, and let every finding read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack

import numpy as np

from clickprism.data.click_table import ColumnNames
from clickprism.data.logged import Logged
from clickprism.diagnosis.coverage import coverage, selection
from clickprism.diagnosis.drift import drift
from clickprism.diagnosis.finding import SEE_COVERAGE, Diagnosis, Finding, inconclusive
from clickprism.diagnosis.position import position
from clickprism.diagnosis.users import coupling, interaction, popularity, trust
from clickprism.diagnosis.validity import feedback, fit, identifiability
from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.log.open_log import read_log
from clickprism.log_model.model import LogModel, LogModelSettings

OF_LOG: Final[dict[str, Callable[[Logged], Finding]]] = {"coverage": coverage, "selection": selection, "drift": drift}
OF_MODEL: Final[dict[str, Callable[[Logged, LogModel], Finding]]] = {
    "identifiability": lambda _, model: identifiability(model),
    "position": position,
    "trust": lambda _, model: trust(model),
    "coupling": coupling,
    "popularity": popularity,
    "interaction": interaction,
    "feedback": lambda _, model: feedback(model),
    "fit": lambda _, model: fit(model),
}
FINDINGS: Final = ("coverage", *(name for name in OF_MODEL if name != "fit"), "selection", "drift", "fit")
"""All findings, in the order of the report."""
FAILED: Final = "The model of the log could not be fitted"


def check_names(only: Sequence[str] | None) -> tuple[str, ...]:
    """Return the findings that were asked for, in the order of the report; None means all.

    >>> check_names(["popularity", "coverage"])
    ('coverage', 'popularity')
    """
    for name in only or ():
        if name not in FINDINGS:
            raise SettingError("only", name, f"be among {', '.join(FINDINGS)}")
    return tuple(name for name in FINDINGS if only is None or name in only)


def diagnose(
    log: Any,
    *,
    only: Sequence[str] | None = None,
    seed: int = 0,
    model: LogModel | None = None,
    progress: Callable[[str], None] | None = None,
    as_of: str = "",
    **columns: Unpack[ColumnNames],
) -> Diagnosis:
    """Report which biases a log contains, whether relevance is identifiable from it, and what to do.

    The model of the log (`LogModel`) is fitted once; position curve, trust, coupling, popularity and the links between
    positions are read from it, so that they are the numbers of every other command.

    Args:
        log: Anything that `read_log` reads: a frame, files, a query to a database, an ingested log.
        only: Names of findings; by default all.
        seed: Random seed.
        model: Model of this log, if it was fitted before; by default it is fitted here.
        progress: Called with the name of each step as it begins.
        as_of: When the diagnosis is made, as text.
        columns: Which column of a table holds what, as `read_log` takes it.

    >>> import clickprism as cp
    >>> from clickprism.data.logged import Logged
    >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=20, validation_queries=1, test_queries=1))
    >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=2000, seed=0)
    >>> diagnose(Logged(log.clicks), only=["identifiability"]).verdict("identifiability")
    'absent'
    """
    names, settings = check_names(only), LogModelSettings(seed=seed)
    note = progress or (lambda _: None)
    logged = without_empty_lists(read_log(log, note=progress, **columns))
    problem = ""
    if logged.has_only_clicks:
        model, problem = None, "every result of the log was clicked"
    elif model is None and set(names) & set(OF_MODEL):
        note("model")
        try:
            model = LogModel.fit(logged, settings=settings, progress=progress)
        except (DataError, TrainingError) as error:
            problem = str(error).rstrip(".")
    findings: dict[str, Finding] = {}
    for name in names:
        note(name)
        if name in OF_LOG:
            findings[name] = OF_LOG[name](logged)
        elif model is None:
            findings[name] = inconclusive(name, f"{FAILED}: {problem}.", SEE_COVERAGE)
        else:
            findings[name] = OF_MODEL[name](logged, model)
    shown, curve = int(logged.clicks.list_impressions.sum()), None if model is None else model.curve
    return Diagnosis(findings, logged.clicks.sessions, shown, as_of, curve, model)


def without_empty_lists(logged: Logged) -> Logged:
    """Return the ranked lists that show at least one document."""
    filled = np.diff(logged.clicks.offsets) > 0
    return logged if filled.all() else logged.take(filled)
