"""Compare methods at equal budget: plan, runs side by side, statistics over seeds, one report."""
