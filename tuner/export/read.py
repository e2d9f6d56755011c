"""Read a study's exports back."""

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd


def read_tables(folder: Path | str) -> "dict[str, pd.DataFrame]":
    """Return the tables in a run's folder: name without `.tsv` → table. Raises StoreError if the folder has none."""
    import pandas as pd  # noqa: PLC0415 - takes half a second, which most commands do not need

    tables = {path.stem: pd.read_csv(path, sep="\t") for path in sorted(Path(folder).glob("*.tsv"))}
    if not tables:
        raise StoreError(f"{folder} holds no tables; `tuner export` writes them into a study's folder under runs/")
    return tables
