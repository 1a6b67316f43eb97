"""Which biases a log contains, whether relevance can be learned from it, and what to do: one finding per question."""
