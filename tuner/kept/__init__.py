"""What the study database keeps of a trial and of a case: the names, the typed records, one encoder and one decoder."""
