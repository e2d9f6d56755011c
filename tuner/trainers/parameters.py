"""The parameters that study files share across trainers."""

STANDARD = ("num_envs", "agent_variant", "update_epochs", "batch_size", "num_workers", "prefetch_factor")
"""Every trainer accepts each of these or declines it with a reason."""

OWN = frozenset({"pruner_patience"})
"""Read by the tuner itself, whatever the trainer."""
