"""Which criterion, without labels, tracks what rankers reach: candidates on worlds drawn by seed."""
