import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from reproduce.common import files, pool
from reproduce.common.cli import INTERRUPTED, How
from reproduce.common.results import mark_of
from reproduce.common.training import RULES
from reproduce.lbd import __main__ as entry
from reproduce.lbd import runs
from reproduce.lbd.__main__ import all_runs, main, parser, plan_of, reproduce
from reproduce.lbd.config import CANDIDATES, EXPECTED, LEADING, MEASURES, SIZES, TABLE, Size
from reproduce.lbd.plan import PARTS, Plan, Trial
from reproduce.lbd.report import figure
from reproduce.lbd.rows import Results, Row, rows_of
from reproduce.lbd.runs import Run, World

TINY = Size(
    queries=(60, 20, 30),
    sessions=40,
    couplings=(0.1,),
    seeds=(0, 1),
    rankers={"linear": {"name": "linear"}},
    epochs=3,
    batch_size=32,
    penalties={"linear": (0.0, 1.0)},
    drops=(0.0, 0.5),
    maps=(0.1,),
    map_seeds=1,
    map_rankers=("linear",),
    tuning_seeds=1,
)
TRIALS = {  # that choose 1 and .5
    ("linear", coupling): tuple(Trial(each, sum(each), sum(each)) for each in ((0.0, 0.5), (1.0, 0.0), (1.0, 0.5)))
    for coupling in (0.1, 0.3)
}
WORLD = World("embedded", 1, (60, 20, 30), 40, 0.3, 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """Everything at once, as small as can be, in this process."""
    out = tmp_path_factory.mktemp("out")
    return out, reproduce(Plan("embedded", TINY), How(out, jobs=1))


def test_the_key_is_that_of_the_settings_alone() -> None:
    run = Run(WORLD, {"name": "linear"}, "click")
    assert run.key == Run(WORLD, {"name": "linear"}, "click").key
    others = [
        replace(run, method="dla"),
        replace(run, settings={"drop": 0.1}),
        replace(run, source="effect"),
        replace(run, epochs=7),
        replace(run, ranker={"name": "mlp"}),
        replace(run, world=replace(WORLD, coupling=0.1)),
        replace(run, world=replace(WORLD, seed=1)),
    ]
    assert len({run.key, *[other.key for other in others]}) == len(others) + 1


def test_what_is_the_same_run_is_shared() -> None:
    made = Plan("embedded", TINY, trials=TRIALS)
    assert made.of("labels", "linear", 0.3) == made.of("labels", "linear", 0.0)
    cells = {run.key for setting in made.grid("linear") for run in made.cell("linear", 0.3, setting, seeds=1)}
    for label, settings in {
        "lbd_paper": {"penalty": 1.0, "drop": 0.5},
        "lbd-lips": {"penalty": 1.0, "drop": 0.0},
        "lbd-ber": {"penalty": 0.0, "drop": 0.5},
        "unlimited": {"penalty": 0.0, "drop": 0.0},
    }.items():
        first = made.of(label, "linear", 0.3)[0]
        assert first.settings == settings
        assert first.key in cells
    assert made.cell("linear", 0.3, (1.0, 1.0), seeds=1) == made.cell("linear", 0.3, (0.0, 1.0), seeds=1)


def test_every_run_stands_once_and_in_the_order_of_its_log() -> None:
    listed = Plan("embedded", TINY).runs()
    assert len({run.key for run in listed}) == len(listed)
    kept = [run.method in ("click", "dla", "lbd", "lbd_paper", "lbd_code") and run.source == "log" for run in listed]
    order = [(run.world.seed, run.world.coupling) for run in listed[: kept.index(False)]]
    assert order == sorted(order)  # what is claimed comes first
    rest = [(run.world.seed, run.world.coupling) for run in listed[kept.index(False) :]]
    assert rest == sorted(rest)
    assert len(Plan("mq2008", TINY).worlds(0.3, [0, 1])) == 10


def test_a_result_is_computed_once_and_a_broken_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Run] = []
    result = {"run": {}, "seconds": 2.0, "cpu_seconds": 1.0}

    def make(run: Run, _: Path | None) -> dict[str, Any]:
        made.append(run)
        return result

    monkeypatch.setattr(runs, "make", make)
    run = Run(WORLD, {"name": "linear"}, "click")
    assert files.perform(run, tmp_path, None) == files.perform(run, tmp_path, None) == result
    assert len(made) == 1
    for broken in ('{"seconds": 2', "{}", "[]", '{"run": {}}', '{"run": {}, "seconds": 2.0}'):
        files.path_of(run, tmp_path).write_text(broken)
        assert not files.done(run, tmp_path)
        assert pool.Clock([run], tmp_path).seconds(run) == run.guess()
        made.clear()
        pool.perform_all([run], out=tmp_path, folder=None, jobs=1, what="again")
        assert made == [run]
        assert files.done(run, tmp_path)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [f"{run.key}.json"]


