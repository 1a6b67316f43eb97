"""`clickprism observe` on a session file and on a simulated log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app
from clickprism.data.clicks import load_bare, save_clicks
from clickprism.data.sessions import read_log
from clickprism.errors import DataError
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import JudgedLists, Lists, Simulation
from clickprism.users.pbm import PositionUser


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["observe", *map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def read(*words: object) -> Any:
    return json.loads(run(*words, "--json", "--quiet").stdout)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    rng = np.random.default_rng(0)
    lists = Lists(np.zeros((240, 0), np.float32), np.arange(0, 241, 6), np.array([f"q{i}" for i in range(40)]))
    judged = JudgedLists(lists, rng.integers(0, 5, 240).astype(np.int32))
    scores = judged.grades + 2 * rng.normal(size=(3, 240))
    settings = SimulationSettings(length=4, merge="none")
    return simulate(judged, PositionUser(), sessions=8000, seed=0, settings=settings, scores=scores)


@pytest.fixture(scope="module")
def npz(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("log") / "clicks.npz"
    merged = simulation.merge()
    save_clicks(merged.clicks, file, truth=merged.truth)
    return file


@pytest.fixture(scope="module")
def tsv(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("log") / "log.tsv"
    clicks = simulation.clicks
    lines = ["query\tdocuments\tclicks\tdevice"]
    for i, (start, end) in enumerate(zip(clicks.offsets[:-1], clicks.offsets[1:], strict=True)):
        rows, hit = clicks.rows[start:end], clicks.clicks[start:end] > 0
        query = clicks.lists.list_of[rows[0]]
        lines.append(
            f"q{query}\t{','.join(map(str, rows))}\t{','.join(map(str, rows[hit]))}\t{'phone' if i % 4 else 'tv'}"
        )
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_a_simulated_log_shows_the_truth_and_the_next_command(npz: Path) -> None:
    shown = run(npz, "--bootstrap", 20, "--method", "allpairs", "--method", "randomised", "--method", "allpairs")
    lines = shown.stdout.splitlines()
    assert lines[0] == "all: 8,000 sessions; 95% intervals, drawn by query"
    assert lines[2].split() == ["position", "truth", "allpairs"]
    assert lines[3].split() == ["1", "1.000", "1.000"]
    assert len(lines[4].split("[")) == 2
    assert "off the truth" in shown.stdout
    assert "randomised  not supported: documents are not spread" in shown.stdout
    assert f"train --clicks {npz} --method ipw --set 'methods.ipw.propensities=[1," in shown.stderr


def test_both_files_give_the_same_curves(npz: Path, tsv: Path) -> None:
    words = ["--bootstrap", 0, "--method", "allpairs", "--method", "pbm"]
    one, other = read(npz, *words), read(tsv, *words)
    assert one["sessions"] == other["sessions"] == 8000
    for name in ("allpairs", "pbm"):
        np.testing.assert_allclose(one["curves"][name]["values"], other["curves"][name]["values"], rtol=1e-5)
    assert one["best"] == "allpairs"
    assert other["truth"] is None
    assert one["curves"]["pbm"]["error"] < 0.2
    assert other["curves"]["pbm"]["lower"] == [None] * 4


def test_parts_conditions_and_files(tsv: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "curves"
    shown = run(tsv, "--by", "device", "--least-sessions", 3000, "--depth", 3, "--bootstrap", 5, "--out", out)
    assert "device = phone: 6,000 sessions" in shown.stdout
    assert "device = tv: only 2,000 sessions, left out" in shown.stdout
    facts = json.loads((out / "curves.json").read_text(encoding="utf-8"))
    assert len(facts["curves"]["allpairs"]["values"]) == 3
    assert facts["left_out"] == {"tv": 2000}
    assert {file.name for file in out.iterdir()} == {
        f"{name}.{kind}" for name in ("curves", "parts") for kind in ("svg", "png")
    } | {"curves.json"}
    assert read(tsv, "--where", "device=tv", "--method", "click-through", "--bootstrap", 0)["sessions"] == 2000


def test_a_log_that_supports_nothing_says_so(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text('query,documents,clicks\ncat,"a,b",a\ncat,"a,b,a",a\n', encoding="utf-8")
    broken = run(file, code=3)
    assert f"{file}:3: document 'a' stands twice in the list" in broken.stderr
    shown = run(file, "--on-error", "quarantine", "--bootstrap", 0)
    assert "1 broken lines left out" in shown.stderr
    assert "allpairs       not supported: positions 1 and 2 are not linked" in shown.stdout
    assert "Next" not in shown.stderr


def test_a_session_file_gets_the_setting_but_no_command(tsv: Path) -> None:
    shown = run(tsv, "--bootstrap", 0, "--method", "allpairs").stderr
    assert "needs features: methods.ipw.propensities=[1," in shown
    assert "train --" not in shown


def test_parts_that_differ_are_told_and_known_reasons_are_not_repeated(tmp_path: Path) -> None:
    lines = ["query\tdocuments\tclicks\tdevice"]
    for device, second in (("desk", 40), ("phone", 10)):
        for number in range(100):
            low = int(number < second)
            lines += [f"q\ta,b\t{'a,b' if low else 'a'}\t{device}", f"q\tb,a\t{'a,b' if low else 'b'}\t{device}"]
    file = tmp_path / "log.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["--by", "device", "--least-sessions", 1, "--bootstrap", 50, "--method", "allpairs", "--pivot", 9]
    shown = run(file, *words, "--method", "pivot")
    note = "device = desk and device = phone differ beyond their intervals, most at position 2 (0.400 and 0.100)"
    assert note in shown.stderr
    assert shown.stdout.count("there is no position 9") == 1
    assert shown.stdout.count("not supported: as above") == 2
    assert "differ" not in run(file, *words, "--where", "device=desk").stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--method", "allpair"], 2, "did you mean 'allpairs'"),
        (["--by", "device"], 3, "the log has no column 'device'"),
        (["--where", "device"], 2, "--where must be written as column=value"),
        (["--confidence", "2"], 2, "--confidence must be between 0 and 1"),
        (["--bootstrap", "-1"], 2, "--bootstrap must be 0, or at least 2"),
        (["--depth", "1"], 2, "--depth must be at least 2"),
        (["--unit", "session"], 3, "merged by list"),
        (["--unit", "session"], 3, "--unit query or list. Simulate with --set simulation.merge=pattern"),
        (["--by", "query-frequency", "--least-sessions", "0"], 2, "--least-sessions must be at least 1, got 0"),
    ],
)
def test_errors(npz: Path, words: list[str], code: int, message: str) -> None:
    assert message in run(npz, *words, code=code).stderr


def test_files_that_are_none(tmp_path: Path) -> None:
    assert "cannot be read" in run(tmp_path / "nothing.tsv", code=3).stderr
    file = tmp_path / "log.npz"
    file.write_bytes(b"PK\x03\x04 and no more")
    assert "is not a sound .npz file" in run(file, code=3).stderr
    file.write_bytes(b"no archive")
    assert "is not a sound .npz file" in run(file, code=3).stderr


def test_clicks_without_their_documents(simulation: Simulation, npz: Path) -> None:
    clicks, truth = load_bare(npz)
    merged = simulation.merge()
    assert truth is not None
    assert np.array_equal(truth.observed, merged.truth.observed)
    for name in ("offsets", "positions", "clicks", "impressions"):
        assert np.array_equal(getattr(clicks, name), getattr(merged.clicks, name))
    known, rows = np.unique(merged.clicks.rows, return_inverse=True)
    assert np.array_equal(clicks.rows, rows)
    starts = known[clicks.lists.offsets[:-1]]
    assert set(simulation.clicks.lists.list_of[starts]) == set(range(40))
    np.testing.assert_allclose(read_log(npz).observation, merged.observation)  # type: ignore[arg-type]


def test_unsound_offsets_are_refused(tmp_path: Path, simulation: Simulation) -> None:
    file = tmp_path / "bad.npz"
    save_clicks(simulation.merge().clicks, file)
    with np.load(file) as columns:
        stored = dict(columns)
    stored["offsets"] = stored["offsets"] + 1
    np.savez(file, **stored)
    with pytest.raises(DataError, match="offsets of clicks must run from 0"):
        load_bare(file)


def write(file: Path, **columns: list[int]) -> Path:
    """Two ranked lists of two documents that traded places, some of the columns replaced."""
    usual = {"offsets": [0, 2, 4], "rows": [0, 1, 1, 0], "clicks": [50, 20, 40, 10], "impressions": [100, 100]}
    made = {name: np.array(values, dtype=np.int64) for name, values in (usual | columns).items()}
    made["positions"] = np.array(columns.get("positions", [1, 2, 1, 2]), dtype=np.int32)
    np.savez(file, format="clickprism clicks", version=1, fingerprint="", **made)  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rows": [0, 1, -1, 0]}, "rows must not be negative"),
        ({"positions": [1, 2, 1, 2**31 - 1]}, "has a position 2,147,483,647"),
        ({"impressions": [2**62, 2**62]}, "more sessions than can be counted"),
        ({"offsets": [0, 5, 4]}, "offsets of clicks must not decrease"),
        ({"positions": [1, 2, 1, 100_000]}, r"goes down to position 100,000.*--depth"),
    ],
)
def test_hostile_numbers_are_refused(columns: dict[str, list[int]], message: str, tmp_path: Path) -> None:
    assert re.search(message, run(write(tmp_path / "log.npz", **columns), code=3).stderr)


def test_sparse_rows_and_empty_lists_are_sound(tmp_path: Path) -> None:
    """Rows as far apart as they can be cost nothing; a list that shows nothing joins no queries."""
    far = write(
        tmp_path / "log.npz", rows=[0, 1, 2**62, 2**62 + 1], offsets=[0, 2, 2, 4, 4], impressions=[100, 5, 100, 5]
    )
    clicks, _ = load_bare(far)
    assert clicks.lists.offsets.tolist() == [0, 2, 4]
    assert clicks.rows.tolist() == [0, 1, 2, 3]


def test_parts_of_a_column_of_ids_are_soon_told(tmp_path: Path) -> None:
    lines = "\n".join(f"cat\ta,b\ta\ts{i}" for i in range(20_000))
    file = tmp_path / "log.tsv"
    file.write_text(f"query\tdocuments\tclicks\tid\n{lines}\n", encoding="utf-8")
    shown = run(file, "--by", "id", "--method", "click-through", "--bootstrap", 0).stdout
    assert "id = s0: only 1 sessions, left out" in shown
    assert "and 19,990 more values with fewer than 1,000 sessions" in shown
    assert shown.count("left out") == 11


def test_no_curve_at_all_is_an_error(npz: Path) -> None:
    shown = run(npz, "--method", "randomised", "--bootstrap", 0, "--json", code=3)
    assert "random" in json.loads(shown.stdout)["refused"]["randomised"]
    assert "the log supports none of the estimators" in shown.stderr
    beyond = run(npz, "--method", "pivot", "--method", "allpairs", "--pivot", 9, "--bootstrap", 0)
    assert "pivot      not supported: there is no position 9" in beyond.stdout
