"""The command line: arguments to one library call to text and exit code."""
