"""End to end on a real standalone cluster: the same tables as DuckDB's, value for value."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from clickprism.log.engine import Engine
from clickprism.log.schema import KINDS
from clickprism.log.sessions import update_sessions
from tests.log.cluster import standalone_cluster
from tests.log.conftest import need_java
from tests.log.event_logs import random_rows
from tests.log.test_sessions import log, sessions


@pytest.mark.timeout(900)
def test_cluster_makes_the_same_sessions(duck: Engine, tmp_path: Path) -> None:
    need_java()
    rows = random_rows(random.Random(3), 150, kinds=KINDS)
    one, other = (log(tmp_path / name, rows) for name in ("by duckdb", "by spark"))
    days = update_sessions(one, duck)
    with standalone_cluster(tmp_path / "cluster") as environment:
        words = ["sessions", str(other.folder), "--engine", environment["MASTER"], "--json"]
        command = [sys.executable, "-m", "clickprism", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Next: "), done.stderr
    assert [each["day"] for each in json.loads(done.stdout)["rebuilt"]] == [day.isoformat() for day in days]
    assert sessions(other, duck) == sessions(one, duck)
    assert update_sessions(other, duck) == []
