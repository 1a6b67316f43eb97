"""Run what is out of date in a project, continue after a kill, and keep a record."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

from clickprism._util.crash_points import crash_point
from clickprism._util.files import create_folder, lock, read_json, write_file
from clickprism._util.resumable import fixed_time, start_time
from clickprism._util.tables import Table, to_json, to_plain
from clickprism.errors import DataError, SettingError
from clickprism.project import source
from clickprism.project.settings import FILE, ProjectSettings, read_settings, redact
from clickprism.project.status import ProjectStatus, status_of, write_pages
from clickprism.project.steps import NAMES, RANKERS, STATE, STEPS, Context, Step, StepRecord, fingerprint
from clickprism.settings import suggest

RUN, LOCK = "run.json", ".lock"
FORMAT: Final = 1
NAME: Final = "%Y-%m-%dT%H-%M-%SZ"  # name of the folder of a run
POINTS: Final = (*(f"{name}-{what}" for name in NAMES for what in ("done", "recorded")), "report-written")
"""The crash points of a run: before and after the record of each step is written."""
Listen = Callable[[str, str, str], None]
"""Called with a step, what happened ("start", "doing", "done", "current") and a few words."""


@final
@dataclass(frozen=True)
class StepRun:
    """What a run did with a step.

    Attributes:
        step: Name of the step.
        ran: Whether it ran, or would run.
        reason: Why.
        text: What it did.
        seconds: Time.
        cpu_seconds: CPU time, also of threads.
        memory_mb: Largest memory of the process so far.
    """

    step: str
    ran: bool
    reason: str
    text: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0


@final
@dataclass(frozen=True)
class RunResult:
    """What a run did.

    Attributes:
        project: Folder of the project.
        started: Start (UTC).
        steps: One for each step, in order.
        changed: Whether any step ran.
        dry_run: Whether nothing was done.
        report: The page of the run; None if nothing was done.
        status: What the project contains now.
    """

    project: Path
    started: str
    steps: tuple[StepRun, ...]
    changed: bool
    dry_run: bool
    report: Path | None
    status: ProjectStatus

    def tables(self) -> list[Table]:
        """Return the steps, and what the project contains now."""
        if not self.changed:
            return [Table("", ["Nothing is new: every step is up to date."], [])]
        if self.dry_run:
            rows = [[each.step, "run" if each.ran else "-", each.reason] for each in self.steps]
            return [Table("Dry run: nothing was done.", ["step", "would", "reason"], rows)]
        rows = [
            [each.step, f"{each.seconds:.1f} s" if each.ran else "-", each.text or each.reason] for each in self.steps
        ]
        return [Table("", ["step", "time", "result"], rows), *self.status.tables()]


@final
class Project:
    """A folder with a `clickprism.toml`; `clickprism init` creates one.

    Args:
        folder: The folder.

    Attributes:
        folder: The folder, absolute.
        settings: What `clickprism.toml` says.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        self.settings: ProjectSettings = read_settings(self.folder)

    def run(self, *, step: str = "", dry_run: bool = False, since: str = "", listen: Listen | None = None) -> RunResult:
        """Run the steps that are out of date, in order; a run that was interrupted continues.

        Args:
            step: Bring only this step up to date, with those that it needs; by default all.
            dry_run: Say what would run and why, and do nothing.
            since: Use only days from this one on, such as 2026-03-01; by default `training.since`.
            listen: Called with a step, what happened and a few words.
        """
        if step and step not in NAMES:
            raise SettingError("step", step, f"be a step ({suggest(step, NAMES)})")
        settings = self.settings
        if since:
            settings = replace(settings, training=replace(settings.training, since=since))
        create_folder(self.folder / STATE)
        with lock(self.folder / STATE / LOCK, waiting=self._refuse), source.safe_errors(settings):
            return _Run(self.folder, settings, listen or (lambda *_: None)).all(step, dry_run=dry_run)

    def status(self) -> ProjectStatus:
        """Return what the log holds, which biases it has, which ranker serves, and what needs attention."""
        return status_of(self.folder, self.settings, _records(self.folder))

    def service(self) -> dict[str, Any]:
        """Return what `clickprism serve` needs: deployment, store, log for events, shadow, and the folder itself."""
        from clickprism.serve.bundle.deployment import Deployment

        deployed = Deployment(self.folder / self.settings.outputs.deployment)
        if not deployed.exists():
            remedy = f"Run: clickprism run {self.folder}; then see: clickprism status {self.folder}"
            raise DataError("has no ranker to serve", file=self.folder, remedy=remedy)
        records = _records(self.folder)
        promoted = records["promote"].result if "promote" in records else {}
        waits = promoted.get("shadow") and not promoted.get("rollout")  # a rollout is answered, not only scored
        shadow = self.folder / RANKERS / promoted["shadow"] / "bundle" if waits else None
        store = self.settings.store(self.folder) if "publish" in records else None
        found = {"source": deployed.folder, "store": store, "log": self.folder / source.LOG, "shadow": shadow}
        return {**found, "project": self.folder}

    def _refuse(self) -> None:
        remedy = "Wait until it has finished"
        raise DataError("another clickprism run is using this project", file=self.folder, remedy=remedy)


def is_project(folder: Path) -> bool:
    """Return whether a folder is a project."""
    return (folder / FILE).is_file()


