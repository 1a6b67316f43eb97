"""What biases a log has, whether relevance can be learned from it at all, and what to do about either."""
