"""One bounded run of the trainer: plan, process, progress, window, failures, result."""
