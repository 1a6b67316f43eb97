"""A ranker is trained again if users change, and promoted only if it is better."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickprism.project.create import init
from clickprism.project.retrain import Gain, _clicks_per_search, _weight, verdict
from clickprism.project.run import Project
from clickprism.project.settings import FILE, ProjectSettings, Promotion, Source
from clickprism.project.steps import RANKERS, STEPS, Context, StepRecord
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.deployment import Deployment
from tests.auto.test_learning import small
from tests.project.conftest import TASTE
from tests.project.worlds import add_day, shop_rows
from tests.serve.service_kit import linear_bundle
from tests.serve.test_rollout import add_searches


def test_drifted_users_lead_to_a_new_ranker_that_is_promoted(copied: Callable[[], Path]) -> None:
    folder = copied()
    shop = folder / "shop"
    old = Project(shop).run().status.ranker
    add_day(folder / "logs", "b", (-1.5, 1.0, 0.0), first_day=3, searches=1200, seed=1)
    found = Project(shop).run()
    assert "The log has drifted" in found.status.decision
    assert "preferences" in found.status.decision
    assert found.status.ranker != old
    assert "better than the current one" in found.status.why
    assert "it can lose at most" in found.status.why
    assert not found.status.shadow
    assert Project(shop).run().changed is False


@pytest.mark.parametrize("timed", [True, False])
def test_a_table_that_is_replaced_is_tested_for_drift_as_a_whole(tmp_path: Path, *, timed: bool) -> None:
    def write(taste: tuple[float, float, float], seed: int) -> None:
        rows = shop_rows(taste, first_day=1, searches=900, seed=seed)
        pq.write_table(rows if timed else rows.drop_columns("time"), tmp_path / "log.parquet")

    write(TASTE, 0)
    init(tmp_path / "shop", str(tmp_path / "log.parquet"))
    toml = (tmp_path / "shop" / FILE).read_text()
    (tmp_path / "shop" / FILE).write_text(toml.replace('read = "ingest"', 'read = "memory"'))
    old = Project(tmp_path / "shop").run().status.ranker
    write(TASTE, 1)
    assert Project(tmp_path / "shop").run().status.decision == "The changed table shows no drift."
    write((-1.5, 1.0, 0.0), 2)
    found = Project(tmp_path / "shop").run().status
    assert found.decision.startswith("The log has drifted: preferences")
    assert found.ranker != old
    assert "better than the current one" in found.why


def test_the_same_users_need_no_new_ranker(copied: Callable[[], Path]) -> None:
    folder = copied()
    Project(folder / "shop").run()
    add_day(folder / "logs", "b", TASTE, first_day=3, searches=700, seed=2)
    found = Project(folder / "shop").run()
    assert "show no drift" in found.status.decision


def test_a_ranker_that_learned_noise_is_kept_as_shadow(copied: Callable[[], Path]) -> None:
    """Users who click at random drift away from the ranker, but nothing better can be learned from them."""
    folder = copied()
    shop = folder / "shop"
    old = Project(shop).run().status.ranker
    add_day(folder / "logs", "b", (0.0, 0.0, 0.0), first_day=3, searches=1200, seed=3)
    found = Project(shop).run()
    assert "The log has drifted" in found.status.decision
    assert found.status.ranker == old
    assert found.status.shadow
    assert "not better than the current one" in found.status.shadow_reason
    assert any("shadow" in each for each in Project(shop).status().attention)
    service = Project(shop).service()
    assert service["shadow"].is_dir()
    assert service["source"] == shop / "deployment"


def test_a_better_ranker_is_released_gradually_and_promoted_by_clicks(tmp_path: Path) -> None:
    shop, deployment = tmp_path / "shop", Deployment(tmp_path / "shop" / "deployment")
    settings = ProjectSettings(source=Source(path="logs"), promotion=Promotion(rollout=True))
    context = Context(shop, settings, datetime(2026, 3, 1, tzinfo=UTC), lambda _: None)
    (promote,) = [each for each in STEPS if each.name == "promote"]

    def run(ranker: str) -> dict[str, Any]:
        """Run the step after a ranker that is better was trained."""
        version = Bundle.load(shop / RANKERS / ranker / "bundle").version
        better = {"new": True, "promote": True, "reason": "It is better."}
        for step, result in (("train", {"version": version, "folder": ranker}), ("compare", better)):
            context.records[step] = StepRecord("", {}, "", "", result)
        made = promote.make(context)
        context.records["promote"] = StepRecord("", {}, "", made.text, made.result)
        return dict(made.result)

    old, new = (linear_bundle(shop / RANKERS / name / "bundle", [w, 0.0, 0.0]) for name, w in (("a", 1.0), ("b", 2.0)))
    kept = shutil.copytree(new, tmp_path / "b")
    first = run("a")
    assert (first["version"], first["rollout"]) == (Bundle.load(old).version, "")
    shutil.copytree(kept, new)
    begun = run("b")
    assert (begun["version"], begun["shadow"]) == (first["version"], "b")
    assert begun["rollout"] == Bundle.load(new).version
    before = promote.reads(context)
    add_searches(tmp_path, deployment, [1] * 120, log=shop / "log")
    assert promote.reads(context) != before
    ended = run("b")
    assert ended["version"] == deployment.pointer().version == begun["rollout"]
    assert ended["reason"] == "Users prefer the new bundle, after 100 searches."
    assert (ended["rollout"], ended["shadow"]) == ("", "")
    assert run("b") == ended


@pytest.mark.parametrize(
    ("likelihood", "value", "promoted", "words"),
    [
        ((0.01, 0.005, 0.015), (0.02, -0.01, 0.05), True, "can lose at most 1.0% of the clicks"),
        ((0.01, 0.005, 0.015), (0.0, -0.03, 0.03), False, "may lose more than 2.0%"),
        ((0.01, -0.001, 0.02), (0.02, -0.01, 0.05), False, "not better"),
        ((-0.02, -0.03, -0.01), (0.04, 0.01, 0.07), False, "Held-out clicks say that the new ranker is worse"),
        ((0.0, -0.01, 0.01), (0.04, 0.01, 0.07), True, "can lose at most 0.0%"),
    ],
)
def test_promotion_needs_a_gain_and_a_bound_on_the_loss(
    likelihood: tuple[float, float, float], value: tuple[float, float, float], promoted: bool, words: str
) -> None:
    found, reason = verdict(Gain(*likelihood), Gain(*value), Promotion(max_loss=0.02))
    assert found is promoted
    assert words in reason


def test_the_comparison_by_hand() -> None:
    """Two documents of one query, seen 1 and 1/2: the better order earns 1 * .6 + .5 * .2 = .7 against .5."""
    evidence = replace(small(clicks=[3, 1], exposure=[5, 5], query=[0, 0]), posterior=np.array([0.6, 0.2]))
    curve = np.array([1.0, 0.5])
    assert _clicks_per_search(evidence, np.array([2.0, 1.0]), curve) == pytest.approx([0.7])
    assert _clicks_per_search(evidence, np.array([1.0, 2.0]), curve) == pytest.approx([0.5])
    weight, _ = _weight(evidence, np.array([1.0, -1.0]))  # clicks 3 : 1 at equal exposure: exp(2 b) = 3
    assert weight == pytest.approx(np.log(3) / 2, abs=1e-3)
    assert _weight(evidence, np.array([-1.0, 1.0]))[0] == 0.0
