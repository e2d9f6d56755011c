"""A study run against a recorded table, in simulated time and without a GPU."""