def test_the_time_left_is_estimated_from_similar_runs(tmp_path: Path) -> None:
    world = replace(WORLD, queries=(3000, 300, 1000))
    known, alike = (Run(replace(world, seed=seed), {"name": "linear"}, "click") for seed in (0, 1))
    other = Run(world, {"name": "linear"}, "dla")
    path = files.path_of(known, tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps({"run": {}, "seconds": 10.0, "cpu_seconds": 10.0}))
    clock = pool.Clock([known], tmp_path)
    assert clock.seconds(alike) == 10.0
    assert clock.seconds(other) == other.guess() == pytest.approx(3.6)
    assert clock.total([alike, other], 2) == pytest.approx((10 + 3.6 + 2 * pool.LOG_SECONDS) / 2)


def test_a_log_with_much_to_do_is_shared(tmp_path: Path) -> None:
    size = replace(TINY, queries=(3000, 300, 1000), epochs=1000)
    listed = Plan("embedded", size, parts=("figure 3a",)).runs()
    parts = pool.chunks(listed, pool.Clock([], tmp_path))
    assert sorted(run.key for part in parts for run in part) == sorted(run.key for run in listed)
    assert all(len({run.world for run in part}) == 1 for part in parts)
    assert all(len(part) == 1 or sum(run.guess() for run in part) <= pool.LONGEST for part in parts)
    assert len(parts) > len({run.world for run in listed})


def test_an_error_in_a_process_is_raised_here() -> None:
    tasks: list[pool.Task] = [(int, ("1",)), (int, ("one",))]
    with pytest.raises(ValueError, match="'one'"):
        pool.side_by_side(tasks, 2, lambda: None)


@pytest.mark.parametrize(
    ("difference", "p_value", "higher", "mark"),
    [
        (0.1, 0.004, True, "++"),
        (0.1, 0.04, True, "+"),
        (-0.1, 0.04, True, "-"),
        (-0.1, 0.001, False, "++"),
        (0.1, 0.001, False, "--"),
        (0.1, 0.05, True, ""),
        (0.1, float("nan"), True, ""),
    ],
)
def test_a_mark_says_whether_a_difference_is_significant(
    difference: float, p_value: float, higher: bool, mark: str
) -> None:
    assert mark_of(difference, p_value, higher_is_better=higher) == mark


def _made_up(gains: dict[str, float], out: Path, made: Plan) -> None:
    """Result files with a value for each query: a base by query and seed, and what the method gains."""
    for label in TABLE:
        for run in made.of(label, "linear", 0.1):
            noise = np.random.default_rng(len(label)).normal(scale=0.01, size=30)
            values = 0.5 + 0.01 * run.world.seed + gains.get(label, 0.0) + noise - noise.mean()
            queries = {name: [None, *np.round(values, 4).tolist()] for name in MEASURES}
            means = dict.fromkeys(MEASURES, float(values.mean()))
            path = files.path_of(run, out)
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                json.dumps(
                    {
                        **dict.fromkeys(RULES, means),
                        "queries": dict.fromkeys(RULES, queries),
                        "curve": [0.1, 0.2, 0.3, 0.3, 0.3],
                        "run": {},
                        "seconds": 1.0,
                        "cpu_seconds": 1.0,
                    }
                )
            )


