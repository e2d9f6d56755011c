"""The watcher of a node as the tuner knows it: the requests to it, its messages, and the SLURM step in which it runs.

A watcher is a process of the tuner's own on a node: see `agent`. It runs the node's part of a plan. The tuner writes
requests, each as one line, to the standard input of `srun`; an empty line is a sign of life. The watcher answers with
JSON lines through the output of `srun`. So no port is opened for it, and no file is waited for.

The clocks of nodes differ. Each message has the time on its node's clock, and the fastest message shows by how much
that clock is behind ours; the error is the time that this message travelled.
"""

import base64
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import IO, Any, NamedTuple, Protocol, cast

from tuner import errors
from tuner.probe import Clock, ProbePlan, json_object, printable
from tuner.probe.output import USUAL_BOUNDS
from tuner.study import StudySpec

BEAT_S = 1.0
"""Seconds between two signs of life, in both directions."""
SILENT_S = 30.0
"""Seconds without a sign of life after which the other side counts as gone."""
ENDED_WITHIN_S = SILENT_S + BEAT_S + USUAL_BOUNDS.term_grace_s + USUAL_BOUNDS.kill_s
"""Seconds after the tuner's last sign of life, after which a watcher has surely ended its part."""
BEAT = b"\n"
"""A sign of life of the tuner."""
MOST_DRIFT = 1e-3
"""How fast two clocks move apart at most: `adjtimex(2)` corrects each by up to 500 parts in a million."""


class OpenDevices(NamedTuple):
    """The first request: open the devices that a study names."""

    spec: StudySpec
    number: int
    """The position of the node among those of the trial."""


class RunPart(NamedTuple):
    """The request to run the node's part of a plan."""

    plan: ProbePlan
    head: str
    """The host of the first node, where the ranks meet."""


class Command(Enum):
    """A request without content."""

    READ_CARDS = auto()
    """Say who uses the cards."""
    END_PART = auto()
    """End the part that runs."""


Request = OpenDevices | RunPart | Command


def packed(request: Request) -> bytes:
    """Return a request as one line."""
    return base64.b64encode(pickle.dumps(request)) + b"\n"


class NodeClock:
    """Estimates by how much the clock of a node is behind ours, from the times of its messages."""

    def __init__(self) -> None:
        self.behind_s = math.inf
        """The seconds to add to a time of the node's clock. They are too many by the time that a message travels."""
        self._heard_s = 0.0
        """When the last message came."""

    def update(self, sent_s: float, heard_s: float) -> None:
        """Improve the estimate by a message: sent at `sent_s` on the node's clock, it came at `heard_s` on ours.

        The difference of both times is the offset of the clocks and the time that the message travelled. So the least
        difference counts. It grows with its age, because the clocks may have moved apart since.
        """
        drift_s = MOST_DRIFT * (heard_s - self._heard_s)
        self.behind_s = min(self.behind_s + drift_s, heard_s - sent_s)
        self._heard_s = heard_s


def on_our_clock(text: str, behind_s: float) -> str:
    """Return a trainer's message with its times on our clock, which the node's clock is `behind_s` behind.

    A text without a time is returned as it is.
    """
    message = json_object(text)
    node_times = {name: message.get(name) for name in ("t_s", "at_s", "thin_from_s")}
    our_times = {name: at_s + behind_s for name, at_s in node_times.items() if isinstance(at_s, int | float)}
    return json.dumps(message | our_times) if our_times else text


class Connection(Protocol):
    """The connection with a watcher."""

    def send(self, data: bytes) -> None:
        """Send a line; nothing happens if nobody reads it."""

    def hang_up(self) -> None:
        """Let the watcher end everything on its node."""

    def kill(self, number: int) -> None:
        """Send a signal to what holds the connection."""

    def join(self, limit_s: float) -> None:
        """Wait until the watcher has ended, at most so long."""


Connect = Callable[[str, Callable[[str], None], Callable[[], None]], Connection]
"""Starts the watcher of a host. It calls the second argument with each line of the watcher, and the third at its end.

Raises DeviceError if it cannot be started.
"""


def srun(host: str) -> list[str]:
    """Return the command that starts a watcher on a node, beside all else that runs in the allocation."""
    options = ["--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", f"--nodelist={host}"]
    if cores := os.environ.get("SLURM_CPUS_PER_TASK"):  # a step does not inherit the number from its job; see srun(1)
        options.append(f"--cpus-per-task={cores}")
    return ["srun", *options, sys.executable, "-P", "-m", "tuner.nodes.agent"]


