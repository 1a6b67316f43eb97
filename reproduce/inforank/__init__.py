"""InfoRank (Jin et al., WWW 2024): every table and figure, by `python -m reproduce.inforank`."""
