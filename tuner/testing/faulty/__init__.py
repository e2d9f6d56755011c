"""A trainer with faults to order: `python -m tuner.testing.faulty FAULT`, and what each fault must come to."""
