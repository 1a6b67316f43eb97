"""Small worlds that many tests share."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from typing import Any

# One thread: the data here is small, and threads that outnumber the cores wait for each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # OpenBLAS, torch and LightGBM read it when they are loaded

import hypothesis
import numpy as np
import pytest

from clickprism.cli.app import COMMANDS, build_app, full_names, run
from clickprism.types import Clicks, JudgedLists, Lists
from tests.waiting import LIMIT

# The same examples in each run; `make test-all` searches for new ones with --hypothesis-profile=random.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("fixed")


def make_judged(*, lists: int, features: int, seed: int, longest: int = 12) -> JudgedLists:
    """Random lists of 1 to `longest` documents whose grade follows the first two features."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, lists)
    lengths[0] = longest
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    matrix = rng.normal(size=(int(offsets[-1]), features)).astype(np.float32)
    quality = matrix[:, 0] + 0.5 * matrix[:, 1] + 0.2 * rng.normal(size=len(matrix))
    grades = np.digitize(quality, [0.0, 0.8, 1.4, 2.0]).astype(np.int32)
    return JudgedLists(Lists(matrix, offsets, np.array([f"q{i}" for i in range(lists)])), grades)


def make_clicks(judged: JudgedLists, *, seed: int, sessions: int = 20) -> Clicks:
    """Position-biased click counts on the lists in file order, positions 1, 2, ..."""
    rng = np.random.default_rng(seed)
    lists = judged.lists
    positions = (np.arange(lists.documents) - lists.offsets[lists.list_of] + 1).astype(np.int32)
    chance = (0.1 + 0.9 * (2.0**judged.grades - 1) / 15) / positions
    clicks = rng.binomial(sessions, chance).astype(np.int64)
    return Clicks(
        lists, lists.offsets, np.arange(lists.documents), positions, clicks, np.full(len(lists), sessions, np.int64)
    )


@pytest.fixture(scope="session")
def judged() -> JudgedLists:
    """Sixty lists of up to twelve documents with five features."""
    return make_judged(lists=60, features=5, seed=7)


@pytest.fixture(scope="session")
def clicks(judged: JudgedLists) -> Clicks:
    """Twenty sessions of each list."""
    return make_clicks(judged, seed=8)


@pytest.fixture(scope="session")
def forks() -> ForkServerContext:
    """A server that has imported what children of tests run, and forks them."""
    context = multiprocessing.get_context("forkserver")
    children = ["auto.children", "project.worlds", "faults.children", "serve.event_children", "serve.store_children"]
    context.set_forkserver_preload([f"tests.{name}" for name in children])
    return context


@pytest.fixture(scope="session")
def killed(forks: ForkServerContext) -> Callable[..., None]:
    """Return a function that calls another in a process of its own, which must kill itself."""

    def run(target: Callable[..., None], *arguments: object, **options: object) -> None:
        process = forks.Process(target=target, args=arguments, kwargs=options)
        process.start()
        process.join(LIMIT)
        assert process.exitcode == -signal.SIGKILL

    return run


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.stdout)


def run_command(*words: object, code: int = 0) -> Done:
    """Run a command of the command line in this process; it must end with this exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = run([str(word) for word in words])
    assert found == code, f"exit code {found}\n{out.getvalue()}\n{err.getvalue()}"
    return Done(found, out.getvalue(), err.getvalue())


def commands() -> dict[tuple[str, ...], str]:
    """Return the summary of every command by its path, such as ("log", "ingest")."""
    return {tuple(path.split()): summary for path, (function, summary) in COMMANDS.items() if function}


def parse_command(*words: object) -> Mapping[str, Any]:
    """Return the arguments that the function of a command would get; the command is not run."""
    texts = [str(word) for word in words]
    app = build_app(texts)
    return app.parse_args(full_names(app, texts), exit_on_error=False, print_error=False)[1].arguments


@pytest.fixture(scope="session")
def cli() -> Callable[..., Done]:
    """Return `run_command`: `cli("data", "info", file, "--json").json`."""
    return run_command
