"""What docs/guides/recommendation.md says runs as it stands, from a log to the scores of a new request."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import run_command

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "recommendation.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_from_a_log_to_the_scores_of_a_new_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made, scored = blocks("python")
    (commands,) = blocks("bash")
    exec(made, {})  # noqa: S102 - the page's own code
    for line in commands.splitlines():
        words = shlex.split(line)[1:]
        run_command(*words, *(["--fit.epochs", "3", "--fit.threads", "1"] if words[0] == "train" else []))
    exec(scored, {})  # noqa: S102
    assert set(re.findall(r"i\d", capsys.readouterr().out)) == {"i3", "i4", "i9"}
