"""The study database: ask, tell, resume, recover."""
