"""Reads and checks study files: their space, their cases and their limits."""

from tuner.study.cases import FILES, Case, globs_of, is_meant, most_similar, search_order, select
from tuner.study.config_files import (
    as_yaml,
    changed_text,
    copy_name,
    named_files,
    round_trip,
    values_in,
    values_or_null_in,
    with_copies,
)
from tuner.study.expression import Expression, Rule
from tuner.study.keys import (
    is_alike,
    literal_keys,
    masked_trainer,
    variables_without_keys,
    with_references,
    without_keys,
)
from tuner.study.launches import launch_with_flags, launches, with_launches
from tuner.study.parameter import MOST_CASES, ParameterSpec, PositiveInt, Strict
from tuner.study.shell import literal_line, literal_word, quoted, shell_join, shell_split
from tuner.study.space import (
    LADDER,
    NODES,
    PATIENCE,
    VARIANT,
    Config,
    Parameter,
    Space,
    Value,
    allow_all,
    config_digest,
    described,
    doublings,
    grouped,
    ladder_of,
    launch_digest,
    launched,
    rung_of,
    same_launch,
    value_text,
)
from tuner.study.spec import (
    INVERSES,
    MOST_HOURS,
    NAME,
    RANKS,
    TRAINING_HOURS,
    Constraint,
    EnvironmentSpec,
    LaunchName,
    Name,
    ProbeSpec,
    PrunerSpec,
    SearchSpec,
    SlurmSpec,
    StudySpec,
    TrainerSpec,
    Variables,
    check_devices,
    compare_with_default,
)
from tuner.study.study_file import (
    DeviceKind,
    changed_study,
    complaints,
    find,
    is_fallback_of,
    key_warnings,
    load,
    names,
    narrowed,
    open_anew,
    open_at_once,
    open_regular,
    price_of_all,
    read_mapping,
    study_exists,
    unmatched,
)
from tuner.study.variables import escaped, expanded, joined, looked_up, parts
