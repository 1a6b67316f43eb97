import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.click_models.pbm import EYE_TRACKING
from clickprism.data.recipes import RECIPES
from clickprism.errors import DataError, SettingError
from clickprism.types import Dataset, JudgedLists
from reproduce.common import files, pool
from reproduce.common.cli import How
from reproduce.inforank import runs
from reproduce.inforank.__main__ import main, parser, plan_of, reproduce
from reproduce.inforank.bias import moved
from reproduce.inforank.config import CANDIDATES, EXPECTED, LEADING, MAX_GRADES, RANKERS, SIZES, Size, Trained, measures
from reproduce.inforank.plan import PARTS, Plan, case, eta_of
from reproduce.inforank.rows import AFTER, COLUMNS, DISTANCE, EXPOSED, GAP, GRADES, Results, Row, rows_of
from reproduce.inforank.runs import Run
from reproduce.inforank.worlds import World, learned_from, made_world, propensities

MLP = {"name": "mlp", "hidden": [8]}
TINY = Size(
    queries=(60, 20, 30),
    sessions=40,
    users=("pbm", "ubm"),
    seeds=(0, 1),
    others=1,
    rankers={"mlp": Trained(MLP)},
    figure_ranker="mlp",
    epochs=2,
    batch_size=32,
    taus=(1.0, 2.0),
    shares=(0.5, 1.0),
    figure_users=("pbm",),
)
WORLD = World("embedded", 1, (60, 20, 30), 40, "pbm", 1.0, 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """Everything at once, as small as can be, in this process."""
    out = tmp_path_factory.mktemp("out")
    return out, reproduce(Plan("embedded", TINY), How(out, jobs=1))


def test_the_key_is_that_of_the_settings_alone() -> None:
    run = Run(WORLD, MLP, "click")
    assert run.key == Run(WORLD, dict(MLP), "click").key
    others = [
        replace(run, method="dla"),
        replace(run, settings={"eta": 0.1}),
        replace(run, source="shuffled"),
        replace(run, epochs=7),
        replace(run, ranker={"name": "attention"}),
        *[replace(run, world=replace(WORLD, **change)) for change in ({"bias": 2.0}, {"seed": 1}, {"share": 0.5})],
    ]
    assert len({run.key, *[other.key for other in others]}) == len(others) + 1
    assert replace(run, world=replace(WORLD, share=0.5)).log == run.log


def test_items_are_the_articles_of_adressa_and_clusters_elsewhere() -> None:
    """MQ2008 has document ids, but of 4 % of its test documents alone does the training part know the id."""
    dataset, log = made_world(WORLD, None)
    parts = {}
    for name in ("train", "validation", "test"):
        judged = getattr(dataset, name)
        ids = np.array([f"{name} {row}" for row in range(judged.lists.documents)])
        parts[name] = JudgedLists(replace(judged.lists, document_ids=ids), judged.grades)
    named = Dataset("named", **parts)
    letor, news = (replace(WORLD, data=data) for data in ("mq2008", "adressa"))
    scores = dataset.test.lists.features[:, 0].astype(np.float64)
    by_cluster, by_id, plain = (
        moved(world, None, dataset=data, log=log, scores=scores)
        for world, data in ((letor, named), (news, named), (WORLD, dataset))
    )
    assert by_cluster == plain
    assert len(by_cluster["frequency"]["at"]) > 5
    assert by_id == {"position": plain["position"]}  # the log shows none of them


def test_what_is_the_same_run_is_shared_and_what_is_claimed_comes_first() -> None:
    made = Plan("embedded", replace(TINY, rankers=SIZES["quick"].rankers))
    assert made.of(case("labels", "mlp", "ubm")) == made.of(case("labels", "mlp", "pbm"))
    tables = {run.key for part in ("table 2", "table 3") for one in made.cases(part) for run in made.of(one)}
    for part in ("figure 3", "figure 4", "figure 5 left"):
        assert {run.key for one in made.cases(part) for run in made.of(one)} <= tables
    assert [eta_of(one) for one in made.cases("figure 5 right")] == [0, 0.2, 0.5, 1] * 2
    assert [one.eta for one in made.cases("figure 5 right")].count(None) == 4  # 0 and .5 are those of the tables
    assert {one.user for one in made.cases("figure 6")} == {"pbm"}
    listed = made.runs()
    assert len({run.key for run in listed}) == len(listed)
    claimed = [
        run.method in {CANDIDATES[name].method for name in CANDIDATES if CANDIDATES[name].claimed} for run in listed
    ]
    assert all(claimed[: claimed.index(False)])
    assert len(made.of(case("click", "mlp", "pbm"))) == 2
    assert len(made.of(case("dla", "mlp", "pbm"))) == 1
    assert len(Plan("mq2008", TINY).of(case("click", "mlp", "pbm"))) == 10
    assert {one.label for one in Plan("embedded", TINY, methods=("click",)).cases("table 2")} == {"click"}


def test_which_ranker_trains_by_what_is_as_in_the_paper() -> None:
    by_ranker = {name: {label for label, one in CANDIDATES.items() if name in one.rankers} for name in RANKERS}
    assert by_ranker["lambdamart"] == {"labels", "pair_debias", "regression_em", "randomization", "click"}
    assert by_ranker["mlp"] - by_ranker["attention"] == {"dla"}
    assert CANDIDATES["inforank"].settings == {}  # the default, whatever it is


def test_the_map_of_equation_28_is_measured_at_each_grade() -> None:
    assert measures("embedded")[3:] == ("MAP(rel=3)@10", "MAP(rel=1)@10")
    assert measures("mq2007")[3:] == ("MAP(rel=2)@10", "MAP(rel=1)@10")
    assert measures("adressa")[3:] == ("MAP(rel=1)@10",)


def test_a_share_of_the_queries_is_nested_and_keeps_the_log() -> None:
    _, log = made_world(WORLD, None)
    half, most, all_of_them = (learned_from(replace(WORLD, share=share), log, patterns=True) for share in (0.5, 0.8, 1))
    queries = [set(part.lists.list_of[part.rows].tolist()) for part in (half, most, all_of_them)]
    assert [len(found) for found in queries] == [30, 48, 60]
    assert queries[0] < queries[1] < queries[2]
    assert all_of_them is log.simulation.clicks


def test_shuffled_lists_tell_the_observation() -> None:
    world = replace(WORLD, queries=(300, 20, 30), sessions=100)
    known = np.array(propensities(world, None))
    assert known == pytest.approx(np.array(EYE_TRACKING) / EYE_TRACKING[0], abs=0.05)


@pytest.mark.parametrize(
    ("ranker", "method"),
    [
        ({"name": "lambdamart", "trees": 3}, "pair_debias"),
        ({"name": "attention", "tokens": 4, "width": 4, "units": 2, "hidden": [4]}, "inforank"),
    ],
    ids=["lambdamart", "attention"],
)
def test_every_ranker_can_be_run(ranker: dict[str, Any], method: str) -> None:
    result = runs.make(Run(WORLD, ranker, method, epochs=1, batch_size=64), None)
    assert 0 < result["clicks"][LEADING] < 1
    assert set(result["moved"]) == {"position", "frequency", "popularity"}
    assert (result["delta_ci"] is None) == (method == "pair_debias")
    json.dumps(result, allow_nan=False)


def test_rows_agree_with_a_calculation_by_hand(tmp_path: Path) -> None:
    made = Plan("embedded", replace(TINY, users=("ubm",)), parts=("table 2",))
    gains = {"pal": 0.02, "inforank": 0.05, "labels": 0.2}
    for one in made.cases("table 2"):
        for run in made.of(one):
            noise = np.random.default_rng(len(one.label)).normal(scale=0.01, size=30)
            values = 0.5 + 0.01 * run.world.seed + gains.get(one.label, 0.0) + noise - noise.mean()
            rules = ("clicks", "best", "last")
            queries = {name: [None, *np.round(values, 4).tolist()] for name in measures("embedded")}
            means = dict.fromkeys(measures("embedded"), float(values.mean()))
            gap = {"inforank": 0.01 + 0.01 * run.world.seed, "inforank-": 0.04}.get(one.label)
            found = {
                **dict.fromkeys(rules, means),
                "queries": dict.fromkeys(rules, queries),
                "curve": [0.1, 0.2, 0.3, 0.3, 0.3],
                "delta_ci": None if gap is None else {"clicks": gap},
                "run": {},
                "seconds": 1.0,
                "cpu_seconds": 1.0,
            }
            if one.label.startswith("inforank_paper"):
                found["delta_ci"] = {"clicks": 0.0}
            path = files.path_of(run, tmp_path)
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(found))
    rows = {(row.table, row.method, row.measure): row for row in rows_of(Results(made, tmp_path))}
    pal, ours = (rows["table 2", label, LEADING] for label in ("pal", "inforank"))
    assert [pal.mean, ours.mean] == pytest.approx([0.52, 0.55])
    assert (pal.seeds, pal.mark, ours.mark) == (1, "best baseline", "++")
    assert (pal.eta, rows["table 2", "inforank-", LEADING].eta) == (None, 0)
    assert rows["table 2", "labels", LEADING].mark == ""
    gain = rows["claims", "inforank - pal", LEADING]
    assert [gain.mean, gain.low] == pytest.approx([0.03, 0.03])
    assert (gain.seeds, gain.mark) == (2, "++")
    assert gain.p_queries is not None
    assert 0 < gain.p_queries < 1e-6
    ratio = rows["claims", "inforank / inforank-", f"{GAP}, ratio"]
    assert ratio.mean == pytest.approx(0.375)  # 1/4 and 1/2
    assert ratio.se == pytest.approx(0.125)
    assert ratio.high == pytest.approx(0.375 + 12.706 * 0.125, abs=1e-3)
    assert ("claims", "inforank_paper / inforank_paper-", f"{GAP}, ratio") not in rows  # nothing to divide by
    assert next(row for key, row in rows.items() if key[:2] == ("plateau", "pal")).mean == 0.0


