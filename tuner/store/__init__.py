"""The study database: asks for a trial, tells its result, resumes, and takes back the trials of dead processes."""
