"""How often `clickprism diagnose` is right: worlds drawn by seed, whose settings it cannot see."""
