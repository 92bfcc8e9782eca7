"""The workflow on a real Slurm cluster of this machine, by what Slurm itself recorded: make test-slurm.

Pytest looks into this file only where it is named, for it starts and stops daemons as root.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CLUSTER = Path(__file__).with_name("cluster")
STATE = Path(os.environ.get("SLURM_TEST_STATE", "/tmp/inverse-depth-slurm"))
PROFILE = yaml.safe_load((ROOT / "slurm/config.yaml").read_text())
# The cluster has no accounting, so states are asked of the controller; and its jobs last seconds.
HERE = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "2"]
HERE += ["--max-status-checks-per-second", "1"]


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.1)
    return found


def slurm(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def records(run):
    """What Slurm recorded of each job of one run of Snakemake, by job number."""
    lines = slurm("scontrol", "show", "job", "--details", "--oneliner").splitlines()
    found = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if f"JobName={run}" in line]
    for job in found:
        job["rule"] = re.match("rule_([a-z]+)", job["Comment"]).group(1)
    return {job["JobId"]: job for job in found}


def megabytes(memory):
    """An amount as Slurm writes it: in M, or in G where that is whole."""
    return int(memory[:-1]) * {"M": 1, "G": 1024}[memory[-1]]


class Project:
    """A copy of the project, from which a study runs on the cluster."""

    started: ClassVar = []

    def __init__(self, root):
        self.root = root
        for name in ("Snakefile", "environment.yml", "workflow", "config", "slurm", "src"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, root / name)

    def start(self, *arguments):
        """Start ``snakemake --profile slurm`` with these arguments; its output goes to a file."""
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments, *HERE]
        with open(self.root / "output", "w") as output:
            environment = os.environ | {"PYTHONPATH": str(self.root / "src")}
            process = subprocess.Popen(command, cwd=self.root, env=environment, stdout=output, stderr=subprocess.STDOUT)
        self.started.append(process)
        return process

    def output(self):
        return (self.root / "output").read_text()

    def run_name(self):
        """The name that all jobs of the last run bear in Slurm."""
        return re.search(r"SLURM run ID: (\S+)", self.output()).group(1)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # a test that is ended from outside stops the cluster too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        started = subprocess.run([CLUSTER, "up"], capture_output=True, text=True)
        if started.returncode == 77:
            pytest.skip(started.stderr.strip())
        assert started.returncode == 0, started.stderr
        print(started.stdout)
        yield
    finally:
        for process in Project.started:
            if process.poll() is None:
                process.kill()
        subprocess.run([CLUSTER, "down"], check=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project whose whole study is a cut of the quick one."""
    project = Project(tmp_path_factory.mktemp("cut"))
    shutil.copy2(CLUSTER.with_name("study.yaml"), project.root / "config/paper.yaml")
    return project


@pytest.fixture(scope="module")
def jobs(project):
    """The records of a run of the whole workflow, by `snakemake --profile slurm all`."""
    begun = time.monotonic()
    status = project.start("all").wait()
    assert status == 0, project.output()
    found = records(project.run_name())
    print(f"\n{len(found)} Slurm jobs in {time.monotonic() - begun:.0f} s")
    columns = ("JobId", "JobState", "Partition", "NodeList", "TresPerJob", "MinMemoryNode", "TimeLimit", "Comment")
    for job in found.values():
        print(*(job.get(name, "-") for name in columns))
    return found


@pytest.fixture(scope="module")
def results(project, jobs):
    return project.root / "results/slurm"


def test_long_jobs_ran_in_slurm_and_the_rest_did_not(results, jobs):
    assert {job["JobState"] for job in jobs.values()} == {"COMPLETED"}
    folders = {"train": "runs", "evaluate": "evaluations", "control": "controls", "measurement": "measurements"}
    made = {rule: len(list((results / folder).rglob("*.nc"))) for rule, folder in folders.items()}
    assert made == {"train": 6, "evaluate": 2, "control": 1, "measurement": 1}
    assert Counter(job["rule"] for job in jobs.values()) == made | {"floor": 1}
    assert (results / "figures/fig6.pdf").is_file()


def test_jobs_request_what_the_profile_says(jobs):
    for job in jobs.values():
        asked = PROFILE["default-resources"] | PROFILE["set-resources"].get(job["rule"], {})
        hours, minutes, _ = job["TimeLimit"].split(":")
        assert job["Partition"] == asked["slurm_partition"]
        assert int(hours) * 60 + int(minutes) == eval(asked["runtime"], {"attempt": 1})
        assert megabytes(job["MinMemoryNode"]) == eval(asked["mem_mb"], {"attempt": 1})
        assert job.get("TresPerJob", "none").replace("/", ":") == ("gres:gpu:1" if asked["gpu"] else "none")
        assert job["Requeue"] == "1"


def test_jobs_see_exactly_the_gpu_that_slurm_gave(results, jobs):
    given = {number: (node, gpus) for number, node, gpus in map(str.split, (STATE / "gpus").read_text().splitlines())}
    assert len({given[number] for number, job in jobs.items() if job["rule"] == "train"}) == 4
    assert {job["rule"] for number, job in jobs.items() if given[number][1] == "none"} == {"floor"}
    first_lines = [log.read_text().partition("\n")[0] for log in (results / "logs").rglob("*.log")]
    seen = {line for line in first_lines if line.startswith("Slurm job")}
    assert seen == {"Slurm job {} on {}, GPUs: {}".format(number, *given[number]) for number in jobs}


def test_a_second_run_does_nothing(project, jobs):
    assert project.start("all").wait() == 0
    assert "Nothing to be done" in project.output()


def test_a_preempted_training_is_requeued_and_resumes(project):
    long = "{study: preempted, training: {softmax: {first_round: 2, max_steps: 5000, tolerance: 1.0e-12}}}"
    (project.root / "config/long.yaml").write_text(long)
    run = "softmax_difficult/L1_a0_b0_k2_s0-1"
    snakemake = project.start(f"results/preempted/runs/{run}.nc", "--configfile", "config/long.yaml")
    wait_for((project.root / f"results/preempted/checkpoints/{run}.pt").exists)
    slurm("sbatch", "--partition=urgent", "--nodes=2", "--gpus-per-node=2", "--output=/dev/null", "--wrap", "sleep 1")
    assert snakemake.wait() == 0, project.output()
    (job,) = records(project.run_name()).values()
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    assert "resuming from" in (project.root / f"results/preempted/logs/train/{run}.log").read_text()


def test_the_paper_is_in_the_queue_within_half_a_minute_and_leaves_it_on_interruption(tmp_path):
    project = Project(tmp_path)
    for partition in ("cpu", "gpu"):
        slurm("scontrol", "update", f"partitionname={partition}", "state=down")
    begun = time.monotonic()
    snakemake = project.start("all")
    queued = lambda: slurm("squeue", "--noheader", "--format=%i").split()  # noqa: E731
    wait_for(queued)
    first = time.monotonic() - begun
    wait_for(lambda: len(queued()) == PROFILE["jobs"])
    print(f"\nfirst job of the paper's study queued after {first:.1f} s, {PROFILE['jobs']} jobs after", end=" ")
    print(f"{time.monotonic() - begun:.1f} s")
    snakemake.send_signal(signal.SIGINT)
    assert snakemake.wait() != 0
    wait_for(lambda: not queued())
    assert first < 30
