"""The Slurm cluster of the tests in this folder, which pytest looks into only where one of them is named."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from on_slurm import CLUSTER, Project


@pytest.fixture(scope="session", autouse=True)
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
                os.killpg(process.pid, signal.SIGKILL)
        subprocess.run([CLUSTER, "down"], check=True)
        # without cgroups Slurm loses sight of a process whose parent has died
        for folder in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if folder.readlink() in Project.roots:
                    os.kill(int(folder.parent.name), signal.SIGKILL)
