"""Soaks: whether the memory and the speed of a study's best config last for a whole training."""
