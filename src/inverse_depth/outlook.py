"""What a run of Snakemake will do, why and how long it should take; then a line for the study after every job.

The one module of the package that knows Snakemake. It listens to its log, in the process that plans and starts jobs, so
that it says the same in a dry run, on one machine and on a cluster; it keeps nothing on disk.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inverse_depth.artifacts import ARTIFACTS
from inverse_depth.config import Study
from inverse_depth.times import Times, duration

_CODE = re.compile(r"\W*[0-9a-f]{16}(\W+[0-9a-f]{16})*\W*")


@dataclass(frozen=True)
class Job:
    """A job that is to run.

    Attributes
    ----------
    rule : str
    experiment : str
        Empty if it belongs to none.
    reason : str
        In words.
    timed : bool
        Whether jobs of its rule leave a benchmark; the others take seconds.
    seconds : float or None
        What it should take, where that is known.
    """

    rule: str
    experiment: str
    reason: str
    timed: bool
    seconds: float | None


class Outlook(logging.Handler):
    """Adds its lines to Snakemake's log: the plan beside Snakemake's own, the study's progress after every job.

    Parameters
    ----------
    workflow : snakemake.workflow.Workflow
    study : Study
    points : mapping of str to int
        The files of trained models to how many points (L, a, b, k, seed) of the cubes they serve.
    """

    def __init__(self, workflow: Any, study: Study, points: Mapping[str, int]):
        super().__init__(logging.INFO)
        self.workflow, self.study, self.points = workflow, study, points
        self.waiting: dict[int, Any] = {}
        self.ended: set[str] = set()

    def brief(self, record: logging.LogRecord) -> bool:
        """Tell, as a filter of the log, whether a record is to be shown: a target that only gathers files is not.

        Snakemake would list every one of these files, as its input and again as its reason.
        """
        return getattr(record, "event", None) != "job_info" or bool(getattr(record, "output", True))

    def emit(self, record: logging.LogRecord) -> None:
        """Add the lines that follow a record, if any do."""
        try:
            match getattr(record, "event", None):
                case "run_info":
                    dag = self.workflow.dag
                    self.waiting = {dag.jobid(job): job for job in dag.needrun_jobs()}
                    if self.waiting:  # a dry run counts its jobs once more at its end, where none is left
                        cubes = any(Path("results", self.study.study, "cubes").glob("*.nc"))
                        self._say(
                            record, plan(self.study.study, self._jobs(), self._at_once(), *self._trained(), cubes)
                        )
                case "job_finished":
                    job = self.waiting.pop(getattr(record, "job_id", -1), None)
                    self.ended |= {job.rule.name} if job else set()
                case "progress" if self.waiting:
                    line = progress(self.study.study, self._jobs(), self._at_once(), *self._trained())
                    self._say(record, line, quietness=_quietness("PROGRESS"))
                case "progress" if words := closing(self.study.study, self.ended, self._layers()):
                    self._say(record, words)
        except Exception:  # as any handler: what cannot be said must not stop the run
            self.handleError(record)

    def _say(self, record: logging.LogRecord, words: str, **extra: Any) -> None:
        logging.getLogger(record.name).info(words, extra=extra)

    def _jobs(self) -> list[Job]:
        """List what is to run, in the order of the rules."""
        times, jobs = Times(Path("results"), self.study), []
        order = {rule.name: place for place, rule in enumerate(self.workflow.rules)}
        for job in sorted(self.waiting.values(), key=lambda job: (order[job.rule.name], *map(str, job.output))):
            if job.output:  # else it is a target that only gathers files
                seconds = times.expected(Path(job.benchmark)) if job.benchmark else None
                reason = words_for(self.workflow.dag.reason(job))
                experiment = job.wildcards_dict.get("experiment", "")
                jobs.append(Job(job.rule.name, experiment, reason, bool(job.benchmark), seconds))
        return jobs

    def _layers(self) -> list[str]:
        """Name the files of config/ that the run was started with, as ``STUDY=`` of the Makefile takes them."""
        return [Path(file).stem for file in self.workflow.configfiles if Path(file).stem != "paper"]

    def _trained(self) -> tuple[int, int]:
        """Count the points that are trained and not to be trained again, and all of them."""
        again = {str(file) for job in self.waiting.values() for file in job.output}
        done = sum(count for file, count in self.points.items() if file not in again and Path(file).exists())
        return done, sum(self.points.values())

    def _at_once(self) -> int:
        limits = self.workflow.global_resources
        found = [limits[name].value for name in ("_nodes", "_cores") if name in limits]
        return max((int(value) for value in found if isinstance(value, int) and value < 10**6), default=1)


def plan(study: str, jobs: Sequence[Job], at_once: int, done: int, total: int, cubes: bool = False) -> str:
    """Say what will run, a line for each stage, why, and how long it should take; ``cubes``: whether any is there."""
    here = "" if done or not cubes else " here; its cubes came without their models"
    lines = [f"The study {study}: {done} of {total} points are trained{here}. To run:"]
    stages: dict[str, list[Job]] = {}
    for job in jobs:
        stages.setdefault("figures and tables" if job.rule in ARTIFACTS else job.rule, []).append(job)
    for stage, members in stages.items():
        where = _counted(job.experiment for job in members if job.experiment)
        place = f" ({where})" if stage == "train" else ""
        why = _counted(job.reason for job in members)
        lines.append(f"  {len(members):4d} {stage}{place}: {why}; {_time(members)}")
    return "\n".join([*lines, f"In all {left(jobs, at_once)}."])


def progress(study: str, jobs: Sequence[Job], at_once: int, done: int, total: int) -> str:
    """Say how far the study is, in one line."""
    return f"The study {study}: {done} of {total} points trained; left: {left(jobs, at_once)}"


def closing(study: str, ended: Collection[str], layers: Sequence[str]) -> str:
    """Say, once all has run, where a reader finds what was asked for; nothing if that was a single file by its name."""
    places, named = f"results/{study}", " ".join(layers)
    option = "" if not layers else f" STUDY={named}" if len(layers) == 1 else f' STUDY="{named}"'
    if {"all", "figures"} & set(ended):
        return (
            f"Figures are in {places}/figures/, tables in {places}/tables/.\n"
            f"One page that shows them all: make report{option}"
        )
    if "archive" in ended:
        path = f"{places}/inverse-depth-{study}.zip"
        return f"The archive is {path}; to check it: make verify ARCHIVE={path}"
    return f"The page is {places}/report.html." if "report" in ended else ""


def left(jobs: Sequence[Job], at_once: int) -> str:
    """Say how long jobs should take together, so many at a time; those of which it is not known are counted."""
    known = [job.seconds for job in jobs if job.seconds is not None]
    unknown = sum(job.timed and job.seconds is None for job in jobs)
    words = []
    if known:
        together = max(sum(known) / at_once, max(known))
        words.append(f"about {duration(together)} with {at_once} at a time")
    if unknown:
        words.append(f"{unknown} job{'s' if unknown > 1 else ''} whose time is not known yet")
    return " and ".join(words) or "seconds"


def words_for(reason: Any) -> str:
    """Say why Snakemake runs a job."""
    if reason.forced or reason.incomplete_output:  # with rerun-incomplete it forces what was cut short
        return "cut short last time, or asked for again"
    if reason.missing_output:
        return "not made yet"
    if reason.params_changed:
        changed = reason.params_changed.only_old | reason.params_changed.only_new
        return "code changed" if all(_CODE.fullmatch(str(one)) for one in changed) else "settings changed"
    if reason.input_changed:
        return "to be made from other files than before"
    if reason.updated_input - reason.updated_input_run:
        return "older than what it is made from"
    return "what it is made from will change" if reason.updated_input_run else "Snakemake says why with the job"


def _time(jobs: Iterable[Job]) -> str:
    timed = [job.seconds for job in jobs if job.timed]
    if not timed:
        return "seconds each"
    known = [seconds for seconds in timed if seconds is not None]
    if not known:
        return "time not known yet"
    rest = f" and {len(timed) - len(known)} whose time is not known yet" if len(known) < len(timed) else ""
    return f"about {duration(sum(known))} of work{rest}"


def _counted(words: Iterable[str]) -> str:
    counts = Counter(words)
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{count} {word}" for word, count in counts.items())


def _quietness(name: str) -> Any:
    from snakemake.settings.enums import Quietness

    return Quietness[name]
