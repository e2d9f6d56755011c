"""Small real torch programs that `tuner scale` measures. Each runs in its own process; tuner imports the adapter."""

MICRO_BATCHES = 8
"""The parts into which `pipeline` cuts a batch, so that its stages work at the same time."""
