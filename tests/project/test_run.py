"""`run`: it does what is new, continues after a kill to the same result, and says what it would do."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

import clickprism as cp
from clickprism.errors import DataError, SettingError
from clickprism.project import source
from clickprism.project.create import init
from clickprism.project.run import POINTS, Project
from clickprism.project.settings import ProjectSettings
from clickprism.project.steps import NAMES, STEPS
from clickprism.serve.bundle.deployment import Deployment
from clickprism.serve.page.view import read_project
from tests.conftest import Done
from tests.project.conftest import TASTE, Ran
from tests.project.worlds import add_day, run

SAME = ("judgments.csv", "metrics.prom", "runs/*/*", "deployment/bundles/*/*", "rankers/*/*", "rankers/*/*/*")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of models, lists and reports, without the path of the folder."""
    files = (path for pattern in SAME for path in folder.glob(pattern) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"HERE") for path in files}


def test_a_first_run_ends_in_a_served_ranker_a_list_and_a_report(ran: Ran) -> None:
    shop, first = ran.folder / "shop", ran.first
    assert [each.step for each in first.steps] == list(NAMES)
    assert all(each.ran for each in first.steps)
    assert first.status.ranker
    assert Deployment(shop / "deployment").pointer().version == first.status.ranker
    assert first.report is not None
    page = first.report.read_text()
    assert first.status.ranker in page
    assert "How often each position is observed, relative to position 1" in page
    assert "The log has 900 searches" in page
    record = json.loads((first.report.parent / "record.json").read_text())
    assert [each["step"] for each in record["steps"]] == list(NAMES)
    assert record["status"]["ranker"] == first.status.ranker
    assert (shop / "judgments.csv").read_text().splitlines()[0].startswith("query_id,document_id,query,grade")
    assert f'clickprism_log_searches{{project="shop"}} {first.status.searches}' in (shop / "metrics.prom").read_text()
    assert not (shop / "state" / "run.json").exists()


def test_the_ranker_found_what_users_like_and_the_curve_falls(ran: Ran) -> None:
    assert ran.first.status.searches == 900
    curve = ran.first.status.observation
    assert curve[0] == 1
    assert curve[5] < 0.6  # truth: 6 ** -0.7 = .285
    features = pq.read_table(ran.folder / "shop" / "state" / "features.parquet")
    assert {"x0", "x1", "x2", "posterior.estimate", "posterior.lower", "posterior.upper"} <= set(features.column_names)


def test_a_second_run_does_nothing_and_opens_no_log(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied()
    shop = folder / "shop"
    Project(shop).run()  # the copy has other paths
    before = {path: path.stat().st_mtime_ns for path in shop.rglob("*") if path.is_file() and path.name != ".lock"}
    for name in ("ingest_files", "read_logged", "fit_model"):
        monkeypatch.setattr(source, name, None)
    again = cp.Project(shop).run()
    assert not again.changed
    assert again.report is None
    after = {path: path.stat().st_mtime_ns for path in shop.rglob("*") if path.is_file() and path.name != ".lock"}
    assert before == after


def test_killed_at_every_point_it_continues_to_the_same_bytes(
    ran: Ran, forks: ForkServerContext, tmp_path: Path
) -> None:
    shutil.copytree(ran.folder / "logs", tmp_path / "logs", copy_function=shutil.copy2)
    shop = tmp_path / "shop"
    init(shop, f"{tmp_path}/logs/*.parquet")
    for point in (*POINTS, ""):
        process = forks.Process(target=run, args=(shop, point))
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if point else 0), point
    first, second = contents(ran.folder / "shop"), contents(shop)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    columns = ["query_id", "document_id", "estimate", "lower", "upper"]
    one, two = (
        pq.read_table(each / "state" / "log_model" / "estimates.parquet", columns=columns)
        for each in (ran.folder / "shop", shop)
    )
    assert one.equals(two)


@pytest.mark.long
def test_killed_at_random_moments_it_continues_to_the_same_bytes(
    ran: Ran, forks: ForkServerContext, tmp_path: Path
) -> None:
    """Forty kills at moments from a fixed seed; a run that is quicker than its moment is simply complete."""
    shutil.copytree(ran.folder / "logs", tmp_path / "logs", copy_function=shutil.copy2)
    shop, moments = tmp_path / "shop", random.Random(4)
    init(shop, f"{tmp_path}/logs/*.parquet")
    for _ in range(40):
        process = forks.Process(target=run, args=(shop,))
        process.start()
        process.join(moments.uniform(0.05, 4.0))
        process.kill()
        process.join()
    run(shop)
    first, second = contents(ran.folder / "shop"), contents(shop)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_a_dry_run_says_what_would_run_and_why_and_writes_nothing(copied: Callable[[], Path]) -> None:
    folder = copied()
    shop = folder / "shop"
    Project(shop).run()
    add_day(folder / "logs", "b", TASTE, first_day=3, searches=60)
    before = set(shop.rglob("*"))
    found = Project(shop).run(dry_run=True)
    reasons = {each.step: each.reason for each in found.steps if each.ran}
    assert reasons["source"] == "the source, the log or the settings changed"
    assert reasons["ingest"] == "if the result of source changes"
    assert set(shop.rglob("*")) == before
    assert "Dry run" in found.tables()[0].caption


