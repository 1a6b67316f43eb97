"""clickprism: a click is relevance times observation; clickprism splits the two."""

__version__ = "0.1.0"
