"""Opens a study's database to read it."""

from tuner.export.reader import StudyReader, connect
from tuner.store.leases import is_held


def open_reader(url: str, study: str) -> StudyReader:
    """Open a study to read it; a trial whose process is gone counts as interrupted. Raises StoreError."""
    return StudyReader(connect(url), study, is_held=is_held)
