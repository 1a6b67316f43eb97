import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickprism as cp
from clickprism.errors import DataError, SettingError
from clickprism.log.schema import click_fields
from clickprism.relevance.estimates import PairCounts
from clickprism.types import Float64
from reproduce.adr import runs as run_module
from reproduce.adr.__main__ import main, parser, plan_of
from reproduce.adr.bound import expected_gain
from reproduce.adr.competitors import displayed
from reproduce.adr.config import BASE, CANDIDATES, LEADING, MEASURES, SIZES, TABLE_3, TABLE_4, TUNED, Size
from reproduce.adr.expected import EXPECTED, PAPER
from reproduce.adr.imputation import lost, slot_of
from reproduce.adr.lists import MOST, display_log, list_log
from reproduce.adr.online import clicks_of, good_same_bad, tried
from reproduce.adr.plan import PARTS, Plan
from reproduce.adr.rows import COLUMNS, LOST, Results, Row, rows_of
from reproduce.adr.run import foresee, reproduce
from reproduce.adr.runs import Run
from reproduce.adr.searches import SEGMENTS, Log, month_of, versions_of
from reproduce.adr.sums import click_vectors, first_slot, pair_counts
from reproduce.adr.texts import FEWEST, FOUND, collection
from reproduce.adr.worlds import BUCKETS, DAYS, Site, World, site_of
from reproduce.adr.year import log_of, thompson, uniform
from reproduce.common.cli import How

WORLD = World(queries=(8, 12, 20), months=4)


@pytest.fixture(scope="module")
def site() -> Site:
    return site_of(WORLD, None)


@pytest.fixture(scope="module")
def log() -> Log:
    return log_of(WORLD, None)


def test_buckets_are_those_of_the_frequencies_and_zipf_holds_within(site: Site) -> None:
    assert [int(site.in_bucket(bucket).sum()) for bucket in BUCKETS] == list(WORLD.queries)
    assert site.in_bucket("all").all()
    many = replace(WORLD, queries=(1000, 1000, 1000)).frequencies()
    assert (np.diff(many) < 0).all()
    head = many[:1000]
    assert (head > 6000).mean() == 0.5
    assert many[2000:].mean() == pytest.approx(9 / np.log(10), rel=0.01)


def test_every_search_shows_a_whole_list_and_explores_as_often_as_it_should(site: Site, log: Log) -> None:
    lists = site.judged.lists
    query, shown = lists.list_of[log.rows], np.minimum(lists.lengths, WORLD.shown)
    by_place = np.zeros((len(lists), WORLD.shown), np.int64)
    np.add.at(by_place, (query, log.places), log.impressions)
    for place in range(WORLD.shown):
        assert (by_place[:, place] == np.where(place < shown, by_place[:, 0], 0)).all()
    searches = by_place[:, 0].sum()
    assert searches == pytest.approx(site.frequency.sum() * WORLD.months, abs=4 * np.sqrt(searches))
    explored = log.impressions[log.randomised].sum()
    assert explored == pytest.approx(0.05 * searches, abs=4 * np.sqrt(0.05 * searches))
    assert (log.places[log.randomised] == 0).all()
    often = int(site.frequency.argmax())
    rows = np.arange(lists.offsets[often], lists.offsets[often + 1])
    each = first_slot(log, lists.documents)[1][rows]
    assert each == pytest.approx(each.mean(), abs=5 * np.sqrt(each.mean()))  # every candidate alike


def test_what_is_seen_and_clicked_has_the_probabilities_of_the_user(site: Site, log: Log) -> None:
    n = log.impressions
    for counted, chance in (
        (log.seen, site.theta[log.places]),
        (log.clicked, site.theta[log.places] * site.click_if_seen(log.rows, log.places)),
    ):
        spread = np.sqrt((n * chance * (1 - chance)).sum())
        assert counted.sum() == pytest.approx((n * chance).sum(), abs=4 * spread + 1e-9)
    assert (log.clicked <= log.seen).all()
    assert (log.short + log.long <= n).all()
    assert (log.long_clicked + log.short_clicked <= log.clicked).all()
    assert (log.seen <= log.displayed).all()
    assert np.isinf(log.ages[log.clicked == 0]).all()
    assert (log.ages[log.clicked > 0] <= 24 * np.array(SEGMENTS)[log.segments[log.clicked > 0]]).all()
    assert site.first_slot == pytest.approx(0.65 + 0.35 * site.relevance)


