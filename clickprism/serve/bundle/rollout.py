"""A rollout: a new bundle answers a growing share of the requests together with the current one, until clicks decide.

    DEPLOYMENT/rollout/       a deployment of the new bundle, whose pointer has the share of the requests
    DEPLOYMENT/rollout.json   when it began, how it is decided, and the outcome of the last one

The service interleaves both rankings in that share of the requests, and each item names the bundle that it came from.
`advance` compares the clicks by a confidence sequence, which is valid however often it is looked at. It promotes the
new bundle if users prefer it, and takes it back if they prefer the current one, or if they show no preference.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

import numpy as np

from clickprism._util.files import read_json, write_file
from clickprism._util.tables import Table, to_json
from clickprism.errors import ClickprismError, DataError, SettingError, UnsupportedError
from clickprism.evaluation.interleaving import confidence_sequence, winners
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.settings import RolloutSettings
from clickprism.settings import build

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

STATE: Final = "rollout.json"
Outcome = Literal["running", "promoted", "taken back"]


@final
@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A rollout that runs or has ended.

    Attributes:
        version: Version of the new bundle.
        against: Version of the current bundle when it began.
        since: When it began (UTC).
        settings: How it is decided.
        outcome: running, promoted or taken back.
        share: Share of the requests that both bundles answer together.
        stage: Number of the share, from 0.
        stage_began: Number of interleaved searches when this share began.
        searches: Number of interleaved searches so far.
        wins: Number of those in which more documents of the new bundle were clicked.
        losses: Number of those in which more documents of the current bundle were clicked.
        interval: Interval of (wins - losses) / searches, valid at any number of looks; empty for few searches.
        reason: Why it runs, or why it ended.
    """

    version: str
    against: str
    since: str
    settings: RolloutSettings
    outcome: Outcome = "running"
    share: float = 1.0
    stage: int = 0
    stage_began: int = 0
    searches: int = 0
    wins: int = 0
    losses: int = 0
    interval: tuple[float, ...] = ()
    reason: str = "No interleaved search is in the log yet."

    def tables(self) -> list[Table]:
        """Return the counts, the interval and what was decided."""
        interval = "{:+.3f} to {:+.3f}".format(*self.interval) if self.interval else "not enough searches yet"
        rows = [
            ["current bundle", self.against],
            ["since", self.since],
            ["outcome", self.outcome],
            ["share of the requests", f"{self.share:.0%}"],
            ["interleaved searches", f"{self.searches:,}: {self.wins:,} won, {self.losses:,} lost"],
            ["preference, at any number of looks", interval],
            ["reason", self.reason],
        ]
        return [Table("", ["new bundle", self.version], rows)]


def start(deployment: Deployment, bundle: Path | str, settings: RolloutSettings) -> Rollout:
    """Begin to release a bundle; the service follows within a second."""
    before, version, against = status(deployment), Bundle.load(bundle).version, deployment.pointer().version
    if before is not None and before.outcome == "running":
        remedy = "Let it end, or end it: clickprism model rollout DEPLOYMENT --stop"
        raise DataError("has a rollout already", file=deployment.folder, remedy=remedy)
    if version == against:
        raise SettingError("bundle", str(bundle), "differ from the current bundle")
    share, since = settings.shares[0], datetime.now(UTC).isoformat(timespec="seconds")
    found = Rollout(version=version, against=against, since=since, settings=settings, share=share)
    _write(deployment, found)
    try:
        rollout_folder(deployment).promote(bundle, share=share)
    except ClickprismError:
        _finish(deployment, found, "taken back", "The bundle could not be verified.")
        raise
    return found


