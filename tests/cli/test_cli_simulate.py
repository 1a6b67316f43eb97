"""`clickprism simulate`: its help says what holds, and what it prints next is what the README does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from clickprism.cli_old.app import app
from clickprism.experiments import ExperimentSettings
from clickprism.simulation.raw_settings import RawLogSettings

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_help_says_the_defaults() -> None:
    options = {each.name: str(getattr(each, "help", "")) for each in get_command(app).commands["simulate"].params}  # type: ignore[attr-defined]
    raw, whole = RawLogSettings(), ExperimentSettings()
    for name in ("searches", "days", "start", "schema", "compress", "files_per_day"):
        assert options[name].endswith(f"({getattr(raw, name)})."), name
    assert options["file_format"].endswith(f"({raw.format}).")
    assert f"({raw.user['name']})" in options["as_log"]
    assert f"({whole.user['name']})" in options["user"]
    assert f"({whole.sessions})" in options["sessions"]
    assert f"({whole.seed})" in options["seed"]
    assert whole.seed == raw.seed


def test_what_comes_next_is_what_the_readme_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["simulate", "--as-log", "raw", "--searches", "20", "--days", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (line,) = re.findall(r"Next: (clickprism .*)", done.stderr)
    assert f"\n{line}\n" in README
    (tmp_path / "log").mkdir()
    words[2] = "other"
    assert "--into other/log" in CliRunner().invoke(app, words).stderr


def test_simulate_writes_a_raw_log_and_rejects_conflicting_options(tmp_path: Path) -> None:
    words = ["simulate", "--as-log", str(tmp_path), "--searches", "60", "--days", "2", "--set", "robots=0", "--json"]
    done = CliRunner().invoke(app, [*words, "--user", "ubm", "--seed", "4"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["searches"] == 60
    assert summary["settings"]["user"] == {"name": "ubm"}
    assert summary["settings"]["seed"] == 4
    assert f"ingest {tmp_path / 'events'} --into" in done.stderr
    for wrong, message in (
        (["simulate"], "--out must be given, or --as-log"),
        (["simulate", "--out", "x.npz", "--days", "3"], "--days must not be given without --as-log"),
        (["simulate", "--as-log", "x", "--out", "x.npz"], "--out must not be given with --as-log"),
    ):
        refused = CliRunner().invoke(app, wrong)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.output
