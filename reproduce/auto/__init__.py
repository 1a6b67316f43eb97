"""`clickprism auto` over worlds drawn by seed, against the best candidate in hindsight and against raw clicks."""
