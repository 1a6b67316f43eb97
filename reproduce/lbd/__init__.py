"""LBD (Chen et al., NeurIPS 2022): every table and figure, by `python -m reproduce.lbd`."""
