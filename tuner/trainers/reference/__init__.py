"""A small real trainer in torch, run as a process of its own; only its adapter is imported by the tuner."""
