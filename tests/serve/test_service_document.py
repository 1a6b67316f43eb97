"""Schemathesis finds nothing: what the OpenAPI document forbids is refused, and every answer is as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.service_kit import TOKEN, linear_bundle, publish, serving, until_ready
from tests.waiting import LIMIT

EXAMPLES = 25


@pytest.mark.parametrize("stored", [False, True], ids=["features in the request", "features in the store"])
def test_schemathesis_finds_no_failure(tmp_path: Path, stored: bool) -> None:
    bundle = linear_bundle(tmp_path / "bundle", [1.0, 2.0, 3.0])
    options = ["--timeout", str(LIMIT)]
    if stored:
        store = publish(tmp_path / "store", {"0": {"0": [1.0, 2.0, 3.0]}})
        options += ["--store", str(store), "--shadow", str(bundle), "--rerank-depth", "1"]
    with serving(bundle, *options) as (address, _):
        until_ready(address)
        words = ["run", f"{address}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}", "--seed", "1"]
        words += ["--request-timeout", str(LIMIT), "--exclude-checks", "positive_data_acceptance"]
        words += [
            "--max-examples",
            str(EXAMPLES),
            "--phases",
            "examples,coverage,fuzzing",
            "--generation-database",
            "none",
        ]
        program = [str(Path(sys.executable).with_name("schemathesis")), *words]
        done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
