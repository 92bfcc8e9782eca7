"""The log of one job: everything it prints, and at the end, if it failed, the failure in words."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn


@contextmanager
def job_log(path: str | Path, job: str) -> Iterator[None]:
    """Send what the block prints to a log file; if it fails, say so there and on the terminal, and exit with status 1.

    Output of libraries and subprocesses goes to the log as well. SIGTERM, with which a cluster ends a job, counts as a
    failure and leaves its words too. In a job of Slurm the first line tells its number, its node and its GPUs.

    Parameters
    ----------
    path : str or Path
        Made, or emptied.
    job : str
        What the job does, for the message.
    """
    terminal = os.dup(2)
    try:
        with open(path, "w", encoding="utf-8") as log:
            for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
                stream.flush()
                os.dup2(log.fileno(), descriptor)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        signal.signal(signal.SIGTERM, _stop)
        if "SLURM_JOB_ID" in os.environ:
            print(_slurm_job(os.environ))
        yield
    except BaseException as error:
        words = f"{job} failed: {error or type(error).__name__}"
        advice = "Finished work is kept: set right what is said above, then give the same command again."
        with suppress(OSError):  # the disk of the log may be the one that is full
            traceback.print_exc()
            print(f"\n{words}\n{advice}", file=sys.stderr, flush=True)
        os.write(terminal, f"{words}\n  log: {path}\n  {advice}\n".encode())
        sys.exit(1)


def _slurm_job(environment: Mapping[str, str]) -> str:
    """Which Slurm job this is, on which node, and the GPUs of the node that it may use, by their numbers there."""
    job, node = environment["SLURM_JOB_ID"], environment.get("SLURMD_NODENAME", "an unnamed node")
    return f"Slurm job {job} on {node}, GPUs: {environment.get('CUDA_VISIBLE_DEVICES') or 'none'}"


def _stop(number: int, _frame: Any) -> NoReturn:
    raise InterruptedError(f"stopped by {signal.Signals(number).name}")
