"""One bounded run of the trainer: plan, process, progress, window, failures, result; what other packages use of them.

The guard process runs `guard.py` as a script, which loads nothing of this.
"""

from tuner.probe.evidence import OUT_OF_MEMORY, REPORTED, Evidence, quoted
from tuner.probe.metrics import (
    ITERATIONS_PER_S,
    METRICS,
    OBJECTIVES,
    SAMPLES_PER_JOULE,
    SAMPLES_PER_S,
    check_metrics,
    edge_error,
    error,
    largest_value,
    measured,
    mfu_pct,
    target_error,
    value,
    without_rough_speed,
)
from tuner.probe.output import LineSplitter, folder_of, json_object, make_private, printable, reserved_out_dir
from tuner.probe.probe_plan import (
    AMD,
    HEAD,
    NODE_RANK,
    NVIDIA,
    SCORE_GROUP,
    THREADS,
    Answer,
    Clock,
    Device,
    DeviceSource,
    Launch,
    LinePatterns,
    MonotonicClock,
    Next,
    OutputLine,
    ProbePlan,
    Prober,
    Recorder,
    Slot,
    Stop,
    ending_after_last,
    search_path,
)
from tuner.probe.process import Process, Sessions, other_tuners, reserved_port
from tuner.probe.progress_reader import MOST, ProgressReader
from tuner.probe.quantities import (
    FULL_PCT,
    HOUR_S,
    MIB_PER_GIB,
    MINUTE_S,
    Block,
    Quantity,
    duration,
    error_of_mean,
    joint_error,
    known_well_enough,
    mib,
    number_of,
    of_known,
    standard_error,
    student_tail,
)
from tuner.probe.result import (
    BUSY_PCT,
    OUT_OF_TIME,
    STOPPED,
    Blame,
    Change,
    DeviceSample,
    DeviceSummary,
    Failure,
    FailureKind,
    ProbeNumbers,
    ProbeResult,
    Progress,
    other_training,
    unlaunched,
    unreadable,
)
from tuner.probe.series import SERIES_FILE, DeviceSeries, SamplingRecorder, read_series
from tuner.probe.summaries import LOADED, NO_RATE, RISE, WITHOUT_PAUSE
from tuner.probe.watch import IDLE_PCT
from tuner.probe.window import LEAST_SPAN_S
