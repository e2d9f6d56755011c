"""The report of a study: one page for somebody who did not run the study."""