def test_rows_agree_with_a_calculation_by_hand(tmp_path: Path) -> None:
    size = replace(TINY, others=2)
    made = Plan("embedded", size, parts=("table 1",), trials=TRIALS)
    _made_up({"dla": 0.02, "lbd_paper": 0.05, "labels": 0.2}, tmp_path, made)
    rows = {(row.table, row.method): row for row in rows_of(Results(made, tmp_path))}
    dla, ours, labels = (rows["table 1", label] for label in ("dla", "lbd_paper", "labels"))
    assert dla.mean == pytest.approx(0.525)
    assert (dla.seeds, dla.mark) == (2, "best baseline")
    assert dla.se == pytest.approx(0.005)  # values .52 and .53
    assert ours.mean == pytest.approx(0.555)
    assert (ours.mark, ours.setting) == ("++", (1.0, 0.5))
    assert labels.mark == ""
    gain = rows["claims", "lbd_paper - dla"]
    assert gain.mean == pytest.approx(0.03)
    assert gain.se == pytest.approx(0, abs=1e-9)
    assert gain.mark == "++"
    assert (gain.plain()["low"], gain.plain()["high"]) == (pytest.approx(0.03), pytest.approx(0.03))
    fewer = Results(replace(made, size=replace(size, others=1)), tmp_path)
    one = {(row.table, row.method): row for row in rows_of(fewer)}
    assert (one["table 1", "dla"].seeds, one["claims", "lbd_paper - dla"].seeds) == (1, 2)  # tables: draws all have
    assert rows["plateau", "dla"].mean == 0.0
    assert rows["table 1", "lbd-lips"].setting == (1.0, 0.0)


def test_a_claim_is_judged_over_draws(tmp_path: Path) -> None:
    """A gain of .03 and .01 over thirty queries each: certain by queries, nothing by two draws."""
    made = Plan("embedded", replace(TINY, others=2), parts=("table 1",), trials=TRIALS)
    _made_up({"lbd_paper": 0.01}, tmp_path, made)
    better = files.path_of(made.of("lbd_paper", "linear", 0.1)[0], tmp_path)
    result = json.loads(better.read_text())
    for rule in RULES:
        result[rule] = {name: value + 0.02 for name, value in result[rule].items()}
        rows = result["queries"][rule]
        result["queries"][rule] = {name: [None, *(one + 0.02 for one in row[1:])] for name, row in rows.items()}
    better.write_text(json.dumps(result))
    claims = {row.method: row for row in rows_of(Results(made, tmp_path)) if row.table == "claims"}
    gain = claims["lbd_paper - dla"]
    assert gain.mean == pytest.approx(0.02)
    assert gain.se == pytest.approx(0.01)
    assert gain.interval is not None
    assert list(gain.interval) == pytest.approx([0.02 - 12.7062 * 0.01, 0.02 + 12.7062 * 0.01], abs=1e-6)
    assert gain.p_value == pytest.approx(0.29517, abs=1e-5)  # t = 2 with one degree of freedom
    assert gain.p_queries is not None
    assert gain.p_queries < 1e-4
    assert gain.mark == ""
    assert figure(gain) == "+0.0200 ± 0.0100 (-0.107 to +0.147)"
    alone = Results(replace(made, size=replace(made.size, seeds=(0,))), tmp_path)
    one = next(row for row in rows_of(alone) if row.method == "lbd_paper - dla")
    assert (one.interval, one.p_value, one.mark) == (None, None, "")
    assert one.plain()["low"] is None


def test_expected_has_the_tables_of_the_paper() -> None:
    rows = EXPECTED.load()
    found = {EXPECTED.place_of(row): row for row in rows}
    assert len(found) == len(rows)
    published = [row for row in rows if row["paper"] is not None]
    assert [sum(row["table"] == f"table {n}" for row in published) for n in (1, 3, 4)] == [40, 20, 190]
    ours = found["table 1", "yahoo", "mlp", "lbd_paper", 0.1, LEADING]
    assert (ours["paper"], ours["paper_mark"], ours["lambda"], ours["t"]) == (0.758, "+", 100.0, 0.1)
    assert found["table 4", "istella-s", "linear", "pair_debias", 0.1, "ARP"]["paper"] == 1.554
    assert found["table 3", "yahoo", "mlp", "lbd_paper", 0.6, "t"]["paper"] == 0.4
    for row in published:  # the last column of Table 4 is Table 1
        if row["table"] == "table 4" and row["measure"] == LEADING:
            assert found["table 1", *EXPECTED.place_of(row)[1:]]["paper"] == row["paper"]


