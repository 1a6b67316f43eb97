"""The report: one file, escaped, complete, the same each time, and in the wheel."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from clickprism._util.tables import Table
from clickprism.errors import DataError
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.measures import Evaluation, Measure
from clickprism.evaluation.plots import svg, training_curve
from clickprism.evaluation.report import write_report

VOID = {"meta", "br", "hr", "img", "link", "input"}


def comparison() -> Comparison:
    rng = np.random.default_rng(0)
    ids = np.arange(30).astype(str)
    measures = (Measure.parse("nDCG@10"),)
    made = {name: Evaluation(measures, rng.random((1, 30)), ids, "drop") for name in ("click", "<b>dla</b>")}
    return compare(made, baseline="click", data="toy", seeds=[7])


def page(**more: object) -> str:
    figure = svg(training_curve({"dla": ([0, 1], [0.1, 0.2])}, measure="nDCG@10"), title="nDCG rises")
    given: dict[str, object] = {
        "title": "A <script>alert(1)</script> title",
        "summary": "First & foremost.\n\nSecond.",
        "comparison": comparison(),
        "figures": {"Training <1>": figure},
        "settings": {"fit": {"epochs": 3, "name": "<i>"}, "seed": None},
        "more": {
            "More & more": [
                {"Below <2>": "<svg></svg>"},
                Table("A <caption>", ["name", "<value>"], [["<row>", "1 < 2"]]),
            ]
        },
        "notes": ["a note"],
        "next_commands": ["clickprism demo --out 'x' && echo <done>"],
    }
    with TemporaryDirectory() as folder:
        path = write_report(Path(folder, "report.html"), **(given | more))  # type: ignore[arg-type]
        return path.read_text(encoding="utf-8")


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in {"src", "href", "xlink:href"} and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    parser = Page()
    parser.feed(page())
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert all(link.startswith("#") for link in parser.links)
    assert not re.search(r"@import|url\((?!#)", page())


def test_everything_from_outside_is_escaped() -> None:
    text = page()
    assert "<script" not in text
    assert "&lt;b&gt;dla&lt;/b&gt;" in text
    assert "<i>" not in text
    assert "&amp;&amp; echo &lt;done&gt;" in text
    assert "Training &lt;1&gt;" in text
    assert "More &amp; more</h2>" in text
    assert "<figcaption>Below &lt;2&gt;</figcaption>" in text
    assert '<th scope="row">&lt;row&gt;</th><td>1 &lt; 2</td>' in text
    assert "A &lt;caption&gt;</caption>" in text


def test_everything_is_named() -> None:
    text = page()
    for fact in (
        "nDCG(exp)@10",
        "Data: toy",
        "seeds 7",
        "fit.epochs",
        "none",
        "a note",
        "numpy ",
        "Python 3",
        "dropped",
    ):
        assert fact in text
    assert text.count('class="summary"') == 2
    assert 'aria-label="nDCG rises"' in text
    assert text == page()


def test_what_is_not_given_is_not_there() -> None:
    text = page(notes=(), next_commands=(), figures={}, more={})
    assert "More" not in text
    assert "Try next" not in text
    assert "<figure>" not in text


def test_a_figure_must_be_svg() -> None:
    with pytest.raises(DataError, match="not an SVG"):
        page(figures={"x": "<p>no</p>"})
    with pytest.raises(DataError, match="'y' is not an SVG"):
        page(more={"More": [{"y": "<p>no</p>"}]})


def test_writing_makes_the_folder_and_leaves_only_the_report(tmp_path: Path) -> None:
    path = write_report(
        tmp_path / "deep" / "report.html", title="t", summary="s", comparison=comparison(), figures={}, settings={}
    )
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_the_template_is_part_of_the_package() -> None:
    assert resources.files("clickprism.evaluation").joinpath("templates/report.html.j2").is_file()


def test_a_column_with_text_in_it_is_one_of_text() -> None:
    made = Table(
        "", ["what", "why", "value"], [["a", "no", "1"], ["b", "for want of clicks on it in all of them", "2"]]
    )
    assert made.html().count('class="words"') == 3
    assert '<td class="words">no</td><td>1</td>' in made.html()
    assert 'class="prose"' not in made.html()


def test_a_table_of_sentences_is_stacked_on_small_screens_and_its_commands_are_code() -> None:
    made = Table(
        "", ["finding", "verdict", "what to do"], [["trust", "present", "Run `clickprism auto LOG` on it, " * 3]]
    )
    assert made.html().startswith('<table class="prose">')
    assert '<td class="text">present</td><td class="words">Run <code>clickprism auto LOG</code> on it' in made.html()
