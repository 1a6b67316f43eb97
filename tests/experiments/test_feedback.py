"""The feedback loop: what is shown decides what is clicked, and what is clicked decides what is shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import Evaluation, Measure
from clickprism.experiments import feedback
from clickprism.experiments.feedback import (
    Chain,
    FeedbackResults,
    feedback_loop,
    feedback_results,
    summary_of,
    write_feedback,
)
from clickprism.experiments.settings import DataSettings, FeedbackSettings
from clickprism.experiments.train import train_method
from clickprism.settings import build
from clickprism.types import Clicks, Dataset


def tiny(**loop: Any) -> FeedbackSettings:
    settings = FeedbackSettings(runs=2)
    made = replace(
        settings.data.synthetic, train_queries=80, validation_queries=10, test_queries=60, features=12, items=60
    )
    return replace(
        settings,
        data=replace(settings.data, synthetic=made),
        sessions=20,
        methods={"click": {}, "dla": {}},
        fit=replace(settings.fit, epochs=3),
        **({"rounds": 3, "warm": 1} | loop),
    )


def one(settings: FeedbackSettings, label: str = "click", seed: int = 0) -> Chain:
    alone = replace(settings, methods={label: settings.methods.get(label, {})}, seed=seed, runs=1)
    return feedback_loop(alone).chains[0]


class Spy:
    """What every call of `train_method` is given, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings: list[FeedbackSettings] = []
        self.parts: list[Dataset] = []
        self.clicks: list[Clicks] = []
        self.train = train_method
        monkeypatch.setattr(feedback, "train_method", self)

    def __call__(self, settings: FeedbackSettings, dataset: Dataset, label: str, **words: Any) -> Any:
        self.settings.append(settings)
        self.parts.append(dataset)
        self.clicks.append(words["clicks"])
        return self.train(settings, dataset, label, **words)


@pytest.fixture(scope="module")
def results() -> FeedbackResults:
    return feedback_loop(tiny())


def values(chain: Chain) -> list[list[float]]:
    return [[value for value in one.values() if not math.isnan(value)] for one in chain.rounds]


def test_there_is_a_chain_for_every_method_and_seed_that_share_the_first_rounds(results: FeedbackResults) -> None:
    assert [(chain.label, chain.seed) for chain in results.chains] == [
        ("click", 0),
        ("click", 1),
        ("dla", 0),
        ("dla", 1),
    ]
    click, other, dla, _ = results.chains
    assert len(click.rounds) == 4
    assert values(click)[:2] == values(dla)[:2]
    assert values(click)[2] != values(dla)[2]
    assert values(click)[0] != values(other)[0]
    assert set(results.measures) == {"nDCG(exp)@10", "gini", "top", "popular", "mean", "correlation"}
    assert np.isnan(click.curve("correlation")[0])
    assert np.isfinite([click.curve(name)[1:] for name in results.measures]).all()


def test_the_same_seed_gives_the_same_chain_with_any_other_chains(results: FeedbackResults) -> None:
    assert values(one(results.settings, "dla", 1)) == values(results.chains[3])


def test_raw_clicks_make_what_is_popular_more_popular_and_labels_do_not() -> None:
    """With a system that adds popularity, the first retrained ranker takes the places of its log for relevance."""
    settings = tiny(rounds=4, warm=0, boost=0.7)
    settings = replace(settings, sessions=50, fit=replace(settings.fit, epochs=10), methods={"click": {}, "labels": {}})
    found = feedback_loop(settings)
    for measure in ("correlation", "gini", "popular"):
        click, labels = (found.methods[label][measure].mean for label in ("click", "labels"))
        assert click[-1] > click[1] + 0.02
        assert click[-1] > labels[-1] + 0.02


@pytest.mark.parametrize("loop", [{"feature": "rate"}, {"feature": "none", "boost": 0.0}, {"exploration": 0.5}])
def test_every_setting_of_the_loop_changes_it(results: FeedbackResults, loop: dict[str, Any]) -> None:
    assert values(one(tiny(**loop)))[2:] != values(results.chains[0])[2:]


def test_users_who_look_for_the_popular_and_methods_that_need_patterns_take_part(results: FeedbackResults) -> None:
    settings = replace(tiny(boost=0.0), user={"name": "popularity", "strength": 0.9})
    chain = one(settings)
    assert values(chain)[0] == values(results.chains[0])[0]
    assert values(chain)[2] != values(one(tiny(boost=0.0)))[2]
    assert len(one(replace(tiny(rounds=2), methods={"click_model": {}}), "click_model").rounds) == 3


def test_the_first_rounds_are_raw_clicks_whatever_is_called_click(results: FeedbackResults) -> None:
    named = replace(results.settings, methods={"click": {"name": "pal"}, "dla": {}}, seed=1, runs=1)
    pal, dla = feedback_loop(named).chains
    assert values(dla) == values(results.chains[3])
    assert values(pal)[:2] == values(dla)[:2]
    assert values(pal)[2] not in (values(dla)[2], values(results.chains[1])[2])


