"""A clock that tests move by hand."""


class FakeClock:
    """Stands at `now_s` until it is advanced."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now(self) -> float:
        """Seconds since an arbitrary point."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Raises ValueError for a negative number: a monotonic clock never steps back."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot advance by {seconds} s")
        self._now_s += seconds
