"""What nobody should write, drawn by Hypothesis, and what the tuner does with it."""
