"""Several workers on one machine: each probes on its own devices, and all share the database of a study."""
