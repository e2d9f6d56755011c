"""Runs a study: the loop over its cases, the probes of each case, and what they tell those who watch."""
