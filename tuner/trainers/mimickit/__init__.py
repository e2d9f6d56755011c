"""MimicKit: motion imitation with simulated characters, one case per file under its `args/`."""
