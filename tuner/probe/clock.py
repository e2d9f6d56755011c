"""The real clock."""

import time


class MonotonicClock:
    """The system's monotonic clock. Trainers use the same clock for the times in their reports."""

    def now(self) -> float:
        """Return the seconds since an arbitrary point in time. The value never decreases."""
        return time.monotonic()
