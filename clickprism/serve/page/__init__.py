"""The page of the service."""
