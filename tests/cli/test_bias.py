"""`clickprism bias` on a session file, on simulated clicks and on an ingested log."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.cli.reference import examples
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.trust import TrustUser
from clickprism.data.clicks import save_clicks
from clickprism.examination.examine import Examination
from clickprism.examination.model import ExaminationModel, newest_model
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.engines.base import Engine
from clickprism.log.forget import forget
from clickprism.log.ingest import ingest
from clickprism.log.store import LogStore
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.log_model.results import ClickParameters
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Float64, JudgedLists, Lists, Simulation

Run = Callable[..., Any]


def judged_lists(queries: int, seed: int) -> JudgedLists:
    """Lists of six documents with random grades, without features."""
    rng, size = np.random.default_rng(seed), 6 * queries
    names = np.array([f"q{query}" for query in range(queries)])
    lists = Lists(np.zeros((size, 0), np.float32), np.arange(0, size + 1, 6), names)
    return JudgedLists(lists, rng.integers(0, 5, size).astype(np.int32))


def _relative(curve: Float64) -> Float64:
    return np.asarray(curve / curve[0])


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    judged = judged_lists(40, seed=0)
    scores = judged.grades + 2 * np.random.default_rng(1).normal(size=(3, 240))
    settings = SimulationSettings(length=4, merge="none")
    return simulate(judged, PositionUser(), sessions=8000, seed=0, settings=settings, scores=scores)


@pytest.fixture(scope="module")
def folder(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clicks.npz, sessions.tsv and the ingested log mylog."""
    folder = tmp_path_factory.mktemp("bias")
    merged, clicks = simulation.merge(), simulation.clicks
    save_clicks(merged.clicks, folder / "clicks.npz", truth=merged.truth)
    lines = ["query\tdocuments\tclicks\tdevice"]
    for number, (start, end) in enumerate(zip(clicks.offsets[:-1], clicks.offsets[1:], strict=True)):
        rows, clicked = clicks.rows[start:end], clicks.clicks[start:end] > 0
        words = [f"q{clicks.lists.list_of[rows[0]]}", ",".join(map(str, rows)), ",".join(map(str, rows[clicked]))]
        lines.append("\t".join([*words, "phone" if number % 4 else "tv"]))
    (folder / "sessions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    raw = RawLogSettings(
        searches=6000, days=2, seed=5, queries=60, randomised=0.3, robots=0.0, max_documents=6, broken=0.0, length=6
    )
    write_raw_log(folder / "raw", settings=raw)
    ingest([folder / "raw" / "events"], folder / "mylog")
    return folder


@pytest.fixture(scope="module")
def npz(folder: Path) -> Path:
    return folder / "clicks.npz"


@pytest.fixture(scope="module")
def tsv(folder: Path) -> Path:
    return folder / "sessions.tsv"


