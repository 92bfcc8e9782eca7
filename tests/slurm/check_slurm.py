"""The workflow on a real Slurm cluster of this machine, by what Slurm itself recorded: make test-slurm.

Pytest looks into this file only where it is named, for it starts and stops daemons as root.
"""

import signal
import time
from collections import Counter

import pytest
import yaml
from on_slurm import ROOT, STATE, Project, queued, records, show, slurm, wait_for

PROFILE = yaml.safe_load((ROOT / "slurm/config.yaml").read_text())


def megabytes(memory):
    """An amount as Slurm writes it: in M, or in G where that is whole."""
    return int(memory[:-1]) * {"M": 1, "G": 1024}[memory[-1]]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("cut"))


@pytest.fixture(scope="module")
def jobs(project):
    """The records of a run of the whole workflow, by `snakemake --profile slurm all`."""
    begun = time.monotonic()
    project.run("all")
    found = records(project.run_name())
    print(f"\n{len(found)} Slurm jobs in {time.monotonic() - begun:.0f} s")
    show(found, "Partition", "NodeList", "TresPerJob", "MinMemoryNode", "TimeLimit")
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
    assert len({given[number] for number, job in jobs.items() if job["rule"] == "train"}) > 1
    assert {job["rule"] for number, job in jobs.items() if given[number][1] == "none"} == {"floor"}
    first_lines = [log.read_text().partition("\n")[0] for log in (results / "logs").rglob("*.log")]
    seen = {line for line in first_lines if line.startswith("Slurm job")}
    assert seen == {"Slurm job {} on {}, GPUs: {}".format(number, *given[number]) for number in jobs}


def test_a_second_run_does_nothing(project, jobs):
    project.run("all")
    assert "Nothing to be done" in project.output()


def test_the_paper_is_in_the_queue_within_half_a_minute_and_leaves_it_on_interruption(tmp_path):
    project = Project(tmp_path, cut=False)
    for partition in ("cpu", "gpu"):
        slurm("scontrol", "update", f"partitionname={partition}", "state=down")
    begun = time.monotonic()
    snakemake = project.start("all")
    wait_for(queued)
    first = time.monotonic() - begun
    wait_for(lambda: len(queued()) == PROFILE["jobs"])
    print(f"\nfirst job of the paper's study queued after {first:.1f} s, {PROFILE['jobs']} jobs after", end=" ")
    print(f"{time.monotonic() - begun:.1f} s")
    snakemake.send_signal(signal.SIGINT)
    assert snakemake.wait() != 0
    wait_for(lambda: not queued())
    for partition in ("cpu", "gpu"):
        slurm("scontrol", "update", f"partitionname={partition}", "state=up")
    assert first < 30
