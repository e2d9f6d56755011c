"""Checks for third-party trainers: whether one keeps the contract of `tuner.trainers.base.Trainer`."""
