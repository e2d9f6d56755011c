"""Unit conversions, so that no other file contains a bare 1024 or 60."""

BYTES_PER_MIB = 1 << 20
MIB_PER_GIB = 1024
MINUTE_S = 60
HOUR_S = 3600.0


def mib(size_bytes: float) -> float:
    """Return a size in MiB."""
    return size_bytes / BYTES_PER_MIB


def number_of(count: float | str, noun: str) -> str:
    """Return a number and its noun, as in `1 trial` or `3 trials`."""
    return f"{count} {noun}{'' if count in {1, '1'} else 's'}"


def duration(seconds: float) -> str:
    """Return a duration as text for a person: `8.2 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
