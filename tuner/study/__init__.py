"""The study file, its space and its cases."""
