"""How long jobs took, by Snakemake's benchmarks, and how long those still to run should therefore take."""

from __future__ import annotations

import math
from pathlib import Path

from inverse_depth.config import ConfigError, Study, load_study
from inverse_depth.provenance import config_hash


class Times:
    """What jobs should take, from what like jobs took before.

    Trainings are alike if all settings but depth, spectrum, target size and seeds are the same, evaluations if they
    also meet the same number of contexts, in whichever study. Between the depths that were timed (for an evaluation,
    the sum of its models' depths) the time is interpolated, beyond them it is that of the deepest in proportion, below
    them that of the shallowest. Any other job takes as long as it took before, or as those of its stage in its study.

    Parameters
    ----------
    results : Path
        Holds a folder for each study, with its ``config.yaml`` and ``benchmarks``.
    study : Study
        The one whose jobs are to run.
    """

    def __init__(self, results: Path, study: Study):
        self.study, self.own = study, results / study.study / "benchmarks"
        self.known: dict[str, dict[float, list[float]]] = {}
        for benchmarks in sorted(results.glob("*/benchmarks")):
            try:
                timed = load_study(benchmarks.with_name("config.yaml"))  # as it was when its jobs ran
            except ConfigError:
                if benchmarks != self.own:
                    continue
                timed = study
            for path in benchmarks.rglob("*.tsv"):
                key, seconds = _like(timed, path.relative_to(benchmarks)), read_seconds(path)
                if key and seconds is not None:
                    self.known.setdefault(key[0], {}).setdefault(key[1], []).append(seconds)

    def expected(self, benchmark: Path) -> float | None:
        """Return the seconds that the job of a benchmark should take, or None if none like it was timed."""
        job = benchmark.relative_to(self.own)
        key = _like(self.study, job)
        if key is None or key[0] not in self.known:
            return None
        if job.parts[0] not in _SIZED and (seconds := read_seconds(benchmark)) is not None:
            return seconds
        known = {size: math.fsum(seconds) / len(seconds) for size, seconds in self.known[key[0]].items()}
        size = max(key[1], min(known))
        low = max(one for one in known if one <= size)
        high = min((one for one in known if one > size), default=None)
        if high is None:
            return known[low] * size / low
        return known[low] + (known[high] - known[low]) * (size - low) / (high - low)


_SIZED = ("train", "evaluate")
"""Stages whose jobs differ in size."""

_LONGEST = 366 * 86_400.0
"""No job takes more than a year: what says so is no record."""


def _like(study: Study, job: Path) -> tuple[str, float] | None:
    """Return a key that like jobs share, and the size in which their time grows; None for a job the study has not.

    The job is given by its benchmark, <stage>/.../<name>.tsv.
    """
    if len(job.parts) < 2:
        return None
    stage, experiment, name = job.parts[0], job.parts[-2], job.stem
    if stage not in _SIZED:
        return f"{stage} of {study.study}", 1.0
    if experiment not in study.experiments:
        return None
    if stage == "train":
        if (run := study.runs(experiment).get(name)) is None:
            return None
        settings, size = study.training_settings(run), run.depth
    else:
        if name not in study.evaluations(experiment):
            return None
        settings = study.evaluation_settings(experiment, name)
        models = {run.id: run for runs in study.evaluations(experiment)[name].values() for run in runs}
        size = sum(run.depth * len(run.seeds) for run in models.values())
    decisive = {key: value for key, value in settings.items() if key not in ("depth", "a", "b", "k", "seeds", "points")}
    return f"{stage} {config_hash(decisive)}", float(size)


def read_seconds(benchmark: Path) -> float | None:
    """Read the wall time of a job from its benchmark; None if it is not readable or no time that a job can take."""
    try:
        heading, *rows = benchmark.read_text(encoding="utf-8").splitlines()
        seconds = float(dict(zip(heading.split("\t"), rows[-1].split("\t"), strict=True))["s"])
    except (OSError, ValueError, LookupError):
        return None
    return seconds if 0 <= seconds <= _LONGEST else None


def job_times(benchmarks: Path) -> dict[str, tuple[int, float]]:
    """Add up Snakemake's benchmarks: stage to its number of jobs and their wall time in seconds."""
    times = {}
    for folder in sorted(path for path in benchmarks.glob("*") if path.is_dir()):
        seconds = [one for file in folder.rglob("*.tsv") if (one := read_seconds(file)) is not None]
        if seconds:
            times[folder.name] = len(seconds), math.fsum(seconds)
    return times


def duration(seconds: float) -> str:
    """Write a time as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.1f} h"
