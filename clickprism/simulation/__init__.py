"""Simulated clicks on judged lists, worlds with known biases, and complete raw logs, each with its truth."""
