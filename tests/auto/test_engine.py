"""`auto --for ENGINE` chooses only what the engine can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from clickprism.auto.checks import Checked, choose_ranker
from clickprism.auto.run import auto
from clickprism.data.logged import Logged
from clickprism.errors import SettingError
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.serve.export.export import Source, export, holds
from reproduce.common.engines import EngineSettings, engine_world


@pytest.fixture(scope="module")
def logged() -> Logged:
    return engine_world(EngineSettings(users="pbm", quality=0.6, queries=60, searches=10, seed=3)).logged


@pytest.mark.parametrize(("engine", "kinds"), [("ranklib", {"lambdamart"}), ("opensearch", {"linear", "lambdamart"})])
def test_only_rankers_that_the_engine_holds_are_chosen(
    engine: str, kinds: set[str], logged: Logged, tmp_path: Path
) -> None:
    model = LogModel.fit(logged, settings=LogModelSettings(resamples=0))
    checked: Checked = choose_ranker(logged, model, held=holds(engine))
    found = checked.candidates.found[checked.candidates.chosen].make()
    assert found.ranker.name in kinds
    assert "the engine can hold" in checked.candidates.reason
    for candidate in (found, checked.candidates.raw.make()):
        names = tuple(f"f{place}" for place in range(candidate.features))
        source = Source(candidate.with_normaliser(checked.normaliser), names, complete=True)
        out = tmp_path / str(id(candidate))
        assert export(source, out, format_name=engine).rows_checked >= 1024


def test_an_engine_that_there_is_none_of_is_refused_before_the_log_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="for must be one of onnx, "):
        auto(tmp_path / "nowhere", out=tmp_path / "run", engine="lucene")
    assert not (tmp_path / "run").exists()
