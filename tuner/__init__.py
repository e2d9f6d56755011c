"""Finds, for each training case on this machine, the configuration that keeps its GPUs busiest."""

__version__ = "0.1.0"
