"""Engines that run queries over a log: DuckDB in this process, or Spark."""
