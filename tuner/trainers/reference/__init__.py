"""A small real trainer in torch, run as a process of its own."""