def test_expected_has_the_tables_of_the_paper() -> None:
    rows = EXPECTED.load()
    found = {EXPECTED.place_of(row): row for row in rows}
    assert len(found) == len(rows)
    published = [row for row in rows if row["paper"] is not None]
    assert [sum(row["table"] == f"table {n}" for row in published) for n in (2, 3)] == [192, 192]
    best = found["table 2", "yahoo", "ubm", "attention", "inforank_paper", 0.5, None, LEADING]
    assert (best["paper"], best["paper_mark"]) == (0.779, "*")
    assert found["table 3", "mq2007", "ccm", "mlp", "click", None, None, "MAP(rel=2)@10"]["paper"] == 0.621
    assert found["table 2", "adressa", "ubm", "lambdamart", "pair_debias", None, None, "nDCG(exp)@3"]["paper"] == 0.669
    assert found["table 3", "yahoo", "pbm", "mlp", "dla", None, None, "nDCG(exp)@5"]["paper"] == 0.697
    for row in published:  # labels do not depend on who clicks
        if row["method"] == "labels" and row["table"] == "table 3":
            other = found["table 2", row["data"], "ubm", *EXPECTED.place_of(row)[3:]]
            assert other["paper"] == row["paper"]


def test_expected_round_trip_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "expected.csv"
    paper = EXPECTED.load()
    about = ("yahoo", "ubm", "mlp", "dla", None, LEADING)
    mine = [Row("table 2", *about, 0.7312345, 0.001, 5), Row("figure 6", *about, 0.5, None, 1, at=2.0)]
    assert EXPECTED.with_paper(mine, paper)[0].paper == 0.730
    filled = EXPECTED.merged(paper, mine)
    EXPECTED.write(filled, path)
    read = EXPECTED.load(path)
    assert read == [{**row, "paper_mark": row["paper_mark"] or ""} for row in filled]
    assert [row["ours"] for row in read if row["seeds"] in (1, 5)][-1] == 0.5
    path.write_text(path.read_text().replace("0.73,", "much,", 1))
    with pytest.raises(DataError, match=r"expected.csv:\d+: paper is 'much'. Write a number"):
        EXPECTED.load(path)


