"""Other frameworks' dumps in, ours out: nothing is dropped in silence, nothing is made up."""