@pytest.mark.parametrize(
    "line", [line for name in ("position", "trust", "examination") for line in examples(["bias", name])]
)
def test_examples_of_the_help_run(line: str, folder: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    cli(*shlex.split(line)[1:])


def test_position_of_simulated_clicks_shows_the_truth(npz: Path, cli: Run) -> None:
    """The intervals of 8,000 sessions contain the true curve."""
    shown = cli("bias", "position", npz)
    verdict, table, facts = shown.stdout.split("\n\n")
    assert verdict.startswith("There is position bias. Lower positions are observed ")
    lines = [line.split() for line in table.splitlines()]
    assert lines[1] == ["position", "truth", "observation", "interval", "allpairs", "identified", "by"]
    assert lines[2] == ["1", "1.000", "1.000", "1.000", "documents"]
    assert len(lines) == 6
    assert "allpairs  " in facts
    assert "differs by less than 10%;" in facts or "agrees within chance (p = " in facts
    assert "relative error" in facts
    assert f"train {npz} --method ipw --methods.ipw.propensities '[1, " in shown.stderr
    found = cli("bias", "position", npz, "--json").json
    assert f"{found['tests']['position']['estimate']:.0%} as often as position 1" in verdict
    truth, curve = np.array(found["truth"]), found["curve"]
    np.testing.assert_allclose(truth, _relative(PositionUser().observation(np.arange(1, 5))), atol=0.02)
    assert (np.array(curve["lower"]) <= truth).all()
    assert (truth <= np.array(curve["upper"])).all()
    assert found["error"] == pytest.approx(np.abs(np.array(curve["values"]) / truth - 1)[1:].mean())
    assert found["error"] < 0.05
    assert found["tests"]["position"]["verdict"] == "present"
    assert found["linkage"]["identified"] == ["documents"] * 4


def test_a_session_file_gets_the_setting_but_no_command(tsv: Path, cli: Run) -> None:
    shown = cli("bias", "position", tsv).stderr
    assert "To train with this curve: --methods.ipw.propensities '[1, " in shown
    assert "Next: " not in shown


def test_position_is_the_same_for_sessions_and_for_merged_clicks(npz: Path, tsv: Path, cli: Run) -> None:
    one, other = (cli("bias", "position", file, "--json").json for file in (npz, tsv))
    for name in ("sessions", "queries", "pairs", "impressions", "clicks", "parts"):
        assert one[name] == other[name]
    for name in ("values", "lower", "upper"):
        np.testing.assert_allclose(one["curve"][name], other["curve"][name], rtol=1e-9)
    same, again = (each["references"]["allpairs"]["curve"]["values"] for each in (one, other))
    np.testing.assert_allclose(same, again, rtol=1e-9)
    assert other["truth"] is other["error"] is None


def test_position_writes_curves_a_plot_and_the_model(tsv: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "made" / "curves"
    found = cli("bias", "position", tsv, "--depth", 3, "--resamples", 5, "--out", out, "--json").json
    assert json.loads((out / "curves.json").read_text(encoding="utf-8")) == found
    assert {file.name for file in out.iterdir()} == {"curves.json", "curves.svg", "curves.png", "model"}
    model = LogModel.load(out / "model")
    assert model.curve.values.tolist() == found["curve"]["values"]
    assert model.settings == LogModelSettings(depth=3, resamples=5)
    given = cli("bias", "position", tsv, "--depth", 3, "--propensities", out / "curves.json", "--json").json
    assert given["curve"]["values"] == found["curve"]["values"]
    assert given["tests"]["position"]["note"] == "the curve was given, not estimated"
    text = cli("bias", "position", tsv, "--depth", 3, "--propensities", out / "curves.json").stdout
    assert "Position bias was not estimated." in text
    assert " to " not in text.split("\n\n")[1].split("position 1\n")[1]  # a given curve has no intervals


def test_the_top_of_the_lists_has_the_same_curve(npz: Path, tsv: Path, cli: Run) -> None:
    whole, top = (cli("bias", "position", tsv, *words, "--json").json["curve"] for words in ([], ["--depth", 3]))
    assert len(top["values"]) == 3
    assert top["values"] == pytest.approx(whole["values"][:3], rel=0.06)
    shown = cli("bias", "position", npz, "--depth", 3).stderr
    assert "estimate it for all 4 positions of the log: omit --depth" in shown
    assert "Next: " not in shown


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of 30 queries: on a desk the second result is clicked about .4 times as often as the first, on a phone
    .1 times, on each of five televisions .4 times.
    """
    lines = ["query\tdocuments\tclicks\tdevice"]
    devices = {"desk": (20, 50), "phone": (5, 50), **{f"tv{number}": (2, 5) for number in range(5)}}
    for device, (second, sessions) in devices.items():
        for query in range(30):
            for number in range(sessions):
                low = number < second + query % 3 - 1
                lines += [f"q{query}\t{top},{last}\t{top}{f',{last}' * low}\t{device}" for top, last in ("ab", "ba")]
    file = tmp_path_factory.mktemp("devices") / "sessions.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_values_of_a_column_that_differ_get_curves_of_their_own(two_devices: Path, cli: Run) -> None:
    shown = cli("bias", "position", two_devices, "--by", "device")
    note = "The curves for device = desk and device = phone differ by more than their intervals, most at position 2"
    assert note in shown.stderr
    assert "Observation by position and device\nposition  desk " in shown.stdout
    found = cli("bias", "position", two_devices, "--by", "device", "--json").json
    assert found["by"] == "device"
    curves = {name: each["values"][1] for name, each in found["contexts"].items()}
    assert list(curves) == ["desk", "other values", "phone"]
    assert list(curves.values()) == pytest.approx([0.4, 0.4, 0.1], abs=0.06)
    for name, each in found["contexts"].items():
        assert each["lower"][1] < curves[name] < each["upper"][1]
    assert found["tests"]["context"]["verdict"] == "present"
    alone = cli("bias", "position", two_devices, "--where", "device=phone", "--json").json
    assert alone["sessions"] == 3000
    assert alone["curve"]["values"][1] == pytest.approx(curves["phone"], abs=0.02)


def test_values_of_a_column_that_do_not_differ_share_a_curve(tsv: Path, two_devices: Path, cli: Run) -> None:
    shown = cli("bias", "position", tsv, "--by", "device")
    assert "The curve does not depend on device" in shown.stdout
    assert "differ" not in shown.stderr
    found = cli("bias", "position", tsv, "--by", "query-frequency", "--json").json
    assert found["contexts"] == {}
    one = cli("bias", "position", two_devices, "--by", "device", "--where", "device=desk").stdout
    assert "All sessions have the same value of device." in one


def test_a_column_of_ids_is_refused_with_a_remedy(tmp_path: Path, cli: Run) -> None:
    lines = "\n".join(f"cat\ta,b\ta\ts{i}" for i in range(2000))
    file = tmp_path / "log.tsv"
    file.write_text(f"query\tdocuments\tclicks\tid\n{lines}\n", encoding="utf-8")
    told = cli("bias", "position", file, "--by", "id", code=3).stderr
    assert "no value of id has 1,000 sessions (the largest has 1). Lower --min-sessions, or omit --by" in told


def test_broken_lines_stop_position_or_are_skipped(tsv: Path, tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "log.tsv"
    lines = tsv.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:3], "cat\ta,,b\ta\ttv", *lines[3:]]) + "\n", encoding="utf-8")
    told = cli("bias", "position", file, code=1).stderr
    assert f"{file}:4: document 2 of the list has no id" in told
    assert "--on-error quarantine" in told
    words = ["--on-error", "quarantine", "--resamples", 0, "--json"]
    shown = cli("bias", "position", file, *words)
    assert "8,000 sessions, 9,649 clicks; lines quarantined: 1" in shown.stderr
    assert shown.json["curve"] == cli("bias", "position", tsv, *words).json["curve"]


def test_known_propensities_replace_the_curve(npz: Path, tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "known.txt"
    file.write_text("0.8\n0.72\n0.56\n0.4\n", encoding="utf-8")
    shown = cli("bias", "position", npz, "--propensities", file)
    assert shown.stdout.startswith("The curve is the one you gave (--propensities). Position bias was not estimated.")
    assert "'[1, 0.9, 0.7, 0.5]'" in shown.stderr
    found = cli("bias", "position", npz, "--propensities", file, "--json").json
    assert found["curve"]["values"] == pytest.approx([1, 0.9, 0.7, 0.5])
    assert found["references"]["allpairs"]["agrees"]
    file.write_text("[1, 0.2, 0.1, 0.05]", encoding="utf-8")
    assert not cli("bias", "position", npz, "--propensities", file, "--json").json["references"]["allpairs"]["agrees"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 0.5]", "one positive number for each of the 4 positions. Give the observation probability of each"),
        ("1\nhalf\n", "is neither JSON nor one number a line"),
        ("[1, 0.5, 0, 0.1]", "has 0 at position 3; observation must be above 0"),
        ('{"theta": [1, 0.5]}', "does not have one number for each position"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_broken_propensities_are_refused(
    npz: Path, content: str | None, message: str, tmp_path: Path, cli: Run
) -> None:
    file = tmp_path / "known.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    told = cli("bias", "position", npz, "--propensities", file, code=1).stderr
    assert message in told
    assert "position 1 first" in told


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--by", "device"], 1, "the log has no column 'device'"),
        (["--by", "ranker"], 1, "the log has no column 'ranker'. It has query-frequency"),
        (["--where", "device"], 2, "--where must be written as column=value"),
        (["--confidence", "2"], 2, "--confidence must be between 0 and 1"),
        (["--resamples", "-1"], 2, "--resamples must be 0, or at least 2"),
        (["--depth", "1"], 2, "--depth must be at least 2, because a curve compares positions, got 1"),
        (["--seed", "-1"], 2, "--seed must not be negative"),
        (["--by", "query-frequency", "--min-sessions", "0"], 2, "--min-sessions must be at least 1, got 0"),
    ],
)
def test_errors_of_position_name_the_option(npz: Path, words: list[str], code: int, message: str, cli: Run) -> None:
    assert message in cli("bias", "position", npz, *words, code=code).stderr


def test_position_of_files_that_are_no_log(tmp_path: Path, cli: Run) -> None:
    told = cli("bias", "position", tmp_path / "nothing.tsv", code=1).stderr
    assert "there is no such file or folder. Name a folder that `clickprism log ingest` created" in told
    file = tmp_path / "log.npz"
    for content in (b"PK\x03\x04 and no more", b"no archive"):
        file.write_bytes(content)
        assert "is not a valid .npz file" in cli("bias", "position", file, code=1).stderr


@pytest.mark.parametrize(
    ("lines", "words", "code", "message"),
    [
        (["cat\ta,b\t"] * 20, [], 3, "has no clicks. Use a log with clicks"),
        (["cat\ta\ta"] * 20, [], 3, "has results at one position only. A curve compares positions"),
        (["cat\ta,b,c\tc"] * 20, ["--depth", 2], 3, "has no clicks at positions 1 to 2. Use a larger --depth"),
        (["cat\ta,b\ta"] * 9, [], 1, "the log has 9 clicks, too few to fit a model. Collect at least 10 clicks"),
    ],
)
@pytest.mark.parametrize("command", ["position", "trust"])
def test_logs_without_a_curve_are_refused(
    command: str, lines: list[str], words: list[object], code: int, message: str, *, tmp_path: Path, cli: Run
) -> None:
    file = tmp_path / "log.tsv"
    file.write_text("\n".join(["query\tdocuments\tclicks", *lines]) + "\n", encoding="utf-8")
    assert message in cli("bias", command, file, *words, code=code).stderr


@pytest.fixture(scope="module")
def one_ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of one ranker that never changes: no document was shown at two positions."""
    rng, lines = np.random.default_rng(4), ["query\tdocuments\tclicks"]
    for number in range(1200):
        clicked = rng.random(3) < [0.5, 0.3, 0.2]
        lines.append(f"q{number % 20}\ta,b,c\t{','.join(np.array(['a', 'b', 'c'])[clicked])}")
    file = tmp_path_factory.mktemp("one") / "log.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_a_log_that_supports_no_reference_says_why_and_how_to_repair_it(one_ranking: Path, cli: Run) -> None:
    shown = cli("bias", "position", one_ranking)
    assert shown.stdout.startswith("The log does not show whether there is position bias.")
    assert "Not identified: positions 2 to 3. There the curve is a smooth continuation" in shown.stdout
    assert "swap the results at positions 1 and 2, 2 and 3" in shown.stdout.lower()
    assert "allpairs                 not available: position 2 is not linked to position 1" in shown.stdout
    assert "randomised               not available: the log does not mark results at random positions" in shown.stdout
    assert "Do not train with this curve: some of its positions are not identified" in shown.stderr
    assert "propensities" not in shown.stderr
    found = cli("bias", "position", one_ranking, "--json").json
    assert found["references"] == {}
    assert set(found["unsupported"]) == {"allpairs", "randomised"}
    assert found["tests"]["position"]["verdict"] == "inconclusive"


def test_randomised_lists_identify_the_curve_and_check_it(tmp_path: Path, cli: Run) -> None:
    """Half of the lists are in random order; the second result is observed half as often, the third a quarter."""
    rng, lines = np.random.default_rng(3), ["query\tdocuments\tclicks\trandomised"]
    for number in range(6000):
        order = rng.permutation(3) if number % 2 else np.arange(3)
        clicked = rng.random(3) < np.array([0.6, 0.4, 0.2])[order] * [1, 0.5, 0.25]
        names, hits = np.array(["a", "b", "c"])[order], np.flatnonzero(clicked)
        lines.append(f"q{number % 30}\t{','.join(names)}\t{','.join(names[hits])}\t{number % 2}")
    file = tmp_path / "log.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = cli("bias", "position", file, "--confidence", 0.999, "--resamples", 1000, "--json").json
    assert found["linkage"]["identified"] == ["randomised"] * 3
    assert found["references"]["randomised"]["agrees"]
    for curve in (found["curve"], *(each["curve"] for each in found["references"].values())):
        assert curve["values"] == pytest.approx([1, 0.5, 0.25], abs=0.06)
        assert (np.array(curve["lower"]) <= [1, 0.5, 0.25]).all()
        assert (np.array(curve["upper"]) >= [1, 0.5, 0.25]).all()


def hostile(file: Path, **columns: list[int]) -> Path:
    """Write two ranked lists of two documents in both orders, with some of the columns replaced."""
    usual = {"offsets": [0, 2, 4], "rows": [0, 1, 1, 0], "clicks": [50, 20, 40, 10], "impressions": [100, 100]}
    made = {name: np.array(values, dtype=np.int64) for name, values in (usual | columns).items()}
    made["positions"] = np.array(columns.get("positions", [1, 2, 1, 2]), dtype=np.int32)
    np.savez(file, format="clickprism clicks", version=1, fingerprint="", **made)  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize(
    ("columns", "code", "message"),
    [
        ({"rows": [0, 1, -1, 0]}, 1, "rows must not be negative"),
        ({"positions": [1, 2, 1, 2**31 - 1]}, 1, "has a position 2,147,483,647"),
        ({"impressions": [2**62, 2**62]}, 1, "more sessions than can be counted"),
        ({"offsets": [0, 5, 4]}, 1, "offsets of clicks must not decrease"),
        ({"positions": [1, 2, 1, 100_000]}, 3, r"positions down to 100,000.*--depth"),
    ],
)
def test_hostile_numbers_are_refused(
    columns: dict[str, list[int]], code: int, message: str, tmp_path: Path, cli: Run
) -> None:
    assert re.search(message, cli("bias", "position", hostile(tmp_path / "log.npz", **columns), code=code).stderr)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated clicks of users with trust bias."""
    judged = judged_lists(60, seed=0)
    scores = judged.grades + 2 * np.random.default_rng(1).normal(size=(4, 360))
    settings = SimulationSettings(length=4, gain="linear", noise=0)
    made = simulate(judged, TrustUser("hyperbolic"), sessions=40_000, seed=0, settings=settings, scores=scores)
    file = tmp_path_factory.mktemp("trust") / "clicks.npz"
    save_clicks(made.clicks, file, truth=made.truth)
    return file


def test_trust_bias_of_simulated_users_is_found(trusting: Path, npz: Path, cli: Run) -> None:
    """These users click on whatever is at position 1 with .65; the users of the other log have no trust."""
    shown = cli("bias", "trust", trusting)
    assert shown.stdout.startswith("There is trust bias. Trust adds 0.")
    assert "P(click at position k) = alpha P(click at position 1) + beta; 95% intervals" in shown.stdout
    assert "clicks do not identify the level" in shown.stderr
    test = cli("bias", "trust", trusting, "--json").json["tests"]["trust"]
    assert test["verdict"] == "present"
    assert test["estimate"] == pytest.approx(0.65, abs=0.1)
    assert test["lower"] < test["estimate"] < test["upper"]
    plain = cli("bias", "trust", npz)
    assert "There is trust bias" not in plain.stdout
    assert "Every beta is 0." in plain.stdout


def test_the_parameters_of_trust_are_written(trusting: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "runs" / "trust.json"
    shown = cli("bias", "trust", trusting, "--out", out)
    assert f"Written: {out}" in shown.stderr
    parameters = ClickParameters.read(out)
    curve = cli("bias", "position", trusting, "--json").json["curve"]
    assert parameters.alpha.tolist() == curve["values"]
    assert parameters.source == "log model"
    assert parameters.beta[0] == 0
    found = cli("bias", "position", trusting, "--propensities", out, "--json").json
    assert found["curve"]["values"] == curve["values"]


def test_the_next_command_of_trust_runs(folder: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shown = cli("bias", "trust", "mylog", "--out", "mine.json").stderr
    (line,) = re.findall(r"Next: \S+ (.*)", shown)
    assert line == "relevance estimate mylog --estimator affine --parameters mine.json --out estimates.parquet"
    assert cli(*shlex.split(line), "--min-users", 0, "--json").json["pairs"] > 100


def test_depth_and_confidence_of_trust(trusting: Path, cli: Run) -> None:
    def read(*words: object) -> Any:
        return cli("bias", "trust", trusting, *words, "--json").json

    one, short = read(), read("--depth", 3, "--confidence", 0.5)
    assert one == read()
    assert len(short["parameters"]["alpha"]) == 3
    assert short["parameters"]["theta"] is None
    width = [each["curve"]["upper"][1] - each["curve"]["lower"][1] for each in (one, short)]
    assert width[1] < 0.5 * width[0]


def test_errors_of_trust_name_the_option(trusting: Path, tmp_path: Path, cli: Run) -> None:
    def refused(*words: object, code: int = 2) -> Any:
        return cli("bias", "trust", trusting, *words, code=code)

    assert "--out must end in .json" in refused("--out", tmp_path / "x").stderr
    assert "--depth must be at least 2" in refused("--depth", 1).stderr
    assert "--resamples must be 0" in refused("--resamples", 1).stderr
    assert "has no column 'device'" in refused("--where", "device=tv", code=1).stderr


def test_trust_of_one_ranking_is_inconclusive(one_ranking: Path, cli: Run) -> None:
    shown = cli("bias", "trust", one_ranking).stdout
    assert shown.startswith("The log does not show whether there is trust bias.")
    assert "Too few documents were shown at several positions." in shown
    assert "swap the results at positions 1 and 2" in shown.lower()


@pytest.fixture(scope="module")
def displayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the ingested log of users whose display times were recorded, and its raw files."""
    folder = tmp_path_factory.mktemp("displayed")
    write_raw_log(folder / "raw", RawLogSettings(searches=3000, days=2, seed=5))
    ingest([folder / "raw" / "events"], folder / "log")
    return folder


def test_examination_fits_the_current_model_of_a_log(displayed: Path, cli: Run) -> None:
    """The bar: AUC 0.90 against what the simulated users truly observed, on held-out searches."""
    truth, report = displayed / "raw" / "truth", displayed / "report" / "page.html"
    found = cli("bias", "examination", displayed / "log", "--truth", truth, "--out", report, "--json").json
    assert found["truth"]["quality"]["auc"] >= 0.9
    assert found["quality"]["auc"] >= 0.9
    kinds = ("positive", "negative", "between", "missing")
    assert found["counts"]["rows"] == sum(found["counts"][kind] for kind in kinds)
    first = [point["value"] for point in found["by_position"] if point["page"] == 1]
    assert first == sorted(first, reverse=True)
    assert found["warning"] is None
    model = newest_model(displayed / "log" / "models")
    assert model is not None
    assert model.fingerprint == found["fingerprint"]
    assert list(model.sessions) == found["days"]
    names = {path.name for path in report.parent.iterdir()}
    assert names == {"page.html", "page-position.png", "page-anchor.png", "page-calibration.png"}
    page = report.read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "Against true observation: AUC 0.9" in page
    before = len(list((displayed / "log" / "models").iterdir()))
    assert "true observation" not in cli("bias", "examination", displayed / "log").stdout
    assert len(list((displayed / "log" / "models").iterdir())) == before


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--days", "2024-01-02..2024-01-01"], 2, "--days must have the earlier day first"),
        (["--days", "january"], 2, "--days must be two days such as"),
        (["--days", "2020-01-01"], 3, "has no sessions from 2020-01-01 to 2020-01-01"),
        (["--out", "report.pdf"], 2, "--out must end in .html"),
        (["--negative-ms", "6000"], 2, "--negative-ms must be from 1 to positive_ms (5000), got 6000"),
        (["--positive-ms", "90000000"], 3, "lower --positive-ms, or compute click features without estimates"),
        (["--engine", "oracle"], 2, "--engine must be duckdb"),
        (["--truth", "nowhere"], 1, "nowhere: has no Parquet files"),
    ],
)
def test_errors_of_examination_say_what_to_do(
    displayed: Path, words: list[str], code: int, text: str, cli: Run
) -> None:
    assert text in cli("bias", "examination", displayed / "log", *words, code=code).stderr


