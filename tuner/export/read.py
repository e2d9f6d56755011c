"""Read a study's exports back."""

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd


def read_tables(folder: Path | str) -> "dict[str, pd.DataFrame]":
    """Give every table of a run's folder by its name without `.tsv`.

    Raises StoreError when the folder holds none.
    """
    import pandas as pd  # noqa: PLC0415 - half a second that most commands do without

    tables = {path.stem: pd.read_csv(path, sep="\t") for path in sorted(Path(folder).glob("*.tsv"))}
    if not tables:
        raise StoreError(f"{folder} holds no tables; `tuner export` writes them into a study's folder under runs/")
    return tables