def test_examination_averages_to_theta_and_by_display_times_does_so_for_relevant_documents_too(
    site: Site, log: Log
) -> None:
    relevant = site.relevance >= 0.5
    for examined, alike in (("display", True), ("behaviour", False)):
        counts = pair_counts(log, site, examined=examined)  # type: ignore[arg-type]
        assert counts.examination is not None
        assert counts.examination_clicked is not None
        mean = counts.examination.sum(axis=0) / counts.impressions.sum(axis=0)
        assert mean == pytest.approx(site.theta, abs=0.01)
        some = counts.select(relevant).total()
        assert some.examination is not None
        higher = some.examination[0] / some.impressions[0] - site.theta
        assert (np.abs(higher[1:8]).max() < 0.02) == alike
        if not alike:
            assert (higher[1:6] > 0.02).all()
            assert (counts.examination_clicked == counts.clicked).all()
    first = pair_counts(log, site)
    assert int(first.impressions.sum()) == int(log.impressions.sum())


def test_versions_give_way_to_each_other() -> None:
    assert versions_of(WORLD, 0).tolist() == [1, 0, 0]
    assert versions_of(WORLD, 3).tolist() == [0, 0, 1]
    assert sum(versions_of(WORLD, 1)) == pytest.approx(1)
    assert sum(SEGMENTS) == DAYS


def test_click_vectors_hold_the_counts_of_day_week_and_month(site: Site, log: Log) -> None:
    fields = click_fields(examination=True)
    x = click_vectors(log, site, month=2)
    assert x.shape == (len(site.relevance), len(fields))
    column = {name: x[:, place] for place, name in enumerate(fields)}
    mine = log.take(log.months == 2)
    for window, segments in (("day", 1), ("week", 2), ("month", 3)):
        counts = pair_counts(mine.take(mine.segments < segments), site)
        assert (column[f"{window}.impressions"] == counts.shown).all()
        assert (column[f"{window}.clicked@3"] == counts.clicked[:, 2]).all()
        assert (column[f"{window}.impressions@rest"] == counts.impressions[:, 10:].sum(axis=1)).all()
        hours = {"day": 24, "week": 168, "month": 672}[window]
        ages = column[f"{window}.last_click_age"]
        assert (ages[counts.clicked.sum(axis=1) == 0] == hours).all()
        assert (ages[counts.clicked.sum(axis=1) > 0] < hours).all()
    some = np.array([5, 3])
    assert (click_vectors(log, site, month=2, rows=some) == x[some]).all()


def test_thompson_sampling_goes_where_clicks_are(site: Site, log: Log) -> None:
    chosen = thompson(WORLD, site, log)
    by_query = np.add.reduceat(chosen, site.judged.lists.offsets[:-1])
    assert by_query == pytest.approx(np.ones(len(by_query)))
    head = site.in_bucket("head")[site.judged.lists.list_of]
    means = [float((each * site.first_slot)[head].sum() / each[head].sum()) for each in (chosen, uniform(site))]
    assert means[0] > 1.1 * means[1]
    explored = replace(WORLD, exploration="thompson")
    both = [lost(each, site.judged.lists.list_of) for each in (log, log_of(explored, None))]
    assert both[1] < both[0]
    assert (month_of(WORLD, site, 0, uniform(site)).clicked == log.take(log.months == 0).clicked).all()


def test_what_exploration_loses_by_hand(site: Site, log: Log) -> None:
    one = log.take(np.arange(len(log)) < 2)
    made = replace(
        one,
        rows=np.array([0, 1]),
        places=np.array([0, 0]),
        randomised=np.array([False, True]),
        impressions=np.array([90, 10]),
        clicked=np.array([81, 5]),
    )
    assert lost(made, np.array([0, 0])) == pytest.approx((10 * 0.9 - 5) / (100 * 0.9))
    everything = np.array([True, True])
    slot = slot_of(WORLD, site, made, everything)
    assert (slot.clicks.tolist(), slot.impressions.tolist()) == ([5], [10])
    slot = slot_of(replace(WORLD, randomised=0.0), site, made, everything)
    assert (slot.clicks.tolist(), slot.impressions.tolist()) == ([81, 5], [90, 10])


