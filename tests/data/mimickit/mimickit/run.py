"""Replaces the entry point of a MimicKit checkout."""
