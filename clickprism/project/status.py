"""What a project contains now, for people, programs and Prometheus; and the page of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import write_file
from clickprism._util.tables import Table, counted, to_json, to_plain
from clickprism.project import source
from clickprism.project.settings import ProjectSettings, redact
from clickprism.project.steps import RANKERS, StepRecord

REPORT, RECORD = "report.html", "record.json"
NO_RANKER: Final = "There is no ranker to serve."
NOT_BIASES: Final = ("coverage", "identifiability", "fit")  # findings of the diagnosis about the log itself


@final
@dataclass(frozen=True, kw_only=True)
class ProjectStatus:
    """What a project contains.

    Attributes:
        project: Name of the project.
        source: Where the log comes from, without secrets.
        files: Number of files of the source.
        searches: Number of searches that the model of the log uses.
        queries: Number of queries.
        impressions: Number of documents shown.
        clicks: Number of clicks.
        broken: Number of rows in quarantine.
        observation: Observation at each position relative to position 1.
        biases: Verdict on each bias.
        judged: Number of pairs in the judgment list.
        ranker: Version of the ranker that serves; empty without one.
        since: When it was promoted (UTC).
        why: Why it was promoted: its gain, and what can be lost.
        shadow: Folder of a newer ranker that was not promoted; empty without one.
        shadow_reason: Why it was not promoted.
        decision: Why a ranker was or was not trained in the last run.
        published: Number of pairs in the online store.
        last_run: Start of the last complete run (UTC); empty without one.
        attention: What needs attention, one sentence each.
    """

    project: str
    source: str
    files: int
    searches: int
    queries: int
    impressions: int
    clicks: int
    broken: int
    observation: tuple[float, ...]
    biases: Mapping[str, str]
    judged: int
    ranker: str
    since: str
    why: str
    shadow: str
    shadow_reason: str
    decision: str
    published: int
    last_run: str
    attention: tuple[str, ...]

    @property
    def found_biases(self) -> str:
        """Return the names of the biases that the log has."""
        present = [name for name, each in self.biases.items() if each == "present" and name not in NOT_BIASES]
        return ", ".join(present) or "none found"

    @property
    def since_text(self) -> str:
        """Return when the ranker was promoted, such as 2026-03-01 12:30 UTC."""
        return f"{datetime.fromisoformat(self.since):%Y-%m-%d %H:%M} UTC" if self.since else ""

    def tables(self) -> list[Table]:
        """Return one table: the log, the ranker, and what needs attention."""
        size = f"{self.searches:,} searches of {self.queries:,} queries, {self.clicks:,} clicks"
        curve = " ".join(f"{value:.2f}" for value in self.observation[:10])
        rows = [
            ["log", f"{size}, {counted(self.files, 'file')}"],
            ["biases", self.found_biases],
            ["observation by position", curve or "not estimated yet"],
            ["judgment list", f"{self.judged:,} pairs"],
            ["ranker", f"{self.ranker} since {self.since_text}" if self.ranker else "none"],
            *([["why", self.why]] if self.why else []),
            *([["shadow", f"{self.shadow}: {self.shadow_reason}"]] if self.shadow else []),
            ["training", self.decision or "not decided yet"],
            ["online store", f"{self.published:,} pairs" if self.published else "empty"],
            ["last run", self.last_run or "none"],
        ]
        wanted = [["", each] for each in self.attention] or [["", "nothing"]]
        wanted[0][0] = "needs attention"
        return [Table("", [self.project, self.source], [*rows, *wanted])]


def status_of(
    folder: Path, settings: ProjectSettings, records: Mapping[str, StepRecord], *, running: str = ""
) -> ProjectStatus:
    """Return what a project contains, from the recorded results of its steps; `running` names the present run."""

    def result(step: str) -> Mapping[str, Any]:
        return records[step].result if step in records else {}

    log, trained, promoted, decided = (result(step) for step in ("log-model", "train", "promote", "decide"))
    counts, runs = result("ingest").get("counts", {}), sorted((folder / "runs").glob(f"*/{RECORD}"))
    findings = {name: verdict for name, (verdict, _) in trained.get("findings", {}).items()}
    return ProjectStatus(
        project=folder.name,
        source=settings.source.path,
        files=len(result("source").get("files", ())),
        searches=log.get("searches", 0),
        queries=log.get("queries", 0),
        impressions=log.get("impressions", 0),
        clicks=log.get("clicks", 0),
        broken=counts.get("quarantined", 0),
        observation=tuple(round(value, 4) for value in log.get("curve", {}).get("values", ())),
        biases=findings or log.get("tests", {}),
        judged=result("judgments").get("judged", 0),
        ranker=promoted.get("version", ""),
        since=promoted.get("since", ""),
        why=promoted.get("reason", ""),
        shadow=promoted.get("shadow", ""),
        shadow_reason=promoted.get("shadow_reason", "") if promoted.get("shadow") else "",
        decision=decided.get("reason", ""),
        published=result("publish").get("pairs", 0),
        last_run=running or (runs[-1].parent.name if runs else ""),
        attention=tuple(_attention(folder, settings, records, running=bool(running))),
    )


def _attention(
    folder: Path, settings: ProjectSettings, records: Mapping[str, StepRecord], *, running: bool
) -> list[str]:
    """Return what needs attention, one sentence each."""
    if "log-model" not in records:
        return [f"Nothing has run yet. Run: clickprism run {folder.name}"]
    log, counts = records["log-model"].result, records["ingest"].result.get("counts", {})
    trained = records["train"].result if "train" in records else {}
    promoted = records["promote"].result if "promote" in records else {}
    found = []
    if (folder / "state" / "run.json").exists() and not running:
        found.append(f"The last run did not finish. Continue it with: clickprism run {folder.name}")
    if not log["linked"]:
        found.append("No documents link all positions, so relevance cannot be separated from position bias everywhere.")
    if counts.get("quarantined", 0) > 0.01 * max(counts.get("rows", 0), 1):
        found.append(f"{counts['quarantined']:,} rows are broken. See: clickprism log quarantine {folder.name}/log")
    if (excluded := log.get("excluded", 0)) > log["pairs"]:
        why = f"seen by fewer than {settings.privacy.min_users} users (privacy.min_users)"
        found.append(f"{excluded:,} of {excluded + log['pairs']:,} pairs are not in the judgment list: {why}.")
    if trained.get("refused"):
        found.append(f"No ranker: {trained['refused']}")
    if trained.get("version") and trained.get("version") == promoted.get("version") and not trained["valued"]:
        how = "Show its order in a share of the searches, name the ranker in the events, and run"
        found.append(f"The gain of the ranker is not known. {how}: clickprism evaluate buckets {folder.name}/log")
    if promoted.get("shadow") and not promoted.get("rollout"):
        found.append(f"A newer ranker waits as shadow ({RANKERS}/{promoted['shadow']}); see the reason above.")
    if settings.source.read == "memory" and source.log_state(folder):
        found.append('Events of the service are in log/ but not used: source.read is "memory".')
    drifted = "decide" in records and any(each["drifted"] for each in records["decide"].result["changes"])
    if drifted and promoted.get("shadow"):
        found.append("The log has drifted, and the current ranker was trained before.")
    return found


def write_pages(
    run: Path,
    folder: Path,
    settings: ProjectSettings,
    started: datetime,
    *,
    steps: Sequence[Mapping[str, Any]],
    status: ProjectStatus,
    curve: Mapping[str, Sequence[float]],
) -> Path:
    """Write the page and the record of a run, and the metrics; return the page.

    Args:
        run: Folder of the run.
        folder: Folder of the project.
        settings: Settings of the project.
        started: Start of the run.
        steps: What the run did with each step.
        status: What the project contains.
        curve: The position curve with its ends, `values`, `lower` and `upper`, [positions] each; empty without one.
    """
    from clickprism.evaluation.plots import observation_curve, svg
    from clickprism.evaluation.report import write_report

    rows, figures = [], {}
    for each in steps:
        times = [f"{each['seconds']:.1f}", f"{each['cpu_seconds']:.1f}"] if each["ran"] else ["", ""]
        rows.append([each["step"], *times, each["text"] or each["reason"]])
    if curve:
        values, *ends = (np.array(curve[name]) for name in ("values", "lower", "upper"))
        drawn = observation_curve(None, {"estimate": values}, intervals={"estimate": (ends[0], ends[1])})
        title = "How often each position is observed, relative to position 1, with 95% interval"
        figures[title] = svg(drawn, title=title)
    verdict = [
        f"The log has {status.searches:,} searches with {status.clicks:,} clicks. Biases: {status.found_biases}.",
        f"Ranker {status.ranker} serves since {status.since_text}. {status.why}" if status.ranker else NO_RANKER,
        *([f"A newer ranker was not promoted. {status.shadow_reason}"] if status.shadow else []),
        f"Training: {status.decision}" if status.decision else "",
        *status.attention,
    ]
    page = write_report(
        run / REPORT,
        title=f"{folder.name}: run of {started:%Y-%m-%d %H:%M} UTC",
        summary="\n\n".join(redact(each, settings) for each in verdict if each),
        comparison=[],
        figures=figures,
        settings=to_plain(settings),
        folded={
            "What the project contains": status.tables(),
            "Steps of this run": [Table("", ["step", "seconds", "CPU seconds", "result"], rows)],
        },
        next_commands=[f"clickprism status {folder.name}", f"clickprism serve {folder.name}"],
    )
    record = {"format": "clickprism run", "version": 1, "started": started.isoformat(), "steps": list(steps)}
    write_file(run / RECORD, redact(to_json({**record, "status": status}), settings) + "\n")
    write_file(folder / settings.outputs.metrics, metrics(folder.name, started, steps, status))
    return page


def metrics(project: str, started: datetime, steps: Sequence[Mapping[str, Any]], status: ProjectStatus) -> str:
    """Return the metrics of a run in the text format of Prometheus, for the textfile collector."""
    label = project.replace("\\", "\\\\").replace('"', '\\"')
    values = {
        "run_started_timestamp_seconds": started.timestamp(),
        "run_seconds": sum(each["seconds"] for each in steps),
        "log_searches": status.searches,
        "log_clicks": status.clicks,
        "log_rows_broken": status.broken,
        "ranker_promoted_timestamp_seconds": datetime.fromisoformat(status.since).timestamp() if status.since else 0,
        "shadow": int(bool(status.shadow)),
        "attention": len(status.attention),
    }
    lines = []
    for name, value in values.items():
        number = f"{value:g}" if value < 1e6 else f"{value:.0f}"
        lines += [f"# TYPE clickprism_{name} gauge", f'clickprism_{name}{{project="{label}"}} {number}']
    lines.append("# TYPE clickprism_step_seconds gauge")
    for each in steps:
        lines.append(f'clickprism_step_seconds{{project="{label}",step="{each["step"]}"}} {each["seconds"]:g}')
    return "\n".join(lines) + "\n"
