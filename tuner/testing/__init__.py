"""The contract of trainers as a check, for those that come with the tuner and for those of others."""
