"""Click models fitted to logs: what each says of documents, of observation, and of clicks to come."""
