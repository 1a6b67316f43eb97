"""What the README and the examples say runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


SMALL = {  # what the tutorial says, and what is enough to see that it runs
    "--searches 30000 --days 10": "--searches 5000 --days 5",
    "queries=1500 --set length=10": "queries=60 --set length=6",
    "--budget 5m": "--budget 20s",
    "--log log\n": "--log log || test $? = 3\n",  # so small a log may refuse to say
}


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CLICKPRISM_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    refused = done.returncode == 3 and "the log can value none of the rankers" in done.stderr  # so small a log may
    assert done.returncode == 0 or refused, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def test_the_two_commands_stand_at_the_top() -> None:
    assert README.split("\n\n")[1].split("#")[0].split() == ["make", "demo"]
    assert re.search(r"^    make test", README, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("numbers", "found"), [((0, 3), ("| dla |", "ranker.onnx")), ((1,), ("as logged",)), ((2,), ("erased",))]
)
def test_readme_commands_run_in_order(tmp_path: Path, numbers: tuple[int, ...], found: tuple[str, ...]) -> None:
    """A block may go on with what one before it made."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    tours = blocks("bash")
    assert len(tours) == 4
    for number, words in zip(numbers, found, strict=True):
        for line in tours[number].splitlines():
            program, *arguments = shlex.split(line)
            assert program == "clickprism"
            last = run([sys.executable, "-c", "from clickprism.cli_old import main; main()", *arguments], tmp_path)
        assert words in last.stdout + last.stderr


def test_the_tutorial_runs(tmp_path: Path) -> None:
    """Its commands in one shell, on a smaller log and another port; the service is asked by curl, as the page says."""
    script = "\n".join(blocks("bash", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for said, run_as in {**SMALL, "8000": port}.items():
        assert said in script
        script = script.replace(said, run_as)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        shown, told = shell.communicate(timeout=600)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"{shown[-3000:]}\n{told[-3000:]}"
    for words in ("quarantined", "What was chosen, and why", "as logged:", '"items":', '"accepted"'):
        assert words in shown, words
    for file in (
        "diagnosis/report.html",
        "runs/shop/report.html",
        "runs/shop/auto.json",
        "runs/shop/bundle/manifest.json",
    ):
        assert (tmp_path / file).is_file(), file


def test_readme_python_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    shown = run([sys.executable, "-c", code.replace("300_000", "30_000").replace("epochs=20", "epochs=2")], tmp_path)
    assert re.search(r"^dla +0\.\d{4}", shown.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    assert "nDCG(exp)@10" in run([sys.executable, str(example)], tmp_path).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
