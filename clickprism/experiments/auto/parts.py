"""The stages of `auto`: each calls one part of clickprism and says what came of it in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Diagnosis
from clickprism.experiments.auto import words
from clickprism.experiments.auto.findings import kept_diagnosis
from clickprism.experiments.auto.folder import fingerprint_of
from clickprism.experiments.auto.value import NOTHING, value_of
from clickprism.model import Model

if TYPE_CHECKING:
    from clickprism.experiments.auto.settings import AutoSettings

Say: TypeAlias = Callable[[str], None]
MODEL: Final = "model"
NAIVE: Final = "naive"
EXAMPLES: Final = 200
UNSEEN: Final = "the searches of the log, each ranked by such a ranker that did not learn from its query,"
SEEN: Final = "the searches of the log, which it learned from and which flatter it,"


def read(log: Logged | Path | str | Callable[[], Logged]) -> Logged:
    """The log, from wherever it is."""
    if not isinstance(log, Path | str):
        return log if isinstance(log, Logged) else log()
    from clickprism.log.logged import read_logged

    return read_logged(Path(log))


def described(logged: Logged, name: str) -> dict[str, Any]:
    """What the log holds, in a sentence and in numbers."""
    clicks = logged.clicks
    shown = np.unique(clicks.rows)
    counts: dict[str, Any] = {
        "fingerprint": fingerprint_of(logged),
        "sessions": clicks.sessions,
        "queries": len(np.unique(clicks.lists.list_of[shown])),
        "documents": len(shown),
        "impressions": int(clicks.list_impressions.sum()),
        "clicks": int(clicks.clicks.sum()),
        "features": int(clicks.lists.features.shape[1]),
        "days": None if logged.days is None else len(np.unique(logged.days)),
        "rankers": None if logged.policy is None else len(np.unique(logged.policy)),
        "randomised": None if logged.randomised is None else int(clicks.list_impressions[logged.randomised].sum()),
        "account": dict(logged.account),
    }
    silent = {"days": logged.days, "rankers": logged.policy, "what chance placed": logged.randomised}
    untold = [what for what, values in silent.items() if values is None]
    sentence = (
        f"{name}: {counts['sessions']:,} searches for {counts['queries']:,} queries, {counts['impressions']:,} "
        f"impressions of {counts['documents']:,} documents {_with(counts['features'])}, "
        f"{counts['clicks']:,} clicks"
    )
    return {"sentence": sentence + (f"; it does not tell {', '.join(untold)}." if untold else "."), "counts": counts}


def _with(features: int) -> str:
    return f"with {features} feature{'s' * (features > 1)}" if features else "without features"


def diagnosed(logged: Logged, *, seed: int, as_of: datetime, say: Say) -> dict[str, Any]:
    """All findings."""
    from clickprism.diagnosis.diagnose import diagnose

    return kept_diagnosis(diagnose(logged, seed=seed, progress=say, as_of=as_of.isoformat()))


def chosen(logged: Logged, settings: AutoSettings, *, seconds: float, out: Path, say: Say) -> dict[str, Any]:
    """The candidate that the log itself prefers, trained on all of it; or why there is none."""
    if not logged.has_features:
        return _refused(words.WITHOUT_FEATURES, words.INSTEAD)
    from clickprism.choice.tune import TuneSettings, tune

    made = TuneSettings(budget=seconds, seed=settings.seed, processes=settings.processes)
    told = tune(logged, settings=made, out=out, progress=say).plain()
    kept = {name: told[name] for name in ("chosen", "words", "why", "numbers", "trials")}
    return {**kept, "refused": "", "instead": []}


def _refused(why: str, instead: tuple[str, ...]) -> dict[str, Any]:
    nothing: dict[str, Any] = {"chosen": None, "words": "", "why": [], "numbers": {}, "trials": None}
    return {**nothing, "refused": why, "instead": list(instead)}


def valued(logged: Logged, choice: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """What the ranker would earn against the one that made the log, by the log alone; or why that cannot be said.

    A ranker is flattered by clicks that it learned from: each query is ranked by one that did not see it, if the choice
    has such, trained on half of the others.
    """
    if choice["refused"]:
        return dict(NOTHING)
    from clickprism.choice.trials import unseen_scores

    scores, whose = unseen_scores(source, choice["chosen"], len(logged.clicks.lists)), UNSEEN
    if scores is None:
        scores, whose = Model.load(source / MODEL).score(logged.clicks.lists), SEEN
    return value_of(logged, scores, whose=whose)


def bundled(
    logged: Logged,
    choice: Mapping[str, Any],
    value: Mapping[str, Any],
    diagnosis: Diagnosis,
    *,
    source: Path,
    out: Path,
    made: datetime,
) -> dict[str, Any]:
    """The bundle: the ranker, one that took clicks for relevance beside it, and examples of the log."""
    if choice["refused"]:
        return {"version": "", "sentence": "", "files": {}}
    from clickprism.serve.bundle import write_bundle
    from clickprism.serve.examples import examples_of

    lists = logged.clicks.lists
    model = Model.load(source / MODEL)
    naive = Model.load(source / NAIVE) if (source / NAIVE).is_dir() else None
    observation = None if diagnosis.curve is None else diagnosis.curve.values
    scores = model.score(lists), None if naive is None else naive.score(lists)
    examples = examples_of(logged.clicks, *scores, observation=observation, source="the log", most=EXAMPLES)
    notes = [
        value["sentence"],
        *(each.sentence for each in diagnosis.findings.values() if each.verdict == "inconclusive"),
    ]
    bundle = write_bundle(
        out,
        model,
        name=choice["chosen"],
        feature_names=logged.feature_names,
        naive=naive,
        observation=observation,
        data={"clicks": "of the log", "searches": logged.clicks.sessions, "queries": len(lists)},
        metrics={key: number for key, number in value["numbers"].items() if isinstance(number, float)},
        notes=[note for note in notes if note],
        examples=examples.bytes(),
        created=made,
        replace=True,
    )
    sentence = (
        "It scores as the trained ranker does, which was checked on made-up documents; each of its "
        f"{len(bundle.manifest.files)} files is known by its SHA-256."
    )
    return {"version": bundle.version, "sentence": sentence, "files": bundle.manifest.files}
