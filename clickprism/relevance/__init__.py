"""Relevance of query-document pairs: estimates, imputation, approximation, judgment lists, rankings."""