def test_a_better_ranking_wins_its_test_and_the_same_one_does_not(site: Site) -> None:
    random = np.random.default_rng(0)
    noise = random.standard_normal(len(site.relevance))
    won = tried(site, site.relevance, noise, traffic="tail", seed=0, visits=20_000)
    assert won["gsb"]["good"] > won["gsb"]["bad"]
    assert won["gsb"]["good"] + won["gsb"]["same"] + won["gsb"]["bad"] == 6_000
    for name in ("dcg", "satisfied"):
        assert won[name]["decided"] is not None
        assert won[name]["low"] > 0
        assert np.isfinite(won[name]["lows"]).all()  # JSON has no infinity
    level = tried(site, noise, noise, traffic="random", seed=0, visits=5_000)
    assert (level["dcg"]["decided"], level["clicks"]["decided"]) == (None, None)
    assert good_same_bad(np.array([1.0]), np.array([1.0]), np.array([2.0])).tolist() == [0]
    rows = np.full((40_000, 10), -1)
    rows[:, 0] = int(site.relevance.argmin())
    clicks, satisfied = clicks_of(site, rows, random)
    assert clicks.mean() == pytest.approx(site.first_slot.min(), abs=0.01)
    assert satisfied.sum() == 0


def test_the_key_is_that_of_the_settings_alone() -> None:
    run = Run(WORLD, "affine")
    others = [
        replace(run, method="ipw"),
        replace(run, settings={"clip": True}),
        replace(run, epochs=7),
        replace(run, world=replace(WORLD, seed=1)),
        replace(run, world=replace(WORLD, randomised=0.1)),
    ]
    assert len({run.key, *(other.key for other in others)}) == len(others) + 1
    assert replace(run, out=Path("elsewhere")).key == run.key
    assert run.needs.method == "impute"


def test_a_missing_array_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is missing, though its run is done"):
        Run(WORLD, "affine", out=tmp_path).arrays()


def test_expected_has_the_figures_of_the_paper() -> None:
    rows = EXPECTED.load()
    published = {EXPECTED.place_of(row): row for row in rows if row["paper"] is not None}
    assert len(published) == 115
    assert {place[1] for place in published} == {PAPER}
    best = published["table 2", PAPER, "all", "approximate_dr", None, f"{LEADING}, % over {BASE}"]
    assert (best["paper"], best["paper_mark"]) == (19.183, "+")
    assert published["table 4", PAPER, "tail", "imputation", None, f"{LEADING}, % over {TABLE_4[0]}"]["paper"] == 23.34
    assert published["table 3", PAPER, "tail", TABLE_3[1], None, "GSB, % over base_mix"]["paper"] == 8.5
    named = {place[3] for place in published if place[0] == "table 2"}
    assert named == {name for name, one in CANDIDATES.items() if one.paper and name != BASE}


def test_options_select_parts_and_wrong_ones_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["--quick", "--tables", "2,4", "--costs", "--seeds", "3,4", "--methods", "affine,shrunk"]
    made = plan_of(parser().parse_args(given))
    assert made.parts == ("table 2", "table 4", "costs")
    assert (made.size.seeds, made.methods) == ((3, 4), ("affine", "shrunk"))
    assert plan_of(parser().parse_args(["--full"])).parts == PARTS
    of_texts = plan_of(parser().parse_args(["--data", "nfcorpus", str(tmp_path), "--fine-tune"]))
    assert (of_texts.data, of_texts.folder) == (TUNED, tmp_path)
    named = plan_of(parser().parse_args(["--data", "nfcorpus", "--folder", str(tmp_path)]))
    assert (named.data, named.folder) == ("nfcorpus", tmp_path)
    for arguments, problem in (
        (["--tables", "1"], "tables and figures must be among table 2"),
        (["--methods", "affin"], "methods must be among production"),
        (["--data", "nfcorpus"], "folder must say where the files of nfcorpus are"),
        (["--fine-tune"], "fine-tune must go with --data nfcorpus"),
    ):
        assert main(arguments) == SettingError.exit_code
        assert problem in capsys.readouterr().err
    assert main(["--quick", "--data", "nfcorpus", "--folder", str(tmp_path), "--out", str(tmp_path / "o")]) != 0
    assert not (tmp_path / "o" / "runs").exists()
    capsys.readouterr()
    assert main(["--full", "--dry-run", "--out", str(tmp_path / "none")]) == 0
    assert "runs, 0 done before; about" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_quick_is_foreseen_to_be_quick(tmp_path: Path) -> None:
    assert foresee(Plan("embedded", SIZES["quick"], tmp_path), 2) < 600


