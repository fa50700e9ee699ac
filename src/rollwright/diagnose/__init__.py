"""What is wrong with a run, with evidence: one detector a pathology, and what treats it."""
