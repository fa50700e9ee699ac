"""Measures of samples: several tries, votes, choices, perturbations, exchange rates, difficulty."""
