"""The one way to run a probe (reserve, plan, run), and the prober on real devices.

In a session, one started trainer serves several probes; otherwise each probe starts a new trainer.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tuner import probe
from tuner.devices.cards import Cards, Occupancy, has_leaked, wait_until_idle
from tuner.errors import DeviceError
from tuner.nodes.source import Nodes
from tuner.probe.own_files import ProtectionMeans, clean_up, folders_of, warning, warning_of_saves
from tuner.probe.run import kernel_oom_kills, run
from tuner.running.job import Workbench
from tuner.trainers.registry import check_program

Outcome = TypeVar("Outcome")


def run_in(
    slot: probe.Slot, plan: Callable[[probe.Slot], probe.ProbePlan], run: Callable[[probe.ProbePlan], Outcome]
) -> Outcome:
    """Plan a probe in a slot and run it, and return what `run` returns.

    The probe gets a free port, and the folder `slot.out_dir`, or another beside it if that exists. Both are reserved
    until the probe has ended. Raises OutputError if the folder cannot be made, and the errors of `plan` and `run`.
    """
    with probe.reserved_out_dir(slot.out_dir) as out_dir, probe.reserved_port() as port:
        return run(plan(replace(slot, out_dir=out_dir, port=port)))


class RealProber:
    """Probes on the devices of a source; a `tuner.probe.probe_plan.Prober`.

    Memory that the cards hold when the prober is made does not count as busy later. `close` ends the open session.
    """

    def __init__(
        self,
        source: probe.DeviceSource,
        *,
        occupied: Callable[[], Sequence[Occupancy]],
        sessions: probe.Sessions,
        clock: probe.Clock,
        sleep: Callable[[float], None],
        say: Callable[[str], None] = lambda _: None,
        facts: Mapping[str, str] | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        """Probe on these devices, after reading how they are used before any probe.

        Args:
            source: the devices.
            occupied: returns how each card is used now, and by which processes; raises DeviceError where it cannot.
            sessions: starts trainers.
            clock: times the probes.
            sleep: waits some seconds of that clock.
            say: shows the user how files are kept, or which process cannot be killed.
            facts: facts about the machine, which are added to each result.
            nodes: the source, if it is several nodes; None for this machine.

        Raises:
            DeviceError: a card cannot be read.
        """
        self._say = say
        self._has_reported_still_running = self._has_warned_of_files = self._has_warned_of_saves = False
        """What the user knows: which processes cannot be killed, how files are kept, and which are not."""
        self._source = source
        self._recorder: probe.SamplingRecorder | None = None
        """The recorder of the last probe."""
        self._clock = clock
        self._sleep = sleep
        self._occupied = occupied
        self._occupancy_at_start = occupied()
        """How the cards were used when this prober was made: what they held then does not count as busy."""
        self._sessions = sessions
        self._facts = dict(facts or {})
        self._nodes = nodes
        self._occupancy_after_first_run: Sequence[Occupancy] | None = None
        """How the cards were used after the first run of the open session; None without a session."""

    @property
    def open_session(self) -> str | None:
        """The key of the open session; None where no session is open."""
        return self._sessions.open_key

    def __call__(self, plan: probe.ProbePlan, stop: probe.Stop) -> probe.ProbeResult:
        """Run the plan of one probe, and return its result; `stop` is asked again and again whether it goes on.

        Raises OutputError or TrainerError when the tuner's own side fails.
        """
        is_warm = plan.request is not None
        if not is_warm or plan.session_key != self.open_session:  # a new trainer, for which the cards must be free
            self.close()
            if busy := self._wait_until_idle(plan, stop):
                return probe.unlaunched(plan.config, busy, plan.digest)
        self._warn_of_files(plan)
        self._recorder = probe.SamplingRecorder(self._source, self._clock, plan.slot.limits.sample_seconds)
        result = run(
            plan,
            launch=self._sessions,
            recorder=self._recorder,
            clock=self._clock,
            stop=stop,
            oom_kills=self._nodes.oom_kills if self._nodes else kernel_oom_kills,
        )
        result = replace(result, warm=is_warm, ready_s=self._sessions.ready_s, host={**self._facts, **result.host})
        if result.failure or self._leaks():  # the next probe must not begin in this session
            self.close()
        self._tell_still_running()
        if plan.protects_files:
            self._warn_of_saves(plan, result)
            _remove_saved(plan.slot)
        return self._nodes.with_nodes(result) if self._nodes else result

    def _warn_of_files(self, plan: probe.ProbePlan) -> None:
        """Say once how the person's files are kept, if no private view of them can be had."""
        if plan.protects_files and not self._has_warned_of_files:
            self._has_warned_of_files = True
            means = ProtectionMeans(has_views=False) if self._nodes else None  # None: the usual way
            folders = folders_of(plan.argv, plan.cwd, plan.slot.out_dir)
            if text := warning(folders, plan.slot.out_dir, means):
                self._say(text)

    def _warn_of_saves(self, plan: probe.ProbePlan, result: probe.ProbeResult) -> None:
        """Say once that a probe has saved where the person's files are not protected."""
        saves_to = result.training.saves_to if result.training else ()
        if saves_to and not self._has_warned_of_saves:
            folders = folders_of(plan.argv, plan.cwd, plan.slot.out_dir)
            if text := warning_of_saves(saves_to, folders, plan.slot.out_dir):
                self._has_warned_of_saves = True
                self._say(text)

    def utilisation(self) -> Sequence[float | None]:
        """Return how busy each device was since the last call, in percent and in rank order; empty before any probe."""
        return self._recorder.take_utilisation() if self._recorder else ()

    def close(self) -> None:
        """End the open session, if there is one, and wait for it."""
        self._sessions.close()
        self._occupancy_after_first_run = None
        self._tell_still_running()

    def _tell_still_running(self) -> None:
        """Say once which processes of the last probe still run, because they cannot be killed."""
        process = self._sessions.still_running
        if process and not self._has_reported_still_running:
            self._say(f"{process} outlives its probe and cannot be killed; no other probe starts before it has ended")
        self._has_reported_still_running = process is not None

    def _wait_until_idle(self, plan: probe.ProbePlan, stop: probe.Stop) -> probe.Failure | None:
        """Return why the devices are not free for a probe; None once they are."""
        return wait_until_idle(
            self._occupied,
            self._occupancy_at_start,
            limit_s=plan.slot.limits.idle_seconds,
            clock=self._clock,
            sleep=self._sleep,
            interrupted=lambda: stop(None).next is probe.Next.INTERRUPTED,
            still_running=lambda: self._sessions.still_running,
        )

    def _leaks(self) -> bool:
        """Return whether the open session holds more memory than after its first probe; True if that is unknown."""
        try:
            occupancy = self._occupied() if self.open_session else []
        except DeviceError:
            return True
        if self._occupancy_after_first_run is None:  # this is called after each probe, for the first time now
            self._occupancy_after_first_run = occupancy
        return has_leaked(occupancy, self._occupancy_after_first_run)


