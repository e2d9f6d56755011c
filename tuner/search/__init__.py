"""Which config comes next, which probe stops early, and what a result means to the study."""
