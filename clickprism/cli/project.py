"""`clickprism init`, `run` and `status`: a folder of logs becomes a ranker that stays right."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from clickprism.cli.output import Flat, Output
from clickprism.errors import ClickprismError, SettingError


def init(
    project: Path,
    /,
    *,
    source: str,
    map: tuple[str, ...] = (),  # noqa: A002 - as in the other commands that read tables
    mapping: Path | None = None,
    sql: str = "",
    outcome: str = "click",
    replace: bool = False,
    output: Flat[Output],
) -> None:
    """Create a project: look at a log and write clickprism.toml.

    The command finds out the format, which column holds what, the days, and the number of the first position. It shows
    five rows and what it understood; correct clickprism.toml if something is wrong. It trains nothing.

    ```bash
    clickprism init shop --source "raw/events"
    clickprism init tables --source "logs/*.parquet" --map document=sku --map click=was_clicked
    clickprism init db --source "sqlite:///shop.db" --sql "select * from clicks"
    ```

    Args:
        project: Folder of the project; it is created if it is missing.
        source: File, folder, quoted pattern, URL of a database, or remote folder (s3://, gs://). Write passwords as
            ${NAME}: the environment variable is read when it is used.
        map: Role and column of a table, such as document=sku, for columns without a usual name; may be repeated.
        mapping: TOML file that says which field of the events holds what, for events in no known format.
        sql: Query to a database.
        outcome: What rankers are trained for: click, or for tables such as "click + 5*booking".
        replace: Replace an existing clickprism.toml.
    """
    from clickprism.project.create import init

    output.result(init(project, source, map=map, mapping=mapping, sql=sql, outcome=outcome, replace=replace))
    output.note(f"Written: {project / 'clickprism.toml'}. Check it")
    output.next("run", project)


def run(
    project: Path,
    /,
    *,
    step: str = "",
    dry_run: bool = False,
    since: str = "",
    every: timedelta | None = None,
    log_format: Literal["text", "json"] = "text",
    output: Flat[Output],
) -> None:
    """Bring a project up to date: ingest, train, compare and publish what is new.

    A step runs only if something that it depends on has changed. A run that was interrupted continues. A new ranker is
    promoted only if it is better than the current one. Every run that does something writes runs/TIME/report.html and
    record.json. Exit code 0: done, or nothing was new; 1: failed; 3: the log does not support what was asked.

    ```bash
    clickprism run shop
    clickprism run shop --dry-run
    clickprism run shop --step log-model
    ```

    Args:
        project: Folder of the project.
        step: Bring only this step up to date, with the steps that it needs: source, ingest, features, log-model,
            judgments, decide, train, compare, promote or publish.
        dry_run: Say what would run and why, and do nothing.
        since: First day to use for the model and the training, such as 2026-03-01; by default training.since.
        every: Run again after this time, such as 1h, until Ctrl-C; errors are printed and the next run follows. By
            default `every` of clickprism.toml.
        log_format: Progress on standard error as text, or as one JSON object a line.
    """
    from clickprism.project.run import Project
    from clickprism.project.settings import period

    if every is not None and every <= timedelta(0):
        raise SettingError("every", str(every), "be a time above 0, such as 1h")

    def print_event(name: str, event: str, text: str) -> None:
        if log_format == "json":
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"time": now, "project": project.name, "step": name, "event": event, "text": text}
            print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)
        elif event == "done" and not output.show_progress:  # on a terminal, the table at the end says it
            output.note(f"{name}: {text}")
        elif event != "current":
            show(f"{name}: {text}")

    if every is None and not (step or dry_run) and (planned := Project(project).settings.every):
        every = period("every", planned)
    while True:
        begun = time.monotonic()
        with output.status() as show:
            try:
                result = Project(project).run(step=step, dry_run=dry_run, since=since, listen=print_event)
            except ClickprismError as error:
                if every is None:
                    raise
                print(f"error: {error}", file=sys.stderr, flush=True)
                result = None
        if result is not None:
            output.result(result, one_of_many=every is not None)
            if result.report is not None:
                output.note(f"Report: {result.report}")
        if every is None:
            return
        time.sleep(max(every.total_seconds() - (time.monotonic() - begun), 0.0))


def status(project: Path, /, *, output: Flat[Output]) -> None:
    """Show what a project contains, which ranker serves, and what needs attention.

    ```bash
    clickprism status shop
    ```

    Args:
        project: Folder of the project.
    """
    from clickprism.project.run import Project

    output.result(Project(project).status())