TINY = Size(queries=(8, 12, 20), seeds=(0, 1), cost_seeds=1, shares=(0.0, 0.05), epochs=2, searches=300, visits=2_000)
CHEAP = ("production", "affine", "imputation", "shrunk")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[Row]]:
    """Estimators and costs, as small as can be, in this process."""
    out = tmp_path_factory.mktemp("out")
    plan = Plan("embedded", TINY, out, ("table 2", "table 4", "costs"), None, CHEAP)
    return plan, reproduce(plan, How(out, jobs=1))


def test_every_table_and_figure_is_made(whole: tuple[Plan, list[Row]]) -> None:
    plan, rows = whole
    summary = json.loads((plan.out / "summary.json").read_text())
    assert len(summary) == len(rows)
    assert all(tuple(row)[: len(COLUMNS)] == COLUMNS for row in summary)
    found = {(row.table, row.bucket, row.method, row.measure): row for row in rows}
    for method in CHEAP:
        for measure in MEASURES:
            parts = [found["methods", bucket, method, measure].mean for bucket in BUCKETS]
            whole_mean = found["methods", "all", method, measure].mean
            assert np.average(parts, weights=TINY.queries) == pytest.approx(whole_mean, abs=1e-4)
    shrunk, affine = (found["methods", "tail", method, LEADING].mean for method in ("shrunk", "affine"))
    bar = found["bars", "tail", "shrunk", f"{LEADING}, % over affine"]
    assert bar.mark in ("ok", "short")
    assert (bar.mean > 0) == (shrunk > affine)
    costs = [row for row in rows if row.measure == LOST]
    assert sorted((row.table, row.at) for row in costs) == [
        ("costs, thompson", 0.05),
        ("costs, uniform", 0.0),
        ("costs, uniform", 0.05),
    ]
    assert [row.mean for row in costs if row.at == 0] == [0]
    page = (plan.out / "report.html").read_text()
    assert page.count("<svg") == len(list((plan.out / "figures").glob("*.png"))) == 2