def test_a_method_that_needs_patterns_has_them_of_the_first_rounds_too_and_changes_no_other() -> None:
    settings = replace(tiny(rounds=2, feature="rate"), runs=1)
    settings = replace(settings, evaluation=replace(settings.evaluation, validation="clicks"))
    alone = one(settings, "dla")
    beside, model = feedback_loop(replace(settings, methods={"dla": {}, "click_model": {}})).chains
    assert values(beside) == values(alone)
    assert len(model.rounds) == 3


def impressions(path: Path, *, graded: bool) -> FeedbackSettings:
    rng = np.random.default_rng(0)
    lines = ["request,item,position,clicked,topic,size" + ",relevance" * graded]
    for request in range(60):
        for position, item in enumerate(rng.permutation(12)[:5].tolist(), 1):
            clicked, end = int(rng.random() < 0.3), f",{item % 3}" * graded
            lines.append(f"r{request},i{item},{position},{clicked},t{item % 4},{item / 10}{end}")
    path.write_text("\n".join(lines) + "\n")
    return replace(
        tiny(rounds=1, warm=0),
        data=DataSettings(source="log", train=str(path)),
        sessions=3,
        ranker={"name": "attention", "tokens": 4, "width": 4},
        fit=replace(tiny().fit, epochs=1),
    )


def test_a_log_needs_grades_for_users_to_click_by(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="have a relevance column, as simulated users click by grades"):
        one(impressions(tmp_path / "log.csv", graded=False))


def test_rankers_know_which_features_are_codes_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    one(replace(impressions(tmp_path / "log.csv", graded=True), runs=1))
    features = spy.clicks[0].lists.features
    (place,) = spy.settings[0].ranker["categorical"]
    assert len(np.unique(features[:, place])) == 4
    assert features.shape[1] == 3  # topic, size and the past, which comes last
    assert place < 2


def test_a_ranker_that_takes_codes_for_numbers_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    feedback_loop(replace(impressions(tmp_path / "log.csv", graded=True), ranker={"name": "linear"}))
    assert [record.getMessage() for record in caplog.records if "codes" in record.getMessage()] == [
        "linear uses the codes of categories (topic) as numbers, which have no meaning. Use one feature per category "
        "(data.names=indicators), or a ranker that embeds them (ranker.name=attention)"
    ]


def test_clicks_can_validate_and_items_can_be_clusters() -> None:
    settings = tiny(rounds=1, warm=0)
    made = replace(settings.data.synthetic, items=0)
    settings = replace(settings, data=replace(settings.data, synthetic=made))
    settings = replace(settings, evaluation=replace(settings.evaluation, validation="clicks"))
    assert np.isfinite(one(settings).curve("gini")).all()


def test_changes_are_paired_by_seed() -> None:
    measured = Evaluation((Measure.parse("nDCG@10"),), np.full((1, 2), 0.5), np.array(["a", "b"]), "drop")
    chains = [
        (Chain(label, seed, ({"gini": start}, {"gini": start + 0.1}, {"gini": start + 0.2 + up})), measured)
        for label in ("click", "dla")
        for seed, start, up in ((0, 0.3, 0.0), (1, 0.5, 0.01), (2, 0.4, -0.01))
    ]
    settings = replace(tiny(), runs=3)
    found = feedback_results(settings, chains).methods["dla"]["gini"]
    half = 4.302652730 * 0.01 / np.sqrt(3)
    assert [found.change, found.low, found.high] == pytest.approx([0.1, 0.1 - half, 0.1 + half])
    assert found.verdict == "grows"
    single = feedback_results(settings, chains[:1]).methods["click"]["gini"]
    assert np.isnan(single.low)
    assert single.verdict == "no clear change"


def test_results_are_written_whole(results: FeedbackResults, tmp_path: Path) -> None:
    report = write_feedback(results, tmp_path, next_commands=["clickprism experiment feedback"])
    page = report.read_text(encoding="utf-8")
    assert "Measures by round" in page
    assert page.count("<svg") == 2
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert kept["methods"]["dla"]["correlation"]["mean"][0] is None
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.html",
        "results.json",
        "settings.toml",
        "popularity.svg",
        "concentration.svg",
    }
    assert "In the first 1 rounds every method learned from raw clicks" in summary_of(results)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 2, "warm": 2}, "warm must be from 0 to 1"),
        ({"boost": -1.0}, "boost must be from 0 to"),
        ({"exploration": 2.0}, "exploration must be from 0 to 1"),
        ({"feature": "counts"}, "feature must be one of count, rate, none"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build(FeedbackSettings, wrong)


def test_no_methods_and_no_lists_are_refused() -> None:
    with pytest.raises(SettingError, match="methods must name at least one"):
        feedback_loop(replace(tiny(), methods={}))
    empty = replace(tiny().data.synthetic, test_queries=0)
    with pytest.raises(DataError, match="lists to train on and lists to test on"):
        one(replace(tiny(), data=replace(tiny().data, synthetic=empty)))