def test_a_step_runs_with_what_it_needs_only(ran: Ran, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    init(shop, f"{ran.folder}/logs/*.parquet")
    found = Project(shop).run(step="log-model")
    assert [each.step for each in found.steps] == ["source", "ingest", "log-model"]
    assert not (shop / "deployment").exists()
    with pytest.raises(SettingError, match=r"step must be a step \(did you mean 'log-model'\?\)"):
        Project(shop).run(step="logmodel")
    with pytest.raises(DataError, match="has no ranker to serve"):
        Project(shop).service()


def test_a_new_file_costs_its_own_rows(copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied()
    Project(folder / "shop").run()
    add_day(folder / "logs", "b", TASTE, first_day=3, searches=60)
    given: list[list[str]] = []
    ingest = source.ingest_files

    def recorded(shop: Path, settings: ProjectSettings, files: Sequence[str], note: Callable[[str], None]) -> Any:
        given.append(list(files))
        return ingest(shop, settings, files, note)

    monkeypatch.setattr(source, "ingest_files", recorded)
    found = Project(folder / "shop").run()
    assert [[Path(each).name for each in files] for files in given] == [["b.parquet"]]
    assert found.status.searches == 960
    assert "Only" in found.status.decision  # too few new clicks to test for drift
    assert found.status.ranker


def test_a_few_new_rows_update_click_features_but_do_not_fit_the_model_again(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied()
    Project(folder / "shop").run()
    add_day(folder / "logs", "b", TASTE, first_day=3, searches=5)
    for name in ("fit_model", "read_logged"):
        monkeypatch.setattr(source, name, None)
    found = Project(folder / "shop").run()
    ran = {each.step: each.text for each in found.steps if each.ran}
    assert ran["log-model"] == "kept: 30 new rows are below 1.0%"
    assert set(ran) == {"source", "ingest", "features", "log-model", "publish"}


def test_a_table_file_that_changes_is_refused_since_its_rows_would_count_twice(copied: Callable[[], Path]) -> None:
    folder = copied()
    Project(folder / "shop").run()
    add_day(folder / "logs", "a", TASTE, first_day=1, searches=950)
    with pytest.raises(DataError, match=r"a\.parquet: has changed .*Write new rows to new files"):
        Project(folder / "shop").run()


def test_another_run_at_the_same_time_is_refused(copied: Callable[[], Path]) -> None:
    from clickprism._util.files import lock

    shop = copied() / "shop"
    with lock(shop / "state" / ".lock"), pytest.raises(DataError, match="another clickprism run is using"):
        Project(shop).run()


def test_logs_without_features_end_in_a_judgment_list(cli: Callable[..., Done], tmp_path: Path) -> None:
    sessions = tmp_path / "sessions.tsv"
    orders = ["a,b,c", "b,c,a", "c,a,b"]
    rows = [f"q{n % 7}\t{orders[n % 3]}\t{orders[n % 3][0] if n % 2 else 'a'}" for n in range(900)]
    sessions.write_text("\n".join(["query\tdocuments\tclicks", *rows]))
    cli("init", tmp_path / "list", "--source", sessions)
    done = cli("run", tmp_path / "list", "--json")
    assert done.json["status"]["judged"] == 21
    assert done.json["status"]["ranker"] == ""
    assert "the result is the judgment list" in cli("status", tmp_path / "list").stdout
    assert cli("run", tmp_path / "list").stdout == "Nothing is new: every step is up to date.\n"


def test_the_page_of_the_service_shows_the_status(ran: Ran, tmp_path: Path) -> None:
    shown = dict(read_project(Project(ran.folder / "shop").service()["project"]))
    assert shown["log"].startswith("900 searches, ")
    assert shown["training"] == "There was no ranker yet."
    assert shown["needs attention"]
    assert read_project(None) == read_project(tmp_path) == []
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "record.json").write_text('{"status": {}}')
    assert read_project(tmp_path) == []


def test_log_lines_are_json_on_request_and_status_too(copied: Callable[[], Path], cli: Callable[..., Done]) -> None:
    shop = copied() / "shop"
    lines = [json.loads(line) for line in cli("run", shop, "--log-format", "json", "-q").stderr.splitlines()]
    assert {line["step"] for line in lines} == set(NAMES)
    assert {"time", "project", "step", "event", "text"} == set(lines[0])
    assert cli("status", shop, "--json").json["searches"] == 900


def test_every_repeats_until_ctrl_c_and_goes_on_after_an_error(
    copied: Callable[[], Path], cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, waited = copied(), list[float]()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 1:
            (folder / "logs").rename(folder / "away")
        if len(waited) == 2:
            (folder / "away").rename(folder / "logs")
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("clickprism.cli.project.time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    done = cli("run", folder / "shop", "--every", "1h", code=130)
    assert waited == [3600, 3600, 3600]
    assert "there is no such file, or the folder is empty" in done.stderr
    assert "every step is up to date" in done.stdout
    waited[:] = [0.0, 0.0]
    toml = folder / "shop" / "clickprism.toml"
    toml.write_text(toml.read_text().replace('every = ""', 'every = "30m"'))
    cli("run", folder / "shop", code=130)
    assert waited[2:] == [1800]
    assert "every must be a time above 0" in cli("run", folder / "shop", "--every", "0h", code=2).stderr


def test_every_step_says_what_it_leaves_of_the_rows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "scale.md").read_text(encoding="utf-8")
    for step in STEPS:
        assert f"| `{step.name}` |" in page, step.name
