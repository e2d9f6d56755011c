"""The nodes of a SLURM allocation as one machine: their devices, and a command that runs on all of them at once."""