class Step:
    """A step of SLURM on one node, in which `srun` runs the node's watcher; a `Connection`."""

    def __init__(self, host: str, hear: Callable[[str], None], end: Callable[[], None]) -> None:
        """Start the step. `hear` gets each line of the watcher, and `end` is called after the last one."""
        try:
            self.process = subprocess.Popen(
                srun(host),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise errors.DeviceError(f"srun cannot be started: {error.strerror}") from error
        self._requests, self._answers = cast("tuple[IO[bytes], IO[bytes]]", (self.process.stdin, self.process.stdout))
        self._hear, self._end = hear, end
        self._reader = threading.Thread(target=self._read, name=host, daemon=True)
        self._reader.start()

    def send(self, data: bytes) -> None:
        """Send a line; nothing happens if nobody reads it."""
        with suppress(OSError, ValueError):
            self._requests.write(data)
            self._requests.flush()

    def hang_up(self) -> None:
        """Close the pipe of the requests."""
        with suppress(OSError):
            self._requests.close()

    def kill(self, number: int) -> None:
        """Send a signal to `srun`. TERM lets `srun` end a step that does not end by itself (srun(1))."""
        self.process.send_signal(number)

    def join(self, limit_s: float) -> None:
        """Wait until `srun` has ended, at most so long."""
        self._reader.join(max(0.0, limit_s))

    def _read(self) -> None:
        """Pass on each line of the watcher, and then its end."""
        with self._answers:
            for raw in self._answers:
                self._hear(raw.decode(errors="replace").rstrip("\n"))
        self.process.wait()
        self.hang_up()
        self._end()


class Message(NamedTuple):
    """A message of a watcher."""

    watcher: "Watcher"
    at_s: float
    """When it came, on our clock."""
    content: Mapping[str, Any]
    """Its fields. The `kind` is that of `agent.say`, `srun` for a line of `srun`, or `gone` for the watcher's end."""


def refusal(host: str, message: Mapping[str, Any]) -> errors.TunerError:
    """Return the error for a node's message that refuses a request. The message names the class of the error."""
    error_class = getattr(errors, message["error"], errors.TunerError)
    return error_class(f"{host}: {message['why']}")


class Watcher:
    """The watcher of one node, as this side knows it."""

    def __init__(self, host: str, number: int, inbox: "SimpleQueue[Message]", clock: Clock, connect: Connect) -> None:
        """Start the watcher of the node `number` on a host. Its messages go to the inbox, but not its signs of life.

        `clock` times them. `connect` starts the watcher's process, and returns the connection to it.
        """
        self.host, self.number = host, number
        self.clock = NodeClock()
        self.heard_s = clock.now()
        """When its last message came."""
        self.is_gone = False
        """Whether its connection has ended."""
        self.oom_kills = 0
        """The processes on its node that the kernel has killed for lack of memory since boot."""
        self.still_running: str | None = None
        """The processes of its last part that cannot be killed."""
        self.code: int | None = None
        """The exit code of its part; None while that runs."""
        self.recent: deque[str] = deque(maxlen=2000)
        """The last lines of the console of its part."""
        self._inbox, self._now = inbox, clock.now
        self.connection = connect(host, self._hear, self._end)

    def ask(self, request: Request) -> None:
        """Send a request. Before the request for a part, forget how the last part ended and what it printed."""
        if isinstance(request, RunPart):
            self.code = None
            self.recent.clear()
        self.connection.send(packed(request))

    def _hear(self, text: str) -> None:
        """Take a line of the watcher, or of `srun`, into account, and put it into the inbox as a message."""
        self.heard_s = self._now()
        message = json_object(text)
        is_from_watcher = {"kind", "at_s"} <= message.keys()
        if is_from_watcher:
            self.clock.update(message["at_s"], self.heard_s)
            self.oom_kills = message.get("oom_kills", self.oom_kills)
            self.still_running = message.get("still_running", self.still_running)
        else:
            message = {"kind": "srun", "text": printable(text)}
        if message["kind"] != "beat":
            self._inbox.put(Message(self, self.heard_s, message))

    def _end(self) -> None:
        """Note that the connection has ended, and put a message about it into the inbox."""
        self.is_gone = True
        self._inbox.put(Message(self, self._now(), {"kind": "gone"}))


def messages_until(inbox: "SimpleQueue[Message]", clock: Clock, limit_s: float) -> Iterator[Message]:
    """Yield the messages of an inbox as they come, until `limit_s` seconds have passed."""
    end_s = clock.now() + limit_s
    with suppress(Empty):
        while (left_s := end_s - clock.now()) > 0:
            yield inbox.get(timeout=left_s)


def end_watchers(watchers: Sequence[Watcher], clock: Clock) -> None:
    """End watchers and their parts of a plan, and wait until they have ended.

    First their pipes are closed. Those that still run after a while get TERM, and later KILL. A signal to one that
    has ended does nothing, and the wait for it takes no time.
    """
    for watcher in watchers:
        watcher.connection.hang_up()
    limit_s = USUAL_BOUNDS.term_grace_s + USUAL_BOUNDS.kill_s  # for all of them together
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        end_s = clock.now() + limit_s
        for watcher in watchers:
            watcher.connection.join(end_s - clock.now())
        if number:
            for watcher in watchers:
                watcher.connection.kill(number)
        limit_s = USUAL_BOUNDS.term_grace_s
