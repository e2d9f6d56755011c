"""Reads and checks study files: their space, their cases and their limits."""
