"""Fakes and contract tests, for the tuner's own tests and for third-party trainers and devices."""