def test_a_second_time_nothing_is_run(whole: tuple[Plan, list[Row]], monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = whole

    def never(run: Run, _: Path | None) -> dict[str, Any]:
        raise AssertionError(run)

    monkeypatch.setattr(run_module.Run, "make", never)
    assert rows_of(Results(plan)) == rows


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up corpus in the form of NFCorpus: words tell half of what is relevant."""
    folder, random = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    subjects = ["garlic", "kidney", "salmon", "asthma", "coffee", "tumour", "almond", "insulin"]
    kinds = ["trial", "review", "cohort", "dose", "risk"]
    documents = [f"{subject} {random.choice(kinds)} {number} patients" for number in range(25) for subject in subjects]
    queries = [f"{subject} {kind}" for subject in subjects for kind in kinds]
    judged = [
        f"q{row} 0 d{place} {grade}"
        for row, query in enumerate(queries)
        for place, document in enumerate(documents)
        if (grade := (query in document) * (1 + 2 * (place // len(subjects) % 2)))
    ]
    for name, lines in (
        ("docs.tsv", [f"d{place}\t{text}" for place, text in enumerate(documents)]),
        ("train.queries.tsv", [f"q{row}\t{text}" for row, text in enumerate(queries)]),
        ("train.qrel", judged),
    ):
        (folder / f"{name}.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    return folder


def test_texts_as_a_search_engine(corpus: Path) -> None:
    world = World("nfcorpus", (4, 6, 10), months=2)
    made = site_of(world, corpus)
    lists = made.judged.lists
    assert len(made.judged) == 20
    assert ((lists.lengths >= FEWEST) & (lists.lengths <= FOUND)).all()
    assert (np.maximum.reduceat(made.judged.grades, lists.offsets[:-1]) > 0).all()
    known = collection(corpus)
    assert (made.judged.grades == known.judgements.grades_of(*made.pairs)).all()
    queries, documents = (texts.of_ids(ids) for texts, ids in zip(known[:2], made.pairs, strict=True))
    shared = [set(a.split()) & set(b.split()) for a, b in zip(queries, documents, strict=True)]
    assert all(shared)  # words found every candidate, whatever its grade
    assert len(log_of(world, corpus)) > 0
    with pytest.raises(DataError, match="there are 40 queries with enough candidates, 50 are needed"):
        site_of(replace(world, queries=(10, 10, 30)), corpus)


def test_texts_through_the_whole(corpus: Path, tmp_path: Path) -> None:
    size = replace(TINY, queries=(8, 12, 20), seeds=(0,))
    methods = ("production", "affine", "imputation", "shrunk", "no_correction")
    plan = Plan("nfcorpus", size, tmp_path, ("table 2", "table 4"), corpus, methods)
    rows = reproduce(plan, How(tmp_path, jobs=1))
    found = {(row.bucket, row.method): row.mean for row in rows if row.table == "methods" and row.measure == LEADING}
    assert {row.data for row in rows} == {"nfcorpus"}
    assert found["tail", "imputation"] > found["tail", "affine"]
    assert found["all", "shrunk"] > found["all", "production"]
    assert {row.method for row in rows if row.table == "table 2"} == set(methods) - {BASE}
    run = plan.run(plan.world(0), "impute")
    arrays, site = run.arrays(), site_of(run.world, corpus)
    width, states = 384, arrays["representation"]
    assert states.shape == (len(site.relevance), width + 3)
    assert states[:, :width].mean(axis=1) == pytest.approx(states[:, -1], abs=1e-5)  # both are the cosine
    assert arrays["imputed"].min() > 0
    assert arrays["imputed"].max() < 1


def test_lists_of_a_log_are_those_of_its_unexplored_searches(site: Site, log: Log) -> None:
    whole = log.take(log.versions >= 0)
    made = list_log(site, log)
    lists = site.judged.lists
    assert (
        np.diff(made.offsets) == np.minimum(lists.lengths, WORLD.shown)[lists.list_of[made.rows[made.offsets[:-1]]]]
    ).all()
    assert made.impressions.max() == MOST
    seldom = site.in_bucket("tail")[lists.list_of[whole.rows]]
    shown = np.bincount(whole.rows[seldom], weights=whole.impressions[seldom], minlength=lists.documents)
    mine = np.bincount(made.rows, weights=made.list_impressions, minlength=lists.documents)
    few = (shown > 0) & (shown <= MOST)
    assert (mine[few] == shown[few]).all()  # what was shown so seldom stands as it was


def test_what_was_on_screen_is_so_for_all_searches_of_a_part_or_for_none(site: Site, log: Log) -> None:
    made = display_log(site, log, seed=0)
    assert made.seen is not None
    assert ((made.seen == 0) | (made.seen == made.list_impressions)).all()
    assert made.sessions == list_log(site, log).sessions
    shares = np.bincount(made.positions, weights=made.seen) / np.maximum(
        np.bincount(made.positions, weights=made.list_impressions), 1
    )
    assert shares[1:8] == pytest.approx(site.theta[:7] + 0.4 * (1 - site.theta[:7]), abs=0.1)
    filtered = displayed(made)
    assert filtered.clicks.sum() == made.clicks.sum()
    assert len(filtered.rows) < len(made.rows)


def test_the_bound_is_the_posterior_and_no_estimate_ranks_better(site: Site, log: Log) -> None:
    counts = pair_counts(log.take(log.months == WORLD.months - 1), site)
    nothing = PairCounts(0 * counts.impressions, 0 * counts.clicked)
    gains = 2.0**site.judged.grades - 1
    prior = expected_gain(site, nothing, None)
    assert np.ptp(prior) == 0
    assert prior[0] == pytest.approx(gains.mean(), rel=0.01)
    whole = pair_counts(log, site)
    often = site.in_bucket("head")[site.judged.lists.list_of] & (whole.shown > 2000)
    assert expected_gain(site, whole, None)[often] == pytest.approx(gains[often], abs=0.05)
    told = expected_gain(site, counts, site.first_slot)

    def dcg(scores: Float64) -> Float64:
        return cp.evaluate(site.judged, scores, LEADING, empty="zero")[LEADING]

    assert dcg(told).mean() >= dcg(expected_gain(site, counts, None)).mean()
    rates = counts.clicked.sum(axis=1) / np.maximum(counts.shown, 1)
    assert dcg(expected_gain(site, counts, None)).mean() > dcg(rates).mean()
