"""Add raw files to a log: read, deduplicate, commit, and account for every row."""

from clickprism.log.ingest.account import Account
from clickprism.log.ingest.run import ingest

__all__ = ["Account", "ingest"]
