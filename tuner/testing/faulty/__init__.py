"""A trainer with a fault to choose, `python -m tuner.testing.faulty FAULT`, and the expected result of each fault."""