def test_every_table_and_figure_is_made(whole: tuple[Path, list[Row]]) -> None:
    out, rows = whole
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary) == len(rows)
    assert all(tuple(row)[: len(COLUMNS)] == COLUMNS for row in summary)
    tables = {row.table for row in rows}
    assert tables >= {*(part for part in PARTS if part != "figure 3"), "figure 3 left", "figure 3 right", "claims"}
    assert {row.method for row in rows if row.table == "table 2"} == {
        label for label, one in CANDIDATES.items() if "mlp" in one.rankers
    }
    after = [row for row in rows if row.table == "figure 3 right" and row.measure == AFTER and row.method == "click"]
    assert [row.at for row in after if row.user == "pbm"] == [*range(1, 11)]
    assert np.mean([row.mean for row in after if row.user == "pbm"]) == pytest.approx(5.5)
    exposed = [row for row in rows if row.measure == EXPOSED and (row.method, row.user) == (GRADES, "ubm")]
    assert sum(row.mean for row in exposed) == pytest.approx(1, abs=1e-3)
    assert all(row.mean >= 0 for row in rows if row.measure == DISTANCE)
    assert {row.at for row in rows if row.table == "figure 6"} == {1.0, 2.0}
    assert {row.at for row in rows if row.table == "figure 7"} == {0.5, 1.0}
    page = (out / "report.html").read_text()
    drawn = {path.stem for path in (out / "figures").glob("*.png")}
    assert page.count("<svg") == len(drawn) == 8
    assert "paper, Yahoo!" in page


