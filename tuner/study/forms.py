"""The forms of text in a study file: as regular expressions for the schema, and in words for error messages."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
TRAINER = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,99}|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*)$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
DEVICES = r"^(auto|cpu(:[1-9]\d*)?|\d+(,\d+)*)$"

IN_WORDS = {
    NAME: "must be at most 100 letters, digits and - _ . and begin with a letter or digit",
    TRAINER: "must be the name of a trainer, or package.module:Class for a class of your own",
    VARIABLE: "may contain letters, digits and _, and must not begin with a digit",
    DEVICES: "is none of: auto, cpu, cpu:RANKS, or CUDA indices such as 0,1",
}
"""The error message for text that does not match the regular expression."""
