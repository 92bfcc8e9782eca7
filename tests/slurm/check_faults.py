"""What Slurm and people do to jobs in mid-training: nothing finished is touched, and the result is the same bits.

Pytest looks into this file only where it is named, for it starts and stops daemons as root.
"""

import os
import signal
import subprocess
import sys

import pytest
from on_slurm import ROOT, STATE, Project, queued, records, show, slurm, wait_for

from inverse_depth.storage import read_dataset

sys.path.insert(0, str(ROOT / "tests"))
from checkout import same

STUDY = """
study: faults
training: {softmax: {max_steps: 2500, tolerance: 1.0e-12}}
experiments:
  softmax_difficult: {grid: [{depths: [1], spectra: [[0, 0]], target_sizes: [2], seeds: [[0], [1], [2], [3], [4]]}]}
measurements: {selection: null}
"""
LAYER = ("--configfile", "config/faults.yaml")
ALONE = ("--executor", "local", "--jobs", "2")  # where Snakemake runs, without Slurm

BRIEF = "results/faults/runs/linear_easy/L1_a2_b1_k1_s0.nc"
RUNS = [f"softmax_difficult/L1_a0_b0_k2_s{seed}" for seed in range(5)]
KILLED, CANCELLED, REQUEUED, LOST, PREEMPTED = RUNS


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("faults"))
    (project.root / "config/faults.yaml").write_text(STUDY)
    return project


@pytest.fixture(scope="module")
def calm(project):
    """The trainings without Slurm and without faults."""
    project.run(*(f"results/calm/runs/{run}.nc" for run in RUNS), *LAYER, "--config", "study=calm", *ALONE)
    return project.root / "results/calm"


@pytest.fixture(scope="module")
def results(project):
    """The folder of the study, in which one training is finished already."""
    project.run(BRIEF, *LAYER, *ALONE)
    return project.root / "results/faults"


def finished(results):
    """All result files, with their bytes and times."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in results.rglob("[!.]*.nc")}


def log(results, run):
    path = results / f"logs/train/{run}.log"
    return path.read_text() if path.exists() else ""


def under_way(results, run):
    """Whether a training has behind it some of its rounds, and before it most of its steps."""
    return "round ends at step 62," in log(results, run)


def jobs_of(run, jobs):
    return [job for job in jobs.values() if job["rule"] == "train" and job["Comment"].endswith(run.rpartition("/")[2])]


def test_a_killed_snakemake_leaves_its_jobs_running_and_takes_up_what_they_made(project, results, calm):
    before, target = finished(results), (BRIEF, f"results/faults/runs/{KILLED}.nc", *LAYER)
    snakemake = project.start(*target)
    wait_for(lambda: under_way(results, KILLED))
    snakemake.kill()
    snakemake.wait()
    (running,) = records(project.run_name()).values()
    wait_for(lambda: not queued())
    (ended,) = records(project.run_name()).values()
    assert (running["JobState"], ended["JobState"]) == ("RUNNING", "COMPLETED")
    after = finished(results)
    assert after.items() >= before.items()
    assert project.start("results/faults/cubes/softmax_difficult.nc", *LAYER).wait() != 0  # which reads what is locked
    assert "--unlock" in project.output()
    project.run("--unlock", *LAYER)
    project.run(*target)  # the job itself has noted its run as finished
    assert "Nothing to be done" in project.output()
    assert finished(results) == after
    assert same(*(read_dataset(folder / f"runs/{KILLED}.nc") for folder in (results, calm)))


def cancel(job):
    return ["scancel", job["JobId"]]


def requeue(job):
    return ["scontrol", "requeue", job["JobId"]]


def lose_node(job):
    """Its slurmd dies and the controller gives the node up; what ran there runs on, unseen by Slurm."""
    os.kill(int((STATE / f"slurmd.{job['NodeList']}.pid").read_text()), signal.SIGKILL)
    return ["scontrol", "update", f"nodename={job['NodeList']}", "state=down", "reason=lost"]


def preempt(job):
    urgent = ["--partition=urgent", f"--nodelist={job['NodeList']}", "--gpus-per-node=2", "--output=/dev/null"]
    return ["sbatch", *urgent, "--wrap", "sleep 1"]


@pytest.fixture(scope="module")
def jobs(project, results):
    """Slurm's records of a run of Snakemake in which four trainings each meet a fault; nothing finished is touched."""
    before, faults = finished(results), {CANCELLED: cancel, REQUEUED: requeue, LOST: lose_node, PREEMPTED: preempt}
    snakemake = project.start(BRIEF, *(f"results/faults/runs/{run}.nc" for run in RUNS), *LAYER)
    name, struck = wait_for(project.run_name), {}

    def running(run):
        return [job for job in jobs_of(run, records(name)) if job["JobState"] == "RUNNING"]

    def all_struck():
        for run in faults.keys() - struck.keys():
            for job in running(run) if under_way(results, run) else ():
                # one that another fault has just stopped cannot be requeued: it is tried again
                if subprocess.run(faults[run](job), capture_output=True).returncode == 0:
                    struck[run] = job
        return len(struck) == len(faults)

    def taken_over(job):
        return job["JobState"] in ("RUNNING", "COMPLETED") and int(job["Restarts"]) > int(struck[LOST]["Restarts"])

    wait_for(all_struck)
    # the lost node comes back when another has taken over its training, or even ended it
    wait_for(lambda: any(map(taken_over, jobs_of(LOST, records(name)))))
    slurm("/usr/sbin/slurmd", "-N", struck[LOST]["NodeList"])
    assert snakemake.wait() == 0, project.output()
    found = records(name)
    show(found, "Restarts", "NodeList")
    print("lost:", struck[LOST]["NodeList"])
    assert before and finished(results).items() >= before.items()
    return found


def test_a_cancelled_training_is_given_again(jobs):
    assert sorted(job["JobState"] for job in jobs_of(CANCELLED, jobs)) == ["CANCELLED", "COMPLETED"]


@pytest.mark.parametrize("run", [REQUEUED, LOST, PREEMPTED])
def test_slurm_runs_a_training_again_that_was_requeued_or_lost_its_node(jobs, run):
    # mostly the same job; one that Slurm cannot start anew while a node comes back fails, and Snakemake gives it again
    first, *again = sorted(jobs_of(run, jobs), key=lambda job: int(job["JobId"]))
    assert int(first["Restarts"]) >= 1
    assert [job["JobState"] for job in (first, *again)] == ["FAILED"] * len(again) + ["COMPLETED"]


@pytest.mark.parametrize("run", [CANCELLED, REQUEUED, LOST, PREEMPTED])
def test_each_goes_on_from_its_checkpoint_to_the_same_bits(jobs, results, calm, run):
    assert "resuming from" in log(results, run) and "round ends at step 2," not in log(results, run)
    assert same(*(read_dataset(folder / f"runs/{run}.nc") for folder in (results, calm)))
