"""One run of `auto`, which several tests look at."""

from __future__ import annotations

import pytest

from clickprism._util.crash_points import VARIABLE
from clickprism._util.resumable import EPOCH
from clickprism.auto.run import AutoResult
from tests.auto.children import run


@pytest.fixture(scope="package")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> AutoResult:
    """Return the result of a run that was not interrupted."""
    with pytest.MonkeyPatch.context() as patch:  # `run` sets both
        patch.setenv(EPOCH, "")
        patch.setenv(VARIABLE, "")
        return run(tmp_path_factory.mktemp("auto") / "out")