def _records(folder: Path) -> dict[str, StepRecord]:
    """Return the recorded result of each step that has run."""
    found = {}
    for name in NAMES:
        file = folder / STATE / f"{name}.json"
        if not file.is_file():
            continue
        remedy = "Delete the file and run the same command again: the step is repeated"
        plain = read_json(file, remedy=remedy)
        try:
            found[name] = StepRecord(plain["reads"], plain["needs"], plain["output"], plain["text"], plain["result"])
        except (KeyError, TypeError):
            raise DataError("is damaged", file=file, remedy=remedy) from None
    return found


@final
class _Run:
    """One run of a project."""

    def __init__(self, folder: Path, settings: ProjectSettings, listen: Listen) -> None:
        self.folder, self.settings, self.listen = folder, settings, listen
        self.state = folder / STATE
        self.step = ""
        begun = read_json(self.state / RUN) if (self.state / RUN).is_file() else {}
        self.started = datetime.fromisoformat(begun["started"]) if begun else start_time()
        self.rows: dict[str, StepRun] = {each["step"]: StepRun(**each) for each in begun.get("steps", ())}
        self.context = Context(folder, settings, self.started, self._say, _records(folder))

    def all(self, last: str, *, dry_run: bool) -> RunResult:
        """Run every step that is out of date, up to `last` and what it needs."""
        wanted, stale = _needed(last), set[str]()
        for step in (each for each in STEPS if each.name in wanted):
            self.step = step.name
            reason = self._reason(step, stale)
            if not reason:
                self.rows.setdefault(step.name, StepRun(step.name, False, "up to date", self._text(step.name)))
                self.listen(step.name, "current", "up to date")
            elif dry_run:
                stale.add(step.name)
                self.rows[step.name] = StepRun(step.name, True, reason)
            else:
                self._make(step, reason)
        steps = tuple(self.rows[name] for name in NAMES if name in self.rows)
        changed = any(each.ran for each in steps)
        writes = changed and not dry_run
        running = self.started.strftime(NAME) if writes else ""
        status = status_of(self.folder, self.settings, self.context.records, running=running)
        report = None
        if writes:
            report = self._record(steps, status)
        return RunResult(self.folder, self.started.isoformat(), steps, changed, dry_run, report, status)

    def _reason(self, step: Step, stale: set[str]) -> str:
        """Return why a step must run; empty if it is up to date."""
        record = self.context.records.get(step.name)
        if record is None:
            return "it has not run yet"
        if running := [name for name in step.needs if name in stale]:
            return f"if the result of {running[0]} changes"
        changed = [name for name in step.needs if record.needs.get(name) != self.context.records[name].output]
        if changed:
            return f"the result of {changed[0]} changed"
        return "" if record.reads == self._reads(step) else "the source, the log or the settings changed"

    def _reads(self, step: Step) -> str:
        return fingerprint([FORMAT, step.name, step.reads(self.context)])

    def _text(self, name: str) -> str:
        return self.context.records[name].text

    def _make(self, step: Step, reason: str) -> None:
        if not self.rows or not any(each.ran for each in self.rows.values()):
            self._save_run()  # a run that is killed from here on continues with the same start
        self.listen(step.name, "start", step.summary)
        begun, cpu = time.perf_counter(), time.process_time()
        made = step.make(self.context)
        seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
        crash_point(f"{step.name}-done")
        output = fingerprint(made.result if made.output is None else made.output)
        needs = {name: self.context.records[name].output for name in step.needs}
        text = redact(made.text, self.settings)
        self.context.records[step.name] = record = StepRecord("", needs, output, text, to_plain(made.result))
        record = replace(record, reads=self._reads(step))
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        times = (0.0, 0.0, 0.0) if fixed_time() else (round(seconds, 3), round(spent, 3), round(used, 1))
        self.rows[step.name] = StepRun(step.name, True, reason, text, *times)
        self._save_run()
        write_file(self.state / f"{step.name}.json", redact(to_json(record), self.settings) + "\n")
        self.context.records[step.name] = record
        crash_point(f"{step.name}-recorded")
        self.listen(step.name, "done", text)

    def _save_run(self) -> None:
        plain = {"started": self.started.isoformat(), "steps": [to_plain(each) for each in self.rows.values()]}
        write_file(self.state / RUN, to_json(plain) + "\n")

    def _record(self, steps: Sequence[StepRun], status: ProjectStatus) -> Path:
        """Write the page, the record and the metrics of the run; then the run is complete."""
        folder = self.folder / "runs" / self.started.strftime(NAME)
        rows = [to_plain(each) for each in steps]
        curve = self.context.result("log-model").get("curve", {})
        report = write_pages(folder, self.folder, self.settings, self.started, steps=rows, status=status, curve=curve)
        crash_point("report-written")
        (self.state / RUN).unlink(missing_ok=True)
        return report

    def _say(self, text: str) -> None:
        self.listen(self.step, "doing", redact(text, self.settings))


def _needed(last: str) -> set[str]:
    """Return the names of a step and of all steps that it needs; all without a name."""
    if not last:
        return set(NAMES)
    needs: Mapping[str, tuple[str, ...]] = {step.name: step.needs for step in STEPS}
    found, waiting = set[str](), [last]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += needs[name]
    return found
