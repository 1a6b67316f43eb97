"""Simulated worlds: complete raw click logs, and logs of engines and users drawn by seed, with their truth."""
