"""The one training loop: clicks, a method and a ranker in, a model out."""
