"""The commands and the code of the README, the tutorial and the examples run as printed."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.app import addressed, build_app
from tests.conftest import parse_command
from tests.data.shop import shop_clicks
from tests.serve.service_kit import serving, until_ready

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What `make test` changes in the commands of a page; `make test-all` runs them as printed.
SMALL = {
    r"--searches \d+ --days \d+": "--searches 4000 --days 4",
    r"--queries \d+ --length \d+": "--queries 60 --length 6",
}
AS_PRINTED: dict[str, str] = {}
sizes = pytest.mark.parametrize(
    "changes", [SMALL, pytest.param(AS_PRINTED, marks=pytest.mark.long)], ids=["small", "as printed"]
)


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
    """Return the commands of a page, one a line, with these changes."""
    text = re.sub(r" *\\\n *", " ", "".join(blocks("bash", page)))
    for printed, instead in changes.items():
        text, found = re.subn(printed, instead, text)
        assert found, printed
    return text


def run_lines(text: str, cli: Callable[..., Any]) -> str:
    """Run `clickprism` commands in this process and return what they print; each must write the files it names."""
    printed = ""
    for line in text.splitlines():
        program, *words = shlex.split(line)
        assert program == "clickprism"
        done = cli(*words)
        for option, value in pairwise(words):
            assert option not in ("--out", "--into") or Path(value).exists(), line
        printed += done.stdout + done.stderr
    return printed


def test_the_readme_starts_with_the_two_commands() -> None:
    assert README.split("\n\n")[1].split("#")[0].split() == ["make", "demo"]
    assert re.search(r"^    make test", README, flags=re.MULTILINE)


@sizes
@pytest.mark.usefixtures("folder")
def test_the_commands_of_the_readme_run_in_order(cli: Callable[..., Any], changes: Mapping[str, str]) -> None:
    assert run_lines(script(README, changes), cli)


@sizes
@pytest.mark.timeout(1200)
def test_the_tutorial_runs_up_to_a_service_that_curl_can_ask(
    folder: Path, cli: Callable[..., Any], changes: Mapping[str, str]
) -> None:
    text = script(TUTORIAL, changes)
    before, serve, after = re.split(r"^(clickprism serve .*) &$", text, flags=re.MULTILINE)
    before = before.replace("export CLICKPRISM_TOKEN=secret\n", "")
    printed = run_lines(before, cli)
    _, _, bundle, *options = shlex.split(serve.replace(" --port 8000 --quiet", ""))
    with serving(Path(bundle), *options, token="secret") as (address, _):  # noqa: S106 - the page's own
        until_ready(address)
        asked = after.replace("http://127.0.0.1:8000", address).replace("kill $!", "")
        environment = os.environ | {"CLICKPRISM_TOKEN": "secret"}
        command = ["/bin/bash", "-euo", "pipefail", "-c", asked]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for words in ("Clicks by position", "promoted", "every step is up to date", '"items":', '"rows":1'):
        assert words in printed + done.stdout, words
    assert len(list((folder / "shop" / "runs").glob("*/report.html"))) == 1


GUIDES = {  # page: what `make test` changes in its commands
    "observation": {
        r"small.toml --sim": "small.toml --sessions 20 --sim",
        "--method ipw": "--method ipw --fit.epochs 2",
    },
    "diagnosis": {},
    "click_models": {},
    "relevance": {r"--searches \d+ --days \d+ --queries \d+": "--searches 3000 --days 4 --queries 30"},
    "imputation": {r"--searches \d+ --days \d+ --queries \d+": "--searches 6000 --days 6 --queries 60"},
    "examination": {r"--searches \d+ --days \d+": "--searches 3000 --days 3"},
}


@pytest.mark.parametrize("page", GUIDES)
def test_the_commands_of_a_guide_run_in_order(folder: Path, cli: Callable[..., Any], page: str) -> None:
    """Guides that do not simulate a log of their own use `mylog`, `sessions.tsv` and `curve.txt` of the reader."""
    text = script((ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8"), GUIDES[page])
    if "--into mylog" not in text:
        own = "--out raw --searches 2000 --days 3 --queries 30 --length 5 --user.name pbm"
        run_lines(f"clickprism log simulate {own}\nclickprism log ingest raw/events --into mylog\n", cli)
        (folder / "sessions.tsv").write_text(
            "query\tdocuments\tclicks\tdevice\n"
            + "".join(
                f"q{n % 20}\t{'a,b,c' if n % 3 else 'b,a,c'}\t{'ab'[n % 2] if n % 4 else ''}\tphone\n"
                for n in range(2000)
            )
        )
        (folder / "curve.txt").write_text("".join(f"{1 / k}\n" for k in range(1, 21)))
    assert run_lines(text, cli)


def section(title: str) -> list[str]:
    """Return the pages of a section of the navigation."""
    (tree,) = [
        each for each in blocks("{toctree}", (ROOT / "docs" / "index.md").read_text()) if f"caption: {title}" in each
    ]
    return tree.partition("\n\n")[2].split()


def test_the_documentation_has_four_sections_and_short_guides() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^:caption: (.*)$", index, flags=re.M) == ["Start", "Guides", "Reference", "Research"]
    words = [len((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split()) for page in section("Guides")]
    assert sum(words) <= 25_000


@pytest.mark.parametrize("page", section("Guides"))
def test_a_guide_is_short_and_says_first_what_the_reader_will_be_able_to_do(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1200
    assert text.split("\n\n")[1].startswith("After this guide you can ")


def test_the_python_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    _, code = blocks("python", README)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(code.replace("300_000", "30_000").replace("epochs=20", "epochs=2"), {})  # noqa: S102 - the page's own code
    assert re.search(r"0\.\d{4}", capsys.readouterr().out)


def test_five_lines_of_the_readme_lead_from_a_frame_of_clicks_to_a_scored_frame(folder: Path) -> None:
    code, _ = blocks("python", README)
    assert len([line for line in code.splitlines() if line.strip()]) == 5
    shop_clicks(400).to_parquet(folder / "clicks.parquet")
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page's own code
    scored = names["df"]
    assert scored["q"].is_monotonic_increasing
    assert scored["score"].corr(scored["quality"]) > 0.5  # relevance depends on quality
    assert names["result"].bundle is not None


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


@pytest.mark.parametrize("title", ["Start", "Guides", "Reference", "Research"])
def test_a_section_of_the_navigation_is_a_folder(title: str) -> None:
    assert {Path(page).parts[0] for page in section(title)} == {title.lower()}


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    docs = ROOT / "docs"
    listed = "".join(blocks("{toctree}", (docs / "index.md").read_text(encoding="utf-8"))).split()
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md")} - {"index"}
    assert [page for page in sorted(pages) if not any(fnmatch(page, name) for name in listed)] == []


def test_every_function_that_the_derivation_names_exists() -> None:
    page = (ROOT / "docs" / "research" / "one_model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)\.py:\s+([\w.]+)`", page)
    assert len(named) > 30
    for file, name in named:
        assert attrgetter(name)(import_module(f"clickprism.log_model.{file}")) is not None, f"{file}.py: {name}"


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reference" / "guarantees.md").read_text(encoding="utf-8"))
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_every_registry_that_the_architecture_names_exists() -> None:
    page = (ROOT / "docs" / "reference" / "architecture.md").read_text(encoding="utf-8")
    cells = re.findall(r"\| (`[A-Z_`, or]+) in `([\w/]+)\.py`", page)
    assert len(cells) == 7
    for names, file in cells:
        module = import_module(f"clickprism.{file.replace('/', '.').removesuffix('.__init__')}")
        for name in re.findall("[A-Z_]+", names):
            assert getattr(module, name), f"{file}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_on_a_page_can_be_typed(page: Path) -> None:
    """Its name and its options exist, and its values have the right types; it is not run."""
    text = re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))
    code = "".join(
        [*re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL), *re.findall(r"^ {4}.*\n", text, flags=re.M)]
    )
    before = r" *(?:\$ |(?:[\d*/]+ +){5}|[A-Z_]+=\w+ )*"  # a prompt, the time of a cron job, ...
    for line in re.findall(rf"^{before}clickprism ([a-z](?!.*\[(?:OPTIONS|ARGS)).*)$", code, flags=re.M):
        words = shlex.split(re.sub(r" --config \S+|\s+[#&|>].*", "", line))
        parse_command(*words)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_sentence_exists_with_its_options(page: Path) -> None:
    for line in re.findall(r"`clickprism\s+([a-z][^`]*)`", page.read_text(encoding="utf-8")):
        words = line.split()
        command = build_app(path := addressed(words))
        assert path, line
        for name in path:
            command = command[name]
        for option in set(re.findall(r"--[a-z][a-z.-]*", line)) - {"--help"}:
            command.assemble_argument_collection().match(option)
