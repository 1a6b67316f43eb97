"""Settings: from mappings, with errors that name the field."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.settings import build, choose, plain, read_toml, read_value, resolve, to_toml


@dataclass(frozen=True)
class Inner:
    depth: int = 1

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise SettingError("depth", self.depth, "be at least 1")


@dataclass(frozen=True)
class Outer:
    name: str
    kind: Literal["a", "b"] = "a"
    merge: Literal["list", "pattern"] | Literal["none"] = "list"
    hidden: tuple[int, ...] = (3, 2)
    names: tuple[str, ...] = ()
    limit: float | None = None
    inner: Inner = field(default_factory=Inner)


def test_build_and_plain_are_inverse() -> None:
    settings = build(Outer, {"name": "x", "hidden": [4], "limit": 2, "inner": {"depth": 3}})
    assert settings == Outer("x", hidden=(4,), limit=2.0, inner=Inner(3))
    assert build(Outer, plain(settings)) == settings


def test_one_text_is_a_list_of_one() -> None:
    assert build(Outer, {"name": "x", "names": "price"}).names == ("price",)
    assert build(Outer, {"name": "x", "names": ["price", "age"]}).names == ("price", "age")
    with pytest.raises(SettingError, match=r"names must be of type tuple\[str, \.\.\.\], got 3"):
        build(Outer, {"name": "x", "names": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "x", "hiden": [1]}, r"run\.hiden must be a known setting \(did you mean 'hidden'\?\), got \[1\]"),
        ({"name": "x", "kind": "c"}, r"run\.kind must be one of a, b, got 'c'"),
        (
            {"name": "x", "merge": "lists"},
            r"run\.merge must be one of list, pattern, none \(did you mean 'list'\?\), got",
        ),
        (
            {"name": "x", "depth": 3},
            r"run\.depth must be a known setting \(did you mean 'run\.inner\.depth'\?\), got 3",
        ),
        (
            {"name": "x", "far": 3},
            r"run\.far must be a known setting \(known: hidden, inner, kind, limit, merge, name, names\)",
        ),
        ({"name": "x", "hidden": ["wide"]}, r"run\.hidden must be of type tuple\[int, \.\.\.\], got \['wide'\]"),
        ({"name": "x", "inner": {"depth": 0}}, r"run\.inner\.depth must be at least 1, got 0"),
        ({"name": "x", "inner": {"deep": 0}}, r"run\.inner\.deep must be a known setting"),
        ({"name": "x", "inner": 3}, r"run\.inner must be of type Inner, got 3"),
        ({}, r"run\.name must be given$"),
    ],
)
def test_errors_name_field_and_value(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build(Outer, values, path="run")


def test_values_are_read_as_toml_and_other_text_stays_text() -> None:
    texts = {"4": 4, " 1e-2": 0.01, "pbm": "pbm", "true": True, "[1, 2]": [1, 2], '".3"': ".3", "'1.'": "1."}
    for text, value in texts.items():
        assert read_value(text) == value


def test_numbers_need_no_digit_beside_the_point() -> None:
    loose = {".3": 0.3, "-.3": -0.3, "+.5e-2": 0.005, "1.": 1.0, "-2.": -2.0, "3.e2": 300.0, " .7 ": 0.7}
    for text, number in loose.items():
        assert read_value(text) == number
    assert read_value("[0, .01, 1.]") == [0, 0.01, 1.0]
    assert read_value("{a = .5}") == {"a": 0.5}
    for text in (".", "..", "./.3", "a.3", "1.2.3", ".3.4", "v1.", "data/1.txt", "-", "1._", ".3x"):
        assert read_value(text) == text


def test_toml_survives_any_text(tmp_path: Path) -> None:
    values = {"folder": 'data/\N{GRINNING FACE}\x7f"\\', "odd \N{SNOWMAN} key": {"rate": 1e-7, "on": True}}
    path = tmp_path / "run.toml"
    path.write_text(to_toml(values), encoding="utf-8")
    assert read_toml(path) == values


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from clickprism.rankers import RANKERS

    monkeypatch.delitem(sys.modules, "clickprism.rankers.mlp", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"torch needs .* pip install 'clickprism\[neural\]'"):
        resolve(RANKERS, "mlp", path="ranker.name")


def test_broken_toml_names_the_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[fit]\nepochs = \n")
    with pytest.raises(DataError, match=r"run\.toml: is not valid TOML: .*line 2"):
        read_toml(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")


def test_registries_suggest_and_choose() -> None:
    table = {"inner": f"{__name__}:Inner"}
    with pytest.raises(SettingError, match=r"part\.name must be a known name \(did you mean 'inner'\?\)"):
        resolve(table, "iner", path="part.name")
    with pytest.raises(SettingError, match="part must be a table with a name, one of inner, got 3"):
        choose(table, 3, path="part")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"part must be a table of settings, got \[1\]"):
        build(Inner, [1], path="part")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"part\.name must be one of inner$"):
        choose(table, {"depth": 2}, path="part")


def test_choose_builds_what_is_named() -> None:
    from clickprism.rankers import RANKERS
    from clickprism.rankers.mlp import MLP

    assert choose(RANKERS, {"name": "mlp", "hidden": [8]}, path="ranker") == MLP(hidden=(8,))
    assert choose(RANKERS, {"hidden": [8]}, path="ranker", name="mlp") == MLP(hidden=(8,))
    assert choose(RANKERS, "mlp", path="ranker") == MLP()
    with pytest.raises(SettingError, match=r"ranker\.dropout must be at least 0 and below 1, got 1\.0"):
        choose(RANKERS, {"name": "mlp", "dropout": 1.0}, path="ranker")


@dataclass(frozen=True)
class Whole:
    outer: Outer = field(default_factory=lambda: Outer("x", limit=3.0, inner=Inner(5)))


def test_a_partial_table_keeps_the_other_defaults_of_the_whole() -> None:
    made = build(Whole, {"outer": {"hidden": [1], "inner": {}}})
    assert made == Whole(Outer("x", hidden=(1,), limit=3.0, inner=Inner(5)))


def test_text_from_the_command_line_is_read_as_the_type_of_the_field() -> None:
    text = {"name": "3", "hidden": "[4, 5]", "limit": ".5", "names": '["a", "b"]', "inner": {"depth": "7"}}
    assert build(Outer, text) == Outer("3", hidden=(4, 5), limit=0.5, names=("a", "b"), inner=Inner(7))
    with pytest.raises(SettingError, match=r"limit must be of type .*, got 'fast'"):
        build(Outer, {"name": "x", "limit": "fast"})