def test_expected_round_trip_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "expected.csv"
    paper = EXPECTED.load()
    about = ("yahoo", "mlp", "dla", 0.1, None, LEADING)
    mine = [Row("table 1", *about, 0.7512345, 0.001, 5), Row("figure 3a", *about, 0.5, None, 1)]
    assert EXPECTED.with_paper(mine, paper)[0].paper == 0.755
    filled = EXPECTED.merged(paper, mine)
    EXPECTED.write(filled, path)
    read = EXPECTED.load(path)
    assert read == [{**row, "paper_mark": row["paper_mark"] or ""} for row in filled]
    assert [row["ours"] for row in read if row["data"] == "yahoo" and row["ours"] is not None] == [0.7512, 0.5]
    path.write_text(path.read_text().replace("0.755", "much", 1))
    with pytest.raises(DataError, match=r"expected.csv:3: paper is 'much'. Write a number"):
        EXPECTED.load(path)
    path.write_text("a,b\n")
    with pytest.raises(DataError, match=r"expected.csv:1: does not have the expected columns"):
        EXPECTED.load(path)


def test_every_table_and_figure_is_made(whole: tuple[Path, list[Row]]) -> None:
    out, rows = whole
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary) == len(rows)
    names = ["table", "data", "ranker", "method", "coupling", "lambda", "t", "measure", "mean", "se", "seeds", "paper"]
    assert all(list(row)[:12] == names for row in summary)
    assert {row.method for row in rows if row.table == "table 4"} == set(TABLE)
    assert {row.table for row in rows} >= {*PARTS, "claims", "plateau", "regret"}
    assert len({row.setting for row in rows if row.table == "figure 4"}) == 4
    assert {row.method for row in rows if row.table == "figure 3c"} >= {"hte", "hte-oracle", "oracle"}
    page = (out / "report.html").read_text()
    assert page.count("<svg") == len(list((out / "figures").glob("*.svg"))) == 6
    assert "Realised coupling" in page
    assert all(one.title in page for label, one in CANDIDATES.items() if label in TABLE)


def test_a_second_time_nothing_is_run(
    whole: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, rows = whole

    def never(run: Run, _: Path | None) -> dict[str, Any]:
        raise AssertionError(run)

    monkeypatch.setattr(runs, "make", never)
    assert reproduce(Plan("embedded", TINY), How(out, jobs=1, as_json=True)) == rows
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == len(rows)
    assert "0 s" in printed.err


def test_without_labels_there_is_a_likelihood(whole: tuple[Path, list[Row]]) -> None:
    found = [json.loads(path.read_text()) for path in (whole[0] / "runs").iterdir()]
    assert all(result["likelihood"] < 0 for result in found)
    coupled = [result["coupling"] for result in found if result["run"]["world"]["coupling"] == 0.1]
    assert all(one["deviation"] > 0 for one in coupled)


def test_options_select_parts_and_wrong_ones_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = plan_of(
        parser().parse_args(["--quick", "--tables", "1", "--figures", "3", "--seeds", "3,4", "--rankers", "mlp"])
    )
    assert made.parts == ("table 1", "figure 3a", "figure 3b", "figure 3c")
    assert (made.size.seeds, list(made.size.rankers), made.size.map_rankers) == ((3, 4), ["mlp"], ())
    assert main(["--tables", "2"]) == SettingError.exit_code
    assert "tables and figures must be among table 1" in capsys.readouterr().err
    assert main(["--data", "yahoo"]) == SettingError.exit_code
    assert "folder must say where the files of yahoo are" in capsys.readouterr().err
    assert main(["--data", "mq2008", "--folder", str(tmp_path), "--jobs", "0"]) == SettingError.exit_code
    assert main(["--full", "--dry-run", "--out", str(tmp_path / "none")]) == 0
    assert " h " in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_folder_that_is_none_is_said_before_anything_is_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One that is not there, one that is a file, and one that lacks the data; no run is begun."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    words = {
        "none": "none: is no folder that can be read. Say where the files of mq2008 are",
        "file": "file: is no folder that can be read. Say where the files of mq2008 are",
        "empty": "lacks Fold1/train.txt",
    }
    for name, word in words.items():
        out = tmp_path / f"out {name}"
        arguments = ["--quick", "--data", "mq2008", "--folder", str(tmp_path / name), "--out", str(out)]
        assert main(arguments) == DataError.exit_code
        assert word in capsys.readouterr().err
        assert not (out / "runs").exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt, DataError("is broken")], ids=["ctrl-c", "error"])
