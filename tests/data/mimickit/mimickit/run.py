"""Stands in for the entry point of a MimicKit checkout."""
