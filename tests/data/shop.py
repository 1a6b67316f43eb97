"""The frame of a shop, as a team would have it: columns of every kind, and clicks that fall with the position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy

QUERIES = ("tv", "phone", "shoe", "bag")


def shop_clicks(requests: int = 600, *, seed: int = 0) -> Any:
    """Return a pandas frame: ten of forty items of a query for each request, relevance by quality and brand."""
    rng = np.random.default_rng(seed)
    items = 40 * len(QUERIES)
    quality, brand = rng.normal(size=items), rng.integers(0, 5, items)
    relevance = 1 / (1 + np.exp(1.5 - quality - 0.8 * (brand == 1)))
    asked = rng.integers(0, len(QUERIES), requests)
    shown = np.argsort(rng.random((requests, 40)), axis=1)[:, :10] + 40 * asked[:, None]
    clicked = rng.random(shown.shape) < relevance[shown] / np.sqrt(np.arange(1, 11))
    item = shown.ravel()
    return pd.DataFrame(
        {
            "q": np.array(QUERIES)[item // 40],
            "sku": [f"sku-{number}" for number in item],
            "rank": np.tile(np.arange(1, 11), requests),
            "clicked": clicked.ravel(),
            "quality": quality[item],
            "brand": np.array(["acme", "bolt", "crow", "dune", "elk"])[brand[item]],
            "stock": np.where(item % 7 == 0, np.nan, item % 3),
        },
        index=pd.RangeIndex(1000, 1000 + len(item)),
    )


def shop_table(csv: Path, database: Path) -> None:
    """Write the clicks of a shop, with titles and carts, to a CSV file and to the table `clicks` of SQLite."""
    frame = shop_clicks(150)
    frame["title"] = "item " + frame["sku"]
    frame["cart"] = frame["clicked"] & (frame["brand"] == "bolt")
    frame.to_csv(csv, index=False)
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    frame.to_sql("clicks", engine, index=False, if_exists="replace")
    engine.dispose()
