"""Runs a study against a recorded table, in simulated time and without a GPU."""
