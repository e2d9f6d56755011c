"""Counting inside a training: the records of its processes, merged over ranks, and which training they run."""

from tuner.count.launching import counting, has_started
from tuner.count.merging import Merger
from tuner.count.process_counts import Flag, ProcessCounts, as_parameter
from tuner.count.signature import DIVERGES, PARTS, Signature, TrainingCounts, differences
from tuner.count.witness import ENVIRONMENTS
