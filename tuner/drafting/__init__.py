"""Makes a study file from a command: runs the command once, watches it, and writes what it understood."""
