"""An open load at rising rates: arrivals, what became of them, figures with intervals, a report, and comparisons."""
