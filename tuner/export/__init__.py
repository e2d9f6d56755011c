"""Tables, report and dashboard, read from the study database."""
