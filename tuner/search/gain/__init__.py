"""A sampler that weighs what a config may gain against the seconds it takes."""
