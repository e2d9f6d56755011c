"""The real clock."""

import time


class MonotonicClock:
    """Seconds of the system's monotonic clock, which trainers' own marks share."""

    def now(self) -> float:
        """Seconds since an arbitrary point; never steps back."""
        return time.monotonic()
