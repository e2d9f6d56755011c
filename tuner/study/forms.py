"""The forms that text in a study file may have: as regular expressions, for its schema, and in words, for people."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
TRAINER = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,99}|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*)$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
DEVICES = r"^(auto|cpu(:[1-9]\d*)?|\d+(,\d+)*)$"

IN_WORDS = {
    NAME: "takes letters and digits, and - _ . after the first; 100 at most",
    TRAINER: "is the name of a trainer, or package.module:Class for a class of your own",
    VARIABLE: "takes letters, digits and _, and begins with no digit",
    DEVICES: "is none of: auto, cpu, cpu:RANKS, or CUDA indices such as 0,1",
}
"""What is said of text of another form."""
