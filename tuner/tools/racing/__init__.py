"""`tuner race`: trains a few configs for the same time, and says which of them learns most."""
