"""Real click logs: from raw events to click features, on DuckDB and on Spark."""
