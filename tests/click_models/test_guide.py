"""The examples of docs/guides/click_models.md run in order, and compare the models as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "click_models.md"


def test_the_examples_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL))
    exec(code, {})  # noqa: S102 - the page's own code
    printed = re.findall(r"^(\w+) -\d", capsys.readouterr().out, flags=re.MULTILINE)
    assert printed == re.findall(r"^# (\w+) -\d", code, flags=re.MULTILINE) != []
