"""Checks whether this machine is fit to measure on and has everything that a study needs."""