def _remove_saved(slot: probe.Slot) -> None:
    """Remove the large files that a trainer has left in its probe's folder: checkpoints of all trials fill a disk.

    The tuner's own files stay.
    """
    most_bytes = 1 << 20  # chosen: a table or a log is smaller
    own_names = {slot.console.name, slot.progress.name, slot.counts.name, probe.SERIES_FILE}
    with suppress(OSError):  # a process that outlives its probe may take files away
        for path in slot.out_dir.rglob("*"):
            is_of_trainer = own_names.isdisjoint(path.relative_to(slot.out_dir).parts)
            if is_of_trainer and path.is_file() and path.lstat().st_size > most_bytes:
                path.unlink()


def open_prober(bench: Workbench, say: Callable[[str], None] = lambda _: None) -> RealProber:
    """Return a prober on the devices of a bench.

    Raises TrainerError if the program that its trainer starts does not exist: another one of that name may be on the
    PATH. Raises DeviceError when a card cannot be read.
    """
    check_program(bench.trainer)
    return prober_on(bench.source, say, facts=bench.facts)


def prober_on(
    source: probe.DeviceSource,
    say: Callable[[str], None] = lambda _: None,
    *,
    facts: Mapping[str, str] | None = None,
    clock: probe.Clock | None = None,
) -> RealProber:
    """Return a prober on the devices of a source. First restore the person's files for tuners that were killed.

    Args:
        source: the devices, of this machine or of several nodes.
        say: shows the user how files are kept, or which process cannot be killed.
        facts: facts about the machine, which are added to each result.
        clock: times the probes; None for the clock of the system.

    Raises:
        DeviceError: a card cannot be read.
    """
    clean_up()
    clock = clock or probe.MonotonicClock()
    make_prober = partial(RealProber, source, clock=clock, sleep=time.sleep, say=say, facts=facts)
    if isinstance(source, Nodes):
        return make_prober(occupied=source.occupancy, sessions=probe.Sessions(clock, source.start), nodes=source)
    return make_prober(occupied=Cards(source.devices).occupancy, sessions=probe.Sessions(clock))
