"""End to end on a real standalone cluster: the same tables as DuckDB's, value for value."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from clickprism.examination.examine import examine, make_current
from clickprism.examination.model import newest_model
from clickprism.log.engines.base import Engine
from clickprism.log.features.snapshots import read_snapshot
from clickprism.log.features.windows import windows
from clickprism.log.schema import KINDS
from clickprism.log.sessions import update_sessions
from clickprism.log.settings import WindowSettings
from tests.log.cluster import standalone_cluster
from tests.log.conftest import need_java
from tests.log.event_logs import NOON, random_rows
from tests.log.test_sessions import log, sessions

AS_OF = datetime(2026, 3, 3, 9, 30)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_cluster_makes_the_same_sessions_model_and_windows(duck: Engine, tmp_path: Path) -> None:
    need_java()
    rows = [
        row
        for number in range(3)
        for row in random_rows(random.Random(number), 200, kinds=KINDS, day=NOON + timedelta(days=number))
    ]
    one, other = (log(tmp_path / name, rows) for name in ("by duckdb", "by spark"))
    days = update_sessions(one, duck)
    model, _ = examine(one, duck)
    make_current(one, model)
    expected = windows(one, duck, AS_OF, examiner=model, settings=WindowSettings(k=1))
    with standalone_cluster(tmp_path / "cluster") as environment:
        command = [sys.executable, "-m", "tests.log.cluster_driver", str(other.folder), AS_OF.isoformat()]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert update_sessions(other, duck) == []
    assert other.table("sessions").days() == days
    assert sessions(other, duck) == sessions(one, duck)
    trained = newest_model(other.folder / "models")
    assert trained is not None
    assert trained.fingerprint == model.fingerprint
    made = read_snapshot(other)
    assert (made.pairs, made.suppressed) == (expected.snapshot.pairs, expected.snapshot.suppressed)
    assert min(made.pairs.values()) > 0
    found, known = (sorted(map(repr, each.read().to_pylist())) for each in (made, expected.snapshot))
    assert found == known
    assert not windows(other, duck, AS_OF, examiner=model, settings=WindowSettings(k=1)).changed
