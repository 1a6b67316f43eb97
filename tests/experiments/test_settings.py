"""Settings of experiments: from TOML and text, with advice on errors, and back to TOML."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path

import pytest

from clickprism.errors import ClickprismError, DataError, MissingExtraError, SettingError, TrainingError
from clickprism.experiments.bundle import saved_settings
from clickprism.experiments.compare import settings_of
from clickprism.experiments.settings import ExperimentSettings, read_settings, resolved
from clickprism.settings import build, plain, to_toml
from clickprism.training.settings import FitSettings

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text)
    return file


def given(*words: str) -> ExperimentSettings:
    return build(ExperimentSettings, tomllib.loads("\n".join(words)))


def test_what_a_file_does_not_name_keeps_the_default_of_the_experiment(tmp_path: Path) -> None:
    settings = read_settings(write(tmp_path, "[simulation]\nlength = 5\n[user]\nseverity = 2.0\n"))
    assert settings.simulation.frequency == "each"  # the default of SimulationSettings alone is "uniform"
    assert settings.simulation.length == 5
    assert settings.user == {"name": "pbm", "severity": 2.0}
    assert list(settings.methods) == ["labels", "click", "ipw", "dla"]


def test_methods_of_a_file_replace_the_default_ones(tmp_path: Path) -> None:
    assert read_settings(write(tmp_path, "[methods.click]\n")).methods == {"click": {}}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("fit.epoch=3", "did you mean 'epochs'"),
        ("data.sauce=1", "did you mean 'source'"),
        ("data.source='synthetik'", "did you mean 'synthetic'"),
        ("user.name='pmb'", "did you mean 'pbm'"),
        ("fit.epochs='many'", "be of type int"),
        ("fit.seed=3", "fit.seed must be a known setting"),
        ("evaluation.measures=['nDGC']", "did you mean 'nDCG'"),
        ("methods={'../up' = {}}", "names a folder"),
        ("data.source='mq2008'", "say where the files of mq2008 are"),
    ],
)
def test_wrong_settings_are_refused_with_advice(word: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        given(word)


def test_resolved_settings_say_all_and_come_back(tmp_path: Path) -> None:
    words = ["user.severity=2", "ranker.hidden=[8]", "simulation.max_grade=4", "methods.ipw.floor=0.0"]
    values = resolved(given(*words))
    assert values["user"]["curve"][0] == 0.68
    assert (list(values["ranker"]["hidden"]), values["ranker"]["dropout"]) == ([8], 0.0)
    ipw = {"name": "ipw", "propensities": (), "floor": 0.0, "estimate": "none"}
    assert values["methods"] == {"ipw": ipw}
    again = read_settings(write(tmp_path, to_toml(values)))
    assert resolved(again) == values


def test_toml_of_odd_values_comes_back() -> None:
    odd = {"a b": 'quote " back \\ line \n é', "x": [1e-9, 2.0, 1e300], "t": True, "in": {"empty": {}, "n": -3}}
    assert tomllib.loads(to_toml(odd)) == odd


def test_all_defaults_survive_toml() -> None:
    settings = ExperimentSettings()
    assert build(ExperimentSettings, tomllib.loads(to_toml(plain(settings)))) == settings


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_are_sound(file: Path) -> None:
    assert resolved(read_settings(file))


@pytest.mark.parametrize(
    "error",
    [
        SettingError("fit.epochs", 0, "be at least 1"),
        DataError("is broken", file="a.txt", line=3, remedy="Mend it"),
        TrainingError("ran away"),
        MissingExtraError("neural", "a network"),
    ],
)
def test_errors_come_back_whole_from_a_worker(error: ClickprismError) -> None:
    again = copy.copy(error)  # built anew from what the error reduces to, as it is on its way between processes
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_user_or_ranker_without_a_name_is_the_default_one() -> None:
    settings = ExperimentSettings(user={"severity": "2"}, ranker={"hidden": [8]})
    assert (settings.user["name"], settings.ranker["name"]) == ("pbm", "mlp")
    assert resolved(settings)["user"]["severity"] == 2.0


def test_run_i_uses_the_first_seed_plus_i() -> None:
    assert ExperimentSettings(seed=4, runs=3).seeds == (4, 5, 6)
    with pytest.raises(SettingError, match=r"fit\.seed must not be given in an experiment"):
        ExperimentSettings(fit=FitSettings(seed=1))
    with pytest.raises(SettingError, match="runs must be at least 1"):
        ExperimentSettings(runs=0)


def test_settings_of_a_model_come_from_the_nearest_folder(tmp_path: Path) -> None:
    run = tmp_path / "comparison" / "dla-0"
    run.mkdir(parents=True)
    assert saved_settings(run) is None
    (run.parent / "settings.toml").write_text("[data.synthetic]\nseed = 1\n")
    assert settings_of([run / "model"]).data.synthetic.seed == 1
    (run / "settings.toml").write_text("[data.synthetic]\nseed = 2\n")
    assert settings_of([run / "model"]).data.synthetic.seed == 2
    with pytest.raises(SettingError, match="different data"):
        settings_of([run / "model", run.parent / "click-0" / "model"])
