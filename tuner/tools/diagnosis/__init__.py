"""Says what an Optuna study spent its time on, and what to change so that its GPUs have more to do."""
