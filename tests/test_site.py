"""The site builds without a warning, broken links are found, and every method has a page."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import clickprism
from clickprism.debias import METHODS
from docs.build import problems

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_the_site_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """Sphinx stops at warnings: pages outside the navigation, links to what is not there, docstrings that break."""
    command = [sys.executable, "-m", "docs.build", "--out", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    for name in set(clickprism.__all__) - {"__version__"}:
        assert f'id="clickprism.{name}"' in page, f"{name} of the front door is not in the reference"


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.html").write_text('<h1 id="top">b</h1><a href="../a.html#here">back</a>', encoding="utf-8")
    (tmp_path / "style.css").write_text("@import '//fonts.example/x'; a {background: url(data:,)}", encoding="utf-8")
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="deep/b.html#top">b</a><a href="deep/b.html#bottom">b</a><a href="gone.html">c</a>'
        '<a href="https://example.org/not-checked">out</a><a href="#nowhere">d</a><img src="https://example.org/i.png">',
        encoding="utf-8",
    )
    assert list(problems(tmp_path)) == [
        "a.html: no #bottom in deep/b.html",
        "a.html: no file gone.html",
        "a.html: no #nowhere in a.html",
        "a.html: loads https://example.org/i.png from another host",
        "style.css: loads //fonts.example/x from another host",
    ]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page(name: str) -> None:
    """What it assumes, where it fails, and a table of what was measured."""
    page = (ROOT / "docs" / "research" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# `{name}`")
    for heading in ("Assumptions", "Failure modes", "Measured"):
        assert f"\n## {heading}\n" in page
    assert "\n|---" in page.partition("\n## Measured\n")[2]


def test_the_method_of_the_page_that_explains_methods_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For users with o_k = 1 / k the method of docs/guides/add_a_method.md learns that curve and ranks above clicks."""
    page = (ROOT / "docs" / "guides" / "add_a_method.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "power_law.py").write_text(code, encoding="utf-8")
    runpy.run_path(str(tmp_path / "power_law.py"))
    printed = capsys.readouterr().out
    curve = [float(value) for value in re.findall(r"[\d.]+", printed.partition("[")[2].partition("]")[0])]
    assert curve == pytest.approx([1 / k for k in range(1, 11)], abs=0.05)
    scores = dict(re.findall(r"^(\w+) {.*: ([\d.]+)}", printed, flags=re.MULTILINE))
    assert float(scores["power_law"]) > float(scores["click"])
