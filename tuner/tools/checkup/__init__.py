"""`tuner doctor`: checks whether this machine is ready for a study or a command."""