def advance(deployment: Deployment, store: LogStore) -> Rollout:
    """Count the clicks of the log on both bundles, and go on, promote or take back."""
    from clickprism.log.interleaved import interleaved_searches
    from clickprism.log.sessions import update_sessions

    now = _running(deployment)
    current = deployment.pointer().version
    if current == now.version:  # a promotion was killed before it was written, or somebody promoted it
        return _finish(deployment, now, "promoted", "It is the current bundle.")
    if current != now.against:
        return _finish(deployment, now, "taken back", "The current bundle was replaced during the rollout.")
    first = datetime.fromisoformat(now.since).date()
    days = [day for day in store.table("events").days() if day >= first]
    with store.write(exclusive=False) as writer:
        update_sessions(store, writer.engine, days)
    try:
        found = interleaved_searches(store, rankers=(now.against, now.version), days=days)
    except UnsupportedError:
        return now
    won, own = winners(found.first, found.second), now.settings
    test = confidence_sequence(won.astype(np.float64), confidence=own.confidence, tightest=own.planned_searches)
    ends: tuple[float, ...] = (float(test.low[-1]), float(test.high[-1]))
    wins, losses = int((won > 0).sum()), int((won < 0).sum())
    ends = ends if np.isfinite(ends).all() else ()
    now = replace(now, searches=len(won), wins=wins, losses=losses, interval=ends)
    if test.decided is not None:
        better = bool(test.low[test.decided - 1] > 0)
        reason = f"Users prefer the {'new' if better else 'current'} bundle, after {test.decided:,} searches."
        return _finish(deployment, now, "promoted" if better else "taken back", reason)
    if len(won) >= own.planned_searches:
        return _finish(deployment, now, "taken back", f"No preference after {len(won):,} searches.")
    return _next_share(deployment, now)


def _next_share(deployment: Deployment, now: Rollout) -> Rollout:
    """Use the next share if the stage is complete and the new bundle has not lost more searches than it won."""
    own, text = now.settings, f"Not decided after {now.searches:,} searches"
    complete = now.searches - now.stage_began >= own.stage_searches and now.stage + 1 < len(own.shares)
    if complete and now.losses > now.wins:
        text += "; the share does not grow, since the new bundle lost more than it won"
    elif complete:
        share = own.shares[now.stage + 1]
        now = replace(now, stage=now.stage + 1, stage_began=now.searches, share=share)
        rollout_folder(deployment).point(now.version, share=share)
    return _write(deployment, replace(now, reason=f"{text}."))


def stop(deployment: Deployment) -> Rollout:
    """Take a new bundle back at once."""
    return _finish(deployment, _running(deployment), "taken back", "It was stopped.")


def _running(deployment: Deployment) -> Rollout:
    now = status(deployment)
    if now is None or now.outcome != "running":
        remedy = "Start one: clickprism model rollout DEPLOYMENT --bundle BUNDLE"
        raise UnsupportedError("has no rollout", file=deployment.folder, remedy=remedy)
    return now


def status(deployment: Deployment) -> Rollout | None:
    """Return the running rollout, or the last one; None if there never was one."""
    file = deployment.folder / STATE
    if not file.is_file():
        return None
    remedy = "Delete the file: the rollout ends"
    try:
        return build(Rollout, read_json(file, remedy=remedy))
    except SettingError as error:
        raise DataError(f"is damaged ({error})", file=file, remedy=remedy) from None


def rollout_folder(deployment: Deployment) -> Deployment:
    """Return the deployment of the new bundle."""
    return Deployment(deployment.folder / "rollout")


def is_interleaved(request_id: str, share: float) -> bool:
    """Return whether a request is among the share that both bundles answer; the same request always is, or never.

    >>> sum(is_interleaved(f"r{number}", 0.2) for number in range(1000))
    210
    """
    digest = blake2b(f"rollout:{request_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2**64


def _finish(deployment: Deployment, now: Rollout, outcome: Outcome, reason: str) -> Rollout:
    """End a rollout. The outcome is written last, so that a call after a crash does what is left."""
    new = rollout_folder(deployment)
    if outcome == "promoted" and new.exists():
        deployment.promote(new.current().folder)
    new.pointer_file.unlink(missing_ok=True)
    shutil.rmtree(new.folder, ignore_errors=True)
    share = 1.0 if outcome == "promoted" else 0.0
    return _write(deployment, replace(now, outcome=outcome, share=share, reason=reason))


def _write(deployment: Deployment, now: Rollout) -> Rollout:
    write_file(deployment.folder / STATE, to_json(now) + "\n")
    return now
