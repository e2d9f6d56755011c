"""Read a study's exports back."""

from pathlib import Path

import pandas as pd

from tuner.errors import StoreError


def read_tables(folder: Path | str) -> dict[str, pd.DataFrame]:
    """Give every table of a run's folder by its name without `.tsv`.

    Raises StoreError when the folder holds none.
    """
    tables = {path.stem: pd.read_csv(path, sep="\t") for path in sorted(Path(folder).glob("*.tsv"))}
    if not tables:
        raise StoreError(f"{folder} holds no tables; `tuner export` writes them into a study's folder under runs/")
    return tables