def test_tuning_that_breaks_off_is_quiet_and_goes_on(
    failure: BaseException | type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, in the second of four cells: what was done stands, the rest follows by the same command."""
    made: list[Run] = []
    plan = Plan("embedded", TINY, parts=("table 3",))

    def make(run: Run, _: Path | None) -> dict[str, Any]:
        if len(made) == 1 and not resumed:
            raise failure
        made.append(run)
        drop = run.settings["drop"]
        return {"run": {}, "seconds": 50.0, "cpu_seconds": 1.0, "likelihood": -1 - drop, "validation": {"clicks": drop}}

    monkeypatch.setattr(runs, "make", make)
    monkeypatch.setattr(entry, "plan_of", lambda _: plan)
    resumed = False
    code = main(["--out", str(tmp_path), "--jobs", "1"])
    printed = capsys.readouterr().err
    assert code == (INTERRUPTED if failure is KeyboardInterrupt else DataError.exit_code)
    assert ("the same command goes on from here" in printed) is (failure is KeyboardInterrupt)
    assert "Traceback" not in printed
    assert len(made) == 1
    assert pool.foresee(all_runs(plan), tmp_path, 1) == pytest.approx(3 * 50 + pool.LOG_SECONDS)
    resumed = True
    pool.perform_all(plan.tuning(), out=tmp_path, folder=None, jobs=1, what="tuning")
    assert len({run.key for run in made}) == len(made) == 4
    tuned = plan.tuned(tmp_path)
    chosen = {kind: tuned.chosen(kind, "linear", 0.1) for kind in ("both", "penalty", "drop")}
    assert [each.setting for each in chosen.values() if each] == [(1.0, 0.5), (1.0, 0.0), (0.0, 0.5)]
    by_clicks = tuned.chosen("both", "linear", 0.1, by="likelihood")
    assert by_clicks is not None
    assert by_clicks.setting == (1.0, 0.5)  # the only one with both above 0
    assert pool.foresee(all_runs(plan), tmp_path, 1) == 0


def test_the_settings_of_table_3_need_no_tuning() -> None:
    made = plan_of(parser().parse_args(["--published", "--methods", "click,lbd_paper,lbd-ber", "--figures", "3"]))
    assert made.tuning() == []
    assert made.labels == ["click", "lbd-ber", "lbd_paper"]
    by_coupling = {coupling: made.of("lbd_paper", "mlp", coupling)[0].settings for coupling in made.size.couplings}
    assert by_coupling[0.1] == {"penalty": 100.0, "drop": 0.1}
    assert by_coupling[0.6] == {"penalty": 1.0, "drop": 0.4}
    assert made.of("lbd-ber", "linear", 0.3)[0].settings == {"penalty": 0.0, "drop": 0.1}
    with pytest.raises(SettingError, match="couplings"):
        plan_of(parser().parse_args(["--published", "--couplings", "0.15"]))


@pytest.mark.parametrize("ranker", ["mlp", "linear"])
def test_the_published_networks_and_optimisers_run(ranker: str) -> None:
    """512-256-128 with LayerNorm on the input by Adagrad, the linear ranker by SGD, 10,200 steps of 256 lists."""
    made = plan_of(parser().parse_args(["--full", "--published", "--tables", "1", "--seeds", "0"]))
    run = made.of("lbd_paper", ranker, 0.1)[0]
    assert run.epochs * run.world.queries[0] // run.batch_size >= 9960  # type: ignore[index]
    result = runs.make(replace(run, world=WORLD, epochs=1, batch_size=32), None)
    assert 0 < result["clicks"][LEADING] < 1
    if ranker == "mlp":
        assert run.ranker == {"name": "mlp", "hidden": [512, 256, 128], "layer_norm": "all"}
    else:
        assert run.optimiser == "sgd"


def test_quick_is_foreseen_to_be_quick(tmp_path: Path) -> None:
    assert pool.foresee(all_runs(Plan("embedded", SIZES["quick"])), tmp_path, 2) < 600
