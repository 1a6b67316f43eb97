"""The commands and the code of the README, the tutorial and the examples run as printed."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clickprism.cli.app import TREE, addressed
from clickprism.cli_old.app import app
from tests.conftest import run_command
from tests.serve.service_kit import serving, until_ready

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFUSED = 3

# What a page says, and what `make test` runs instead; `make test-all` runs the pages as they are.
SMALL_README = {"--budget 10s": "--budget 10m --processes 1"}  # enough time for all: the result is always the same
SMALL_TUTORIAL = {
    "--searches 30000 --days 10": "--searches 5000 --days 5",
    "--queries 1500 --length 10": "--queries 60 --length 6",
    "--budget 5m": "--budget 10m --processes 1",
}
AS_PRINTED: dict[str, str] = {}
full_size = pytest.mark.long


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLICKPRISM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def script(page: str, changes: Mapping[str, str]) -> str:
    """Return the commands of a page, with these changes."""
    text = "".join(blocks("bash", page)).replace("\\\n", " ")
    text = re.sub(" +", " ", text)
    for printed, instead in changes.items():
        assert printed in text
        text = text.replace(printed, instead)
    return text


def run_lines(text: str) -> Iterator[str]:
    """Run `clickprism` commands in this process and yield what each prints."""
    for line in text.splitlines():
        program, *words = shlex.split(line)
        assert program == "clickprism"
        if converted(words):
            yield run_command(*words).stdout
            continue
        done = CliRunner().invoke(app, words)
        # A log this small may not support an estimate of what a new ranker would earn.
        allowed = (0, REFUSED) if words[0] == "evaluate" and "--log" in words else (0,)
        assert done.exit_code in allowed, f"{line}\n{done.output}"
        yield done.output


def converted(words: list[str]) -> bool:
    """Return whether a command is one of the new command line."""
    inner: Any = TREE
    for word in addressed(words):
        inner = inner[word][1]
    return isinstance(inner, str) and find_spec(f"clickprism.cli.{inner.partition(':')[0]}") is not None


def test_the_readme_starts_with_the_two_commands() -> None:
    assert README.split("\n\n")[1].split("#")[0].split() == ["make", "demo"]
    assert re.search(r"^    make test", README, flags=re.MULTILINE)


@pytest.mark.parametrize("changes", [SMALL_README, pytest.param(AS_PRINTED, marks=full_size)], ids=["small", "full"])
def test_the_commands_of_the_readme_run_in_order(folder: Path, changes: Mapping[str, str]) -> None:
    printed = "".join(run_lines(script(README, changes)))
    for words in ("| dla |", "as logged", "erased", "ranker.onnx"):
        assert words in printed, words
    assert (folder / "ranker.onnx").is_file()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("changes", [SMALL_TUTORIAL, pytest.param(AS_PRINTED, marks=full_size)], ids=["small", "full"])
def test_the_tutorial_runs_up_to_a_service_that_curl_can_ask(folder: Path, changes: Mapping[str, str]) -> None:
    text = script(TUTORIAL, changes)
    before, serve, after = re.split(r"^(clickprism serve .*) &$", text, flags=re.MULTILINE)
    before = before.replace("export CLICKPRISM_TOKEN=secret\n", "")
    printed = "".join(run_lines(before))
    _, _, bundle, *options = shlex.split(serve.replace(" --port 8000 --quiet", ""))
    with serving(Path(bundle), *options, token="secret") as (address, _):  # noqa: S106 - the page's own
        until_ready(address)
        asked = after.replace("http://127.0.0.1:8000", address).replace("kill $!", "")
        environment = os.environ | {"CLICKPRISM_TOKEN": "secret"}
        command = ["/bin/bash", "-euo", "pipefail", "-c", asked]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for words in ("quarantined", "What was chosen, and why", "as logged:", '"items":', '"accepted"'):
        assert words in printed + done.stdout, words
    for file in ("diagnosis/report.html", "runs/shop/report.html", "runs/shop/auto.json"):
        assert (folder / file).is_file(), file


def test_the_python_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python", README)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(code.replace("300_000", "30_000").replace("epochs=20", "epochs=2"), {})  # noqa: S102 - the page's own code
    assert re.search(r"^dla +0\.\d{4}", capsys.readouterr().out, flags=re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("folder")
def test_the_example_prints_its_result(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example))
    assert "nDCG(exp)@10" in capsys.readouterr().out


def anchors(page: Path) -> set[str]:
    """Return what can be linked to in a page: its headings, spelled as GitHub and Sphinx do."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    docs = ROOT / "docs"
    listed = set("".join(blocks("{toctree}", (docs / "index.md").read_text(encoding="utf-8"))).split())
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md")}
    assert pages - {"index"} <= listed
