"""Click features over a day, a week and a month: windows, daily sums, snapshots and their schedule."""
