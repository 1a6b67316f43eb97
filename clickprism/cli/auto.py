"""`clickprism auto` and `clickprism diagnose`: what a log contains, and the best ranker that can be trained from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from clickprism._util.files import make_folder, write_file
from clickprism._util.tables import to_json
from clickprism.auto.run import AutoSettings
from clickprism.cli.output import Flat, LogSource, Output, command_line, program
from clickprism.data.click_table import TableSettings
from clickprism.errors import UnsupportedError
from clickprism.log.open_log import ReadSettings

DIAGNOSIS, REPORT = "diagnosis.json", "report.html"


def auto(
    log: LogSource,
    /,
    *,
    out: Path = Path("runs/auto"),
    grades: Path | None = None,
    engine: Annotated[str | None, Parameter(name="--for")] = None,
    settings: Flat[AutoSettings],
    reading: Flat[ReadSettings],
    table: Flat[TableSettings],
    output: Flat[Output],
) -> None:
    """Train, check and bundle a ranker from a click log alone.

    `auto` fits the model of the log, trains several rankers on clicks corrected for position bias, chooses one by the
    clicks of held-out queries, and checks without labels that the correction is safe. It writes a bundle to serve and
    a report with a reason for each decision. If it is interrupted, the same command continues.
    A log without features gets a report but no ranker; the exit code is then 3.

    ```bash
    clickprism auto mylog --out runs/mylog
    clickprism auto mylog --out runs/other --seed 1
    clickprism auto mylog --for opensearch --out runs/opensearch
    clickprism auto clicks.csv --map document=sku --map position=rank --ignore title --out runs/table
    clickprism auto sqlite:///shop.db --query "select * from clicks" --outcome "click + 5*cart" --out runs/shop
    ```

    Args:
        out: Folder for report.html, auto.json and bundle/.
        grades: File of grades in the TREC format (query id, 0, document id, grade). The ranker and the order of the log
            are evaluated on them at the end; nothing is trained on them.
        engine: Choose only among rankers that this engine can hold, so that `model export --for` writes them:
            elasticsearch, opensearch, solr, vespa, lightgbm, xgboost, ranklib or onnx. By default any ranker.
    """
    from clickprism.auto.report import as_plain
    from clickprism.auto.run import auto
    from clickprism.experiments.scorable_log import open_log
    from clickprism.log.store import record_result

    stages: list[str] = []
    name = Path(log).name
    reading = replace(reading, copy=reading.copy or out / "log")
    with output.status() as status:

        def report(stage: str, text: str) -> None:
            if stage not in stages:
                stages.append(stage)
                output.note(f"{stage}: {text}")
            status(f"{stage}: {text}")

        try:
            result = auto(
                lambda: open_log(log, settings=reading, table=table, outcome=settings.outcome, note=output.note).logged,
                out=out,
                settings=settings,
                grades=grades,
                engine=engine,
                name=name,
                progress=report,
            )
        except KeyboardInterrupt:
            output.note("Run the same command again to continue.")
            raise
    for ingested in (Path(log), reading.copy):
        record_result(ingested, out, command_line("auto", log, *table.options(), "--out", out))
    output.show(result.text(log=log, options=table.options(), program=program()), as_plain(result, name))
    output.note(f"\nReport: {result.report}\nEvery decision: {out / 'auto.json'}")
    if result.bundle is None:
        refused = result.stages["choice"]["refused"]
        raise UnsupportedError(refused.rstrip("."), file=log, remedy=f"See {result.report} for what to do instead")


def diagnose(
    log: LogSource,
    /,
    *,
    only: tuple[str, ...] = (),
    seed: int = 0,
    out: Path | None = None,
    reading: Flat[ReadSettings],
    table: Flat[TableSettings],
    output: Flat[Output],
) -> None:
    """Report which biases a click log contains.

    The report starts with a summary: is there position bias, how much, what it does to the ranking, whether relevance
    can be learned from the log, and what to do next. The findings on an ingested log are also saved in its folder,
    where the page of `clickprism serve` shows them.

    ```bash
    clickprism diagnose mylog --out runs/diagnosis
    clickprism diagnose sessions.tsv --only position --only trust
    ```

    Args:
        only: Name of a finding to report, such as position; may be repeated. By default all.
        seed: Random seed.
        out: Folder for diagnosis.json and report.html.
    """
    from clickprism.diagnosis.diagnose import check_names, diagnose
    from clickprism.diagnosis.report import report_of, write_page
    from clickprism.experiments.scorable_log import open_log
    from clickprism.log.store import record_result

    check_names(only or None)
    if out is not None:
        make_folder(out)
        reading = replace(reading, copy=reading.copy or out / "log")
    with output.status() as status:
        status("reading the log")
        logged = open_log(log, settings=reading, table=table, note=output.note).logged
        as_of = datetime.now(UTC).isoformat(timespec="seconds")
        diagnosis = diagnose(logged, only=only or None, seed=seed, progress=status, as_of=as_of)
    report = report_of(diagnosis, log=log, account=logged.account)
    output.result(report)
    ingested = (Path(log) / "log.toml").exists()
    folders = [*([Path(log)] if ingested and not only else []), *([] if out is None else [out])]
    for folder in folders:
        write_file(folder / DIAGNOSIS, to_json(report) + "\n")
    if out is None:
        again = command_line("diagnose", log, *table.options(), "--out", "runs/diagnosis")
        output.note(f"To write a report: {again}")
        return
    for each in (Path(log), reading.copy):
        record_result(each, out, command_line("diagnose", log, *table.options(), "--out", out))
    following = [command_line("bias", "position", log, *table.options(), "--out", "runs/curves")]
    if logged.has_features:
        following.append(command_line("auto", log, *table.options(), "--out", "runs/auto"))
    write_page(
        out / REPORT,
        diagnosis,
        log=Path(log).name or log,
        account=logged.account,
        settings={"log": log, "seed": seed, "findings": list(diagnosis.findings)},
        next_commands=following,
    )
    output.note(f"Written to {out}: {DIAGNOSIS}, {REPORT}")
