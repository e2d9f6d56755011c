"""The command line: arguments to one library call to text and exit code.

While Python imports many files, Ctrl-C ends the program at once and without a traceback.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the program at once inside this context. Where it is ignored, as after `&`, it stays ignored."""
    handles_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if handles_ctrl_c:
            signal.signal(signal.SIGINT, signal.default_int_handler)
