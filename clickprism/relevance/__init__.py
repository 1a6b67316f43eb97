"""How clicks become an estimate of relevance: of the click that a document would get in the first slot."""
