"""A small real trainer in torch, which runs as its own process; the tuner imports only its adapter."""