def test_a_second_time_nothing_is_run(
    whole: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, rows = tmp_path / "out", whole[1]
    shutil.copytree(whole[0], out)

    def never(run: Run, _: Path | None) -> dict[str, Any]:
        raise AssertionError(run)

    monkeypatch.setattr(runs, "make", never)
    monkeypatch.setattr("reproduce.inforank.report.figures_of", lambda *_: {})
    assert reproduce(Plan("embedded", TINY), How(out, jobs=1, as_json=True)) == rows
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == len(rows)
    assert "about 0 s" in printed.err


def test_options_select_parts_and_wrong_ones_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["--quick", "--tables", "2", "--figures", "5,7", "--seeds", "3,4", "--rankers", "mlp", "--users", "ubm"]
    made = plan_of(parser().parse_args(given))
    assert made.parts == ("table 2", "figure 5 left", "figure 5 right", "figure 7")
    assert (made.size.seeds, list(made.size.rankers), made.size.users) == ((3, 4), ["mlp"], ("ubm",))
    for arguments, problem in (
        (["--tables", "1"], "tables and figures must be among table 2"),
        (["--users", "pbm,me"], "users must be among pbm, ubm, ccm"),
        (["--methods", "clicks"], "methods must be among labels"),
        (["--rankers", "linear"], "rankers must be among attention"),
        (["--seeds", "0,x"], "seeds must be different whole numbers"),
        (["--data", "yahoo"], "folder must say where the files of yahoo are"),
        (["--epochs", "0"], "epochs must be at least 1"),
    ):
        assert main(arguments) == SettingError.exit_code
        assert problem in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    for data, problem in (("mq2008", "MQ2008 lacks"), ("adressa", "has no file of events")):
        for folder, said in (("none", "is no folder that can be read"), ("empty", problem)):
            out = tmp_path / "out"
            given = ["--quick", "--data", data, "--folder", str(tmp_path / folder), "--out", str(out)]
            assert main(given) == DataError.exit_code
            assert said in capsys.readouterr().err
            assert not (out / "runs").exists()
    assert main(["--full", "--dry-run", "--out", str(tmp_path / "none")]) == 0
    assert " h " in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_quick_is_foreseen_to_be_quick(tmp_path: Path) -> None:
    assert pool.foresee(Plan("embedded", SIZES["quick"]).runs(), tmp_path, 2) < 600
    assert set(MAX_GRADES) == {"embedded", "yahoo", "mq2007", "mq2008", "adressa"}


def letor_lines(queries: range, *, ids: range, rng: np.random.Generator, comment: str) -> str:
    """Lines of LETOR files: grade, query, sparse features with ids from 1, and perhaps a comment; four a query."""
    lines = []
    for query in queries:
        for document in range(4):
            values = " ".join(f"{number}:{rng.random():.6f}" for number in ids)
            lines.append(f"{document % 3} qid:{query} {values}{comment.format(document=f'GX{query:03d}-{document}')}\n")
    return "".join(lines)


LAYOUTS = {
    "yahoo": (("set1.train.txt", "set1.valid.txt", "set1.test.txt"), range(1, 700, 3), ""),
    "mq2007": (
        ("Fold1/train.txt", "Fold1/vali.txt", "Fold1/test.txt"),
        range(1, 47),
        " #docid = {document} inc = 1 prob = 0.086622",
    ),
}


@pytest.mark.parametrize("data", LAYOUTS)
def test_files_in_the_layout_of_the_public_data_are_loaded(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yahoo! has sparse features and no comments, MQ2007 all 46 features and the id of the document in a comment."""
    names, ids, comment = LAYOUTS[data]
    rng, parts = np.random.default_rng(0), {}
    for number, (name, part) in enumerate(zip(names, ("train", "validation", "test"), strict=True)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        several = range(10 * number + 1, 10 * number + 6)
        path.write_text(letor_lines(several, ids=ids, rng=rng, comment=comment))
        parts[part] = (5, 20)
    recipe = replace(RECIPES[data], queries=15, documents=60, largest_id=max(ids))
    monkeypatch.setitem(RECIPES, data, replace(recipe, parts=parts if data == "yahoo" else {}))
    dataset, log = made_world(World(data, 1, None, 20, "pbm", 1.0, 0), tmp_path)
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test)] == [5, 5, 5]
    assert dataset.train.lists.features.shape == (20, RECIPES[data].features)
    assert dataset.train.grades[:4].tolist() == [0, 1, 2, 0]
    assert log.simulation.clicks.sessions == 100
