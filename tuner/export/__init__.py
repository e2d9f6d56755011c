"""Tables, findings and dashboard, read from the study database."""

from tuner.export.case_view import NO_TRIALS, CaseView
from tuner.export.findings import (
    Topic,
    failed_configs,
    failed_lines,
    findings,
    findings_beside_table,
    result_finding,
)
from tuner.export.gain_in_words import Headline, gain_headline, gain_text, session_note
from tuner.export.reader import StudyReader, connect, engine_at, has_study, reading
from tuner.export.speed_gain import BestGain, doubts, gain, times_default, unknown_gain, unmeasured, whole_training
from tuner.export.summary import CaseSummary, ConfigRow, summary
from tuner.export.tables import (
    Row,
    export_study,
    front_rows,
    ladder_of_study,
    method_summary,
    prepare_folder,
    prepare_results,
    prepare_study,
    race_row,
    safe_rung,
    write_files,
)
from tuner.export.wording import (
    EXHAUSTED,
    SPEEDS,
    at_its_end,
    figure,
    in_use,
    in_words,
    merged_lines,
    no_best,
    printable,
    relative_to_cwd,
    remedy,
    score_text,
    trials,
    unit,
    with_error,
)
