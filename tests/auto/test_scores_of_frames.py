"""`auto` and `diagnose` take a frame; `score` gives a column of the same library back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import clickprism as cp
from clickprism.auto.run import AutoResult
from clickprism.data.encoding import Encoding
from clickprism.errors import DataError, UnsupportedError
from clickprism.serve.bundle.bundle import Bundle
from tests.data.shop import shop_clicks

ROLES = {"query": "q", "document": "sku", "position": "rank", "click": "clicked"}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> AutoResult:
    out = tmp_path_factory.mktemp("frame") / "out"
    return cp.auto(shop_clicks(400), out=out, **ROLES, features="all others")  # type: ignore[arg-type]


def test_scores_have_the_type_and_the_index_of_the_frame(result: AutoResult) -> None:
    frame = shop_clicks(5, seed=1)
    scores = result.score(frame)
    assert scores.index.equals(frame.index)
    np.testing.assert_array_equal(result.score(pl.from_pandas(frame)).to_numpy(), scores)
    np.testing.assert_array_equal(result.score(pa.Table.from_pandas(frame)).to_numpy(), scores)
    np.testing.assert_array_equal(result.score({name: frame[name].to_numpy() for name in frame.columns}), scores)
    assert isinstance(result.score(pl.from_pandas(frame)), pl.Series)


def test_unseen_and_missing_values_are_scored(result: AutoResult) -> None:
    frame = pd.DataFrame({"quality": [1.0, None], "brand": ["new brand", None], "stock": [None, 1.0]})
    assert np.isfinite(result.score(frame)).all()


def test_a_frame_without_a_feature_is_refused(result: AutoResult) -> None:
    with pytest.raises(DataError, match="has no column 'brand', 'stock', which the ranker was trained with"):
        result.score(pd.DataFrame({"quality": [1.0]}))


def test_the_encoding_is_in_the_bundle_and_what_was_assumed_in_the_report(result: AutoResult) -> None:
    assert result.bundle is not None
    encoding = Encoding.of_plain(Bundle.load(result.bundle).manifest.data["encoding"])
    assert encoding == Encoding.load(result.out / "encoding.json")
    for text in (result.text(), result.report.read_text()):
        assert "No column has the time" in text


def test_without_features_there_is_nothing_to_score_with(tmp_path: Path) -> None:
    bare = cp.auto(shop_clicks(40), out=tmp_path / "out", **ROLES)  # type: ignore[arg-type]
    assert bare.bundle is None
    assert 'features="all others" uses all other columns: quality, brand, stock' in " ".join(bare.text().split())
    with pytest.raises(UnsupportedError, match="there is no ranker to score with"):
        bare.score(shop_clicks(2))


def test_diagnose_takes_a_frame() -> None:
    found = cp.diagnose(shop_clicks(100), only=["coverage"], **ROLES)  # type: ignore[arg-type]
    assert found.sessions == 100
