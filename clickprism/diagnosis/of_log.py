"""The front door of diagnosis: a log of any kind, as a path or as it was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clickprism.data.letor import PathLike
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Diagnosis
from clickprism.log.logged import read_logged


def diagnose(
    log: PathLike | Logged,
    *,
    only: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    as_of: str = "",
) -> Diagnosis:
    """What biases a log has, whether relevance can be learned from it, and what to do about either.

    Args:
        log: a path that `read_logged` takes, or what it gave.
        only: the names of findings; by default all.
        seed: of everything random.
        progress: told the name of each finding as it is begun.
        as_of: when it is made, as text.

    >>> from clickprism.simulation.worlds import WorldSettings, make_world
    >>> made = diagnose(make_world(WorldSettings(queries=20, sessions=300, days=2)).logged, only=["coverage"])
    >>> made.sessions, list(made.findings)
    (300, ['coverage'])
    """
    from clickprism.diagnosis.diagnose import DiagnoseSettings
    from clickprism.diagnosis.diagnose import diagnose as diagnose_logged

    logged = log if isinstance(log, Logged) else read_logged(log, note=progress)
    return diagnose_logged(logged, settings=DiagnoseSettings(seed=seed), only=only, progress=progress, as_of=as_of)
