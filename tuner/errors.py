"""The errors a user can cause; the command line turns each into one message and exit code 2.

TunerError
├── StudyError      the study file or what it selects: an unknown key, an empty ladder, no matching case
├── TrainerError    the trainer's files or options: no `args/` under its root, an unreadable agent file
│   └── ConfigRefusedError  one config that this case cannot take; other configs may still be probed
├── DeviceError     the devices asked for: a card that is not there, a driver that does not answer
│   └── DeviceLostError     a device that will not answer again before a reset
├── StoreError      the database: out of reach, of another schema, or holding a study that differs
│   └── EmptyStoreError     a database in which the study has not been begun
└── OutputError     what the tuner writes: a full disk, a folder without permission

A failed probe is none of these: it is a value, `tuner.probe.result.Failure`.
"""


class TunerError(Exception):
    """Says what happened, with which value, and what to do about it."""


class StudyError(TunerError):
    """The study file, or what it selects, cannot be used."""


class TrainerError(TunerError):
    """The trainer's files or options cannot be used."""


class ConfigRefusedError(TrainerError):
    """One config cannot be applied to this case; a study records it and goes on."""


class DeviceError(TunerError):
    """The devices asked for cannot be used."""


class DeviceLostError(DeviceError):
    """A device is gone until somebody resets it; any other DeviceError of a reading may pass."""


class StoreError(TunerError):
    """The study database cannot be used."""


class EmptyStoreError(StoreError):
    """The database is there and holds nothing of the study yet; whoever can do without may go on."""


class OutputError(TunerError):
    """A file of the tuner's own cannot be written."""
