"""What follows a click, such as a cart or a booking, is kept apart in an ingested log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import clickprism as cp
from clickprism.log.load import read_store
from tests.conftest import Done
from tests.data.shop import shop_table
from tests.log.event_logs import event
from tests.log.test_sessions import log


def test_other_actions_on_clicked_documents_are_outcomes(tmp_path: Path) -> None:
    rows = [
        event("ranking", "s", documents=["a", "b", "c"], clicked=["a", "b"]),
        event("ranking", "t", documents=["a", "b"], clicked=["a"]),
        event("interaction", "s", document_id="a", action="add_to_cart"),
        event("interaction", "s", document_id="a", action="add_to_cart", event_id="again"),
        event("interaction", "t", document_id="b", action="purchase"),  # of a document that was not clicked
        event("interaction", "s", document_id="b", action="purchase"),
    ]
    found = read_store(log(tmp_path, rows).folder)
    assert found.outcomes is not None
    ids = found.clicks.lists.document_ids
    assert ids is not None
    outcomes = {name: values.tolist() for name, values in found.outcomes.values.items()}
    assert (ids[found.outcomes.rows].tolist(), outcomes) == (
        ["a", "b", "a"],
        {"cart": [1, 0, 0], "purchase": [0, 1, 0]},
    )


def test_clicks_alone_are_no_outcomes(tmp_path: Path) -> None:
    rows = [event("ranking", "s", documents=["a"]), event("interaction", "s", document_id="a")]
    assert read_store(log(tmp_path, rows).folder).outcomes is None


def test_the_outcomes_of_a_table_are_ingested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Done]
) -> None:
    monkeypatch.chdir(tmp_path)
    shop_table(Path("clicks.csv"), Path("shop.db"))
    cli("log", "ingest", "clicks.csv", "--map", "document=sku", "--map", "cart=cart", "--into", "shoplog")
    table = cp.read_log("clicks.csv", document="sku", outcomes=["cart"]).outcomes
    ingested = cp.read_log("shoplog").outcomes
    assert table is not None
    assert ingested is not None
    assert len(ingested.rows) == len(table.rows)
    assert ingested.values["cart"].sum() == np.sum(table.values["cart"]) > 0
