"""Counts inside a training process: optimizer steps, samples, waits, and the settings that the script has parsed.

It needs Python 3.8 and torch 2.0 or newer, and nothing but the standard library. It reads, and changes nothing that the
training computes. An error in it switches the part off in which it happened.
"""


def start():
    """Wait for the libraries that the training imports, and count from then on."""
    from tuner_inside import environments, files, flags, loaders, steps, training
    from tuner_inside.records import mark_started

    mark_started()
    for part in (flags, files, loaders, environments, training, steps):
        part.install()
