"""Online stores of features by query and document."""