def test_examination_of_no_log(tmp_path: Path, cli: Run) -> None:
    assert "is not a click log" in cli("bias", "examination", tmp_path, code=1).stderr


def test_examination_uses_the_settings_of_the_log(displayed: Path, tmp_path: Path, cli: Run) -> None:
    log = shutil.copytree(displayed / "log", tmp_path / "log")
    with (log / "log.toml").open("a", encoding="utf-8") as file:
        file.write("\n[examination]\npositive_ms = 4000\n")
    settings = cli("bias", "examination", log, "--trees", 3, "--json").json["settings"]
    assert (settings["positive_ms"], settings["trees"]) == (4000, 3)


def forget_one(store: LogStore, engine: Engine) -> None:
    users = [user for user in store.table("sessions").read(["user_id"])["user_id"].to_pylist() if user is not None]
    forget(store, engine, [users[0]])


def test_a_user_forgotten_while_a_model_is_trained_is_not_in_it(
    displayed: Path, tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(displayed / "log", tmp_path / "log", ignore=shutil.ignore_patterns("models"))
    module = sys.modules["clickprism.examination.examine"]
    store, train, trained = LogStore.open(tmp_path / "log"), module.examine, []

    def slow(store: LogStore, engine: Engine, **asked: Any) -> tuple[ExaminationModel, Examination]:
        model, found = train(store, engine, **asked)
        trained.append(model)
        if len(trained) < 2:
            forget_one(store, engine)
        return model, found

    monkeypatch.setattr(module, "examine", slow)
    shown = cli("bias", "examination", tmp_path / "log")
    assert "The sessions changed while the model was trained: training again" in shown.stderr
    model = newest_model(store.folder / "models")
    assert model is not None
    assert [dict(each.sessions) == dict(model.sessions) for each in trained] == [False, True]
    assert len(list((store.folder / "models").glob("*.json"))) == 1

    monkeypatch.setattr(module, "examine", lambda store, *_, **__: (outdated(store), None))
    refused = cli("bias", "examination", tmp_path / "log", code=1)
    assert "changed during each of 3 attempts to train a model; no model was saved" in refused.stderr
    assert newest_model(store.folder / "models") == model


def outdated(store: LogStore) -> ExaminationModel:
    """Return a model of days that have changed since."""
    days = store.table("sessions").days()
    return ExaminationModel("", ExaminationSettings(), {day.isoformat(): "other" for day in days})


def test_a_log_without_display_times_is_refused_before_any_work(tmp_path: Path, cli: Run) -> None:
    row = {"search_id": "s", "query": "cat", "document_id": "a", "position": 1, "time": "2026-01-01T00:00:00Z"}
    (tmp_path / "events.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    ingest([tmp_path / "events.jsonl"], tmp_path / "log")
    refused = cli("bias", "examination", tmp_path / "log", code=3).stderr
    assert "no session row of this log has a display time" in refused
    assert LogStore.open(tmp_path / "log").table("sessions").days() == []


def test_a_small_log_gets_a_warning(tmp_path: Path, cli: Run) -> None:
    write_raw_log(tmp_path / "raw", RawLogSettings(searches=150, days=1, robots=0, seed=5))
    ingest([tmp_path / "raw" / "events"], tmp_path / "log")
    shown = cli("bias", "examination", tmp_path / "log", "--json")
    assert "Uncertain: only " in shown.stderr
    assert shown.json["warning"] in shown.stderr


def test_click_models_are_compared_on_held_out_sessions(tsv: Path, cli: Run) -> None:
    """The users are those of the position-based model: it is the best, and its curve is theirs."""
    words = ["--model", "rank", "--model", "pbm", "--model", "global", "--held-out", 0.5, "--json"]
    found = cli("bias", "click-models", tsv, *words).json
    assert found["sessions"] + found["held_out"] == 8000
    assert abs(found["held_out"] - 4000) < 200
    assert [model["name"] for model in found["models"]] == ["pbm", "rank", "global"]
    best, rank, _ = found["models"]
    assert best["behind"] == [0, 0]
    assert rank["behind"][0] == pytest.approx(best["log_likelihood"] - rank["log_likelihood"])
    assert rank["behind"][0] > 3 * rank["behind"][1] > 0
    assert len(best["perplexity_by_position"]) == 4
    assert best["perplexity"] == pytest.approx(np.mean(best["perplexity_by_position"]))
    assert rank["observation"] is None
    np.testing.assert_allclose(best["observation"], _relative(PositionUser().observation(np.arange(1, 5))), rtol=0.1)
    assert found == cli("bias", "click-models", tsv, *words).json
    assert found["held_out"] != cli("bias", "click-models", tsv, *words, "--seed", 1).json["held_out"]


def test_click_models_show_the_best_first_and_all_curves(tsv: Path, cli: Run) -> None:
    shown = cli("bias", "click-models", tsv, "--model", "rank", "--model", "ubm").stdout
    overall, perplexity, curves = shown.split("\n\n")
    assert "compared on" in overall
    assert [line.split()[0] for line in overall.splitlines()[1:]] == ["model", "ubm", "rank"]
    assert perplexity.splitlines()[1].split() == ["position", "ubm", "rank"]
    assert curves.splitlines()[1].split() == ["position", "ubm"]
    assert "Observation" not in cli("bias", "click-models", tsv, "--model", "rank").stdout


def test_click_models_need_sessions(npz: Path, tsv: Path, tmp_path: Path, cli: Run) -> None:
    refused = cli("bias", "click-models", npz, code=3).stderr
    assert "not known what was clicked together" in refused
    assert "--simulation.merge pattern" in refused
    assert "did you mean 'ubm'" in cli("bias", "click-models", tsv, "--model", "ubn", code=2).stderr
    assert "--held-out must be from 0.001 to 0.999" in cli("bias", "click-models", tsv, "--held-out", 1, code=2).stderr
    file = tmp_path / "log.tsv"
    file.write_text("query\tdocuments\tclicks\ncat\ta,b\ta\n", encoding="utf-8")
    assert "1 sessions are too few" in cli("bias", "click-models", file, code=3).stderr
