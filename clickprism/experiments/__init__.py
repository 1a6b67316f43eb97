"""Whole experiments in one call: data, simulated users, methods, measures.

One settings object holds all settings; a TOML file has the same names. `train.train_ranker`, `compare.compare_methods`,
`feedback.feedback_loop` and `demo.run_demo` each take one settings object and return one result.
"""
