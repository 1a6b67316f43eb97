"""From a trained ranker to answers: bundles, scorers, the online store, the HTTP service, exports."""
