"""A job's log holds all that it printed, and ends with its failure in words."""

import signal
import subprocess
import sys
import time

PRELUDE = "import os, sys, time; from inverse_depth.joblog import job_log\n"


def start(tmp_path, body):
    code = f"{PRELUDE}with job_log({str(tmp_path / 'job.log')!r}, 'train x'):\n    {body}\n"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_everything_printed_goes_to_the_log(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    job = start(tmp_path, "print('one'); print('two', file=sys.stderr); os.system('echo three')")
    assert job.communicate() == ("", "")
    assert job.returncode == 0
    assert set((tmp_path / "job.log").read_text().split()) == {"one", "two", "three"}


def test_a_job_of_slurm_says_where_it_runs(tmp_path, monkeypatch):
    for name, value in {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "CUDA_VISIBLE_DEVICES": "0,3"}.items():
        monkeypatch.setenv(name, value)
    assert start(tmp_path, "pass").wait() == 0
    assert (tmp_path / "job.log").read_text() == "Slurm job 12 on n1, GPUs: 0,3\n"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert start(tmp_path, "pass").wait() == 0
    assert (tmp_path / "job.log").read_text() == "Slurm job 12 on n1, GPUs: none\n"


def test_a_failure_is_told_in_words_in_the_log_and_on_the_terminal(tmp_path):
    job = start(tmp_path, "raise ValueError('depth is 0: it must be at least 1')")
    output, errors = job.communicate()
    log = (tmp_path / "job.log").read_text()
    assert job.returncode == 1
    assert "Traceback" in log
    assert "Traceback" not in output + errors
    for text in (log, errors):
        assert "train x failed: depth is 0: it must be at least 1" in text
    assert log.rstrip().endswith("then give the same command again.")
    assert str(tmp_path / "job.log") in errors


def test_a_job_that_is_stopped_says_so(tmp_path):
    job = start(tmp_path, "print('begun'); time.sleep(60)")
    log = tmp_path / "job.log"
    for _ in range(200):
        if log.exists() and "begun" in log.read_text():
            break
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert "train x failed: stopped by SIGTERM" in job.communicate(timeout=30)[1]
    assert "stopped by SIGTERM" in log.read_text()


def test_a_log_on_a_full_disk_still_tells_the_terminal(tmp_path):
    (tmp_path / "job.log").symlink_to("/dev/full")
    job = start(tmp_path, "print('begun')")
    assert "train x failed: [Errno 28] No space left on device" in job.communicate()[1]
    assert job.returncode != 0


def test_a_log_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "job.log").mkdir()
    job = start(tmp_path, "print('begun')")
    errors = job.communicate()[1]
    assert "train x failed: [Errno 21] Is a directory" in errors
    assert job.returncode == 1
