"""What comes in: judged lists from files, from recipes of public data sets, or generated."""
