"""Bundles: rankers as folders that can be copied, checked and served, and deployments of them."""
