"""Changes to the attributes of a study database."""

import json
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import strategies as st
from optuna.storages._rdb import models
from sqlalchemy import Connection, Table, delete, insert, select, update

from tests.support.tests_fuzz.values import SCALAR, WORD
from tuner.records import schema

JSON = st.recursive(
    SCALAR | st.sampled_from(["ok", "gpu_oom", "crash"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
DOCUMENT = (
    JSON.map(json.dumps) | st.text(max_size=20) | st.sampled_from(["NaN", "[" * 5000, '"\\ud800"', "", "9" * 5000])
).map(lambda text: text.encode(errors="replace").decode())
PART = st.sampled_from(
    (
        *("config", "status", "metrics", "devices", "failure", "host", "total_s", "digest", "samples", "warm"),
        *("out_dir", "notes", "case", "method", "mode", "objective", "space", "trainer", "pruner", "objectives"),
        *("constraints", "files", "pid", "start", "boot", "seen_at"),
    )
)
ATTRIBUTE = st.sampled_from(
    [value for name, value in vars(schema).items() if name.isupper() and isinstance(value, str) and value.isprintable()]
)
TABLE = st.sampled_from(
    (
        *(models.TrialUserAttributeModel.__table__, models.TrialSystemAttributeModel.__table__),
        *(models.StudyUserAttributeModel.__table__, models.StudySystemAttributeModel.__table__),
    )
)
"""The tables of attributes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A change to one attribute of a study database."""

    table: Table
    row: int
    """The attribute's place in its table; for a new attribute, the trial or the study that gets it."""
    document: str | None
    """The new content; None removes the attribute."""
    part: str | None = None
    """The only part of a JSON object that `document` replaces; None replaces the whole."""
    key: str | None = None
    """The name of a new attribute; None changes one that is there."""

    def apply(self, connection: Connection) -> None:
        """Make the change. Where there is no such row or part, nothing changes."""
        (identity,) = self.table.primary_key
        value, here = self.table.c.value_json, identity == self.row
        if self.document is None:
            connection.execute(delete(self.table).where(here))
        elif self.key is not None:
            owner = self.table.c["trial_id" if "trial_id" in self.table.c else "study_id"]
            same = (owner == self.row, self.table.c.key == self.key)
            connection.execute(delete(self.table).where(*same))
            new = {owner.name: self.row, "key": self.key, "value_json": self.document}
            connection.execute(insert(self.table).values(new))
        elif self.part is None:
            connection.execute(update(self.table).where(here).values(value_json=self.document))
        else:
            for (text,) in connection.execute(select(value).where(here)).all():
                with suppress(ValueError, TypeError, RecursionError):
                    whole = json.dumps(json.loads(text) | {self.part: json.loads(self.document)})
                    connection.execute(update(self.table).where(here).values(value_json=whole))


EDITS = st.lists(
    st.builds(Edit, table=TABLE, row=st.integers(1, 14), document=DOCUMENT, part=st.none() | PART)
    | st.builds(Edit, table=TABLE, row=st.integers(1, 5), document=DOCUMENT | st.none(), key=ATTRIBUTE),
    min_size=1,
    max_size=4,
)
