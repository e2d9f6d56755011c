"""Small real torch programs that `tuner scale` measures. Each runs in its own process; tuner imports the adapter."""
