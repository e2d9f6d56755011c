"""Whether this machine is fit to measure on, and everything there that a study needs."""
