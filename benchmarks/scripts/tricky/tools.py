"""What the tricky scripts share: work that takes time, and the side file that says what was really trained."""

import time

from truth_file import step

__all__ = ["burn", "step", "wait"]


def wait(ms: float) -> None:
    """Wait, as for data."""
    time.sleep(ms / 1000)


def burn(ms: float) -> None:
    """Use a processor for so many milliseconds."""
    end_s = time.process_time() + ms / 1000
    while time.process_time() < end_s:
        pass
