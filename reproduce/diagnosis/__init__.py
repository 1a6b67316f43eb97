"""How often `clickprism diagnose` is right, measured on simulated worlds whose settings it does not see."""
