"""What every paper that is run again shares: runs as files, processes, clocks, rows, expected figures, the page."""
