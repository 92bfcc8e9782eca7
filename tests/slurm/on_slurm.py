"""Snakemake on the Slurm cluster that tests/slurm/cluster starts, and what Slurm itself recorded of its jobs."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).parents[2]
CLUSTER = Path(__file__).with_name("cluster")
STATE = Path(os.environ.get("SLURM_TEST_STATE", "/tmp/inverse-depth-slurm"))
# The cluster has no accounting, so states are asked of the controller; and its jobs last seconds.
HERE = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "2"]
HERE += ["--max-status-checks-per-second", "1"]


def wait_for(condition, seconds=900):
    """Return what a condition gives as soon as that is true; the limit is for a test that hangs, not for a slow one."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.1)
    return found


def slurm(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def queued():
    """The numbers of the jobs that wait or run."""
    return slurm("squeue", "--noheader", "--format=%i").split()


def records(run):
    """What Slurm recorded of each job of one run of Snakemake, by job number."""
    lines = slurm("scontrol", "show", "job", "--details", "--oneliner").splitlines()
    found = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if f"JobName={run}" in line]
    for job in found:
        job["rule"] = re.match("rule_([a-z]+)", job["Comment"]).group(1)
    return {job["JobId"]: job for job in found}


def show(jobs, *columns):
    for job in jobs.values():
        print(*(job.get(name, "-") for name in ("JobId", "JobState", *columns, "Comment")))


class Project:
    """A copy of the project whose study is a cut of the quick one, or else the paper's, to be run on the cluster."""

    started: ClassVar = []
    roots: ClassVar = []

    def __init__(self, root, *, cut=True):
        self.root = root
        self.roots.append(root)
        for name in ("Snakefile", "environment.yml", "workflow", "config", "slurm", "src"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, root / name)
        if cut:
            shutil.copy2(CLUSTER.with_name("study.yaml"), root / "config/paper.yaml")

    def start(self, *arguments):
        """Start ``snakemake --profile slurm`` in a process group of its own; its output goes to a file."""
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments, *HERE]
        with open(self.root / "output", "w") as output:
            environment = os.environ | {"PYTHONPATH": str(self.root / "src")}
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, *arguments):
        """Run ``snakemake --profile slurm`` with these arguments to its end, which must be a good one."""
        assert self.start(*arguments).wait() == 0, self.output()

    def output(self):
        return (self.root / "output").read_text()

    def run_name(self):
        """The name that all jobs of the last run bear in Slurm; None as long as it has none."""
        found = re.search(r"SLURM run ID: (\S+)", self.output())
        return found and found.group(1)
