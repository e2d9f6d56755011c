"""Optuna's tables, as far as they are read here. Columns have no types, so that a damaged value cannot stop a query."""

from sqlalchemy import ColumnElement, String, cast, column, func, table

STUDIES = table("studies", column("study_id"), column("study_name", String))
DIRECTIONS = table("study_directions", column("study_id"))
FACTS = table("study_user_attributes", column("study_id"), column("key"), column("value_json"))
TRIALS = table(
    "trials",
    column("trial_id"),
    column("number"),
    column("study_id"),
    column("state", String),
    column("datetime_start"),
    column("datetime_complete"),
)
PARAMETERS = table(
    "trial_params",
    column("trial_id"),
    column("param_id"),
    *map(column, ("param_name", "param_value", "distribution_json")),
)
VALUES = table("trial_values", column("trial_id"), column("objective"), column("value"))
STEPS = table("trial_intermediate_values", column("trial_id"), column("step"), column("intermediate_value"))
ATTRIBUTES = table("trial_user_attributes", column("trial_id"), column("key"), column("value_json"))
CONSTRAINTS = table("trial_system_attributes", column("trial_id"), column("key"), column("value_json"))
SYSTEM_FACTS = table("study_system_attributes", column("study_id"), column("key"), column("value_json"))
STATE = cast(TRIALS.c.state, String)
"""Of a trial; the column has an enum type of its own on PostgreSQL."""


def of_study(study: str) -> ColumnElement[bool]:
    """Return the condition that a row of `STUDIES` is a case of the study."""
    prefix = f"{study}/"
    return func.substr(STUDIES.c.study_name, 1, len(prefix)) == prefix
