"""What clusters and people do to a running study: nothing finished is lost, nothing wrong accepted, and it says so."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import Checkout, same

from inverse_depth.storage import read_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import kills

CUBE = "results/toy/cubes/softmax_difficult.nc"
RUNS = "results/toy/runs/softmax_difficult"
RUN = f"{RUNS}/L2_a0_b0_k2_s1.nc"
EVALUATION = "results/toy/evaluations/softmax_difficult/a0_b0_k2.nc"

NEEDS_MOUNTS = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="mounting a small or read-only disk needs root",
)


def small(root):
    checkout = Checkout(root)
    (root / "config/toy.yaml").write_text(kills.STUDY)
    return checkout


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    checkout = small(tmp_path_factory.mktemp("finished"))
    done = checkout.snakemake(CUBE)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


@pytest.fixture
def checkout(finished, tmp_path):
    """A copy of a finished study, with what Snakemake remembers of it."""
    copy = small(tmp_path / "project with spaces, 'quotes' & $(touch owned)")
    for name in ("results", ".snakemake"):
        shutil.copytree(finished.root / name, copy.root / name)
    return copy


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "project with spaces, 'quotes' & $(touch owned)").mkdir()


def lose(checkout, *files):
    """Take files away, with all that is made of them: Snakemake makes only what a wanted file still needs."""
    for file in (*files, EVALUATION, CUBE):
        (checkout.root / file).unlink(missing_ok=True)


def output(done):
    return done.stdout + done.stderr


def plan(checkout, **arguments):
    """The jobs that a run would start, with cubes as the target."""
    return checkout.plan(target=CUBE, **arguments)


def test_random_kills_of_a_training_end_with_the_same_bits(tmp_path):
    count = kills.kill_trainings(6, random.Random(), tmp_path / "kills")
    assert count["SIGKILL"] + count["SIGTERM"] >= 6
    assert all(count[name] == 0 for name in ("damaged", "behind", "not identical"))


def test_a_killed_workflow_goes_on_where_it_was(tmp_path, finished):
    checkout = small(tmp_path)
    process = checkout.start(CUBE)
    for _ in range(3000):
        if list((tmp_path / RUNS).glob("L*.nc")):
            break
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.read_bytes() for path in (tmp_path / RUNS).glob("L*.nc")}
    assert 1 <= len(kept) < 5
    locked = checkout.snakemake(CUBE)
    assert locked.returncode == 1 and "--unlock" in output(locked)
    assert checkout.snakemake("--unlock").returncode == 0
    done = checkout.snakemake(CUBE)
    assert done.returncode == 0, output(done)
    for path in finished.root.glob(f"{RUNS}/*.nc"):
        assert same(read_dataset(path), read_dataset(tmp_path / RUNS / path.name))
    assert same(read_dataset(finished.root / CUBE), read_dataset(tmp_path / CUBE))


def test_a_second_snakemake_on_the_same_files_is_refused(tmp_path):
    checkout = small(tmp_path)
    process = checkout.start(CUBE)
    try:
        for _ in range(3000):
            if list((tmp_path / ".snakemake/locks").glob("*")):
                break
            time.sleep(0.1)
        second = checkout.snakemake(CUBE)
        assert second.returncode == 1
        assert "cannot be locked" in output(second) and "Traceback" not in output(second)
    finally:
        assert process.wait(timeout=300) == 0
    assert plan(checkout) == {}


@pytest.mark.parametrize(
    ("file", "job", "again"),
    [
        (RUN, "evaluate softmax_difficult a0_b0_k2", {"train": 1, "evaluate": 1, "cube": 1}),
        (EVALUATION, "cube softmax_difficult", {"evaluate": 1, "cube": 1}),
    ],
)
@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: c[:999] + bytes([c[999] ^ 1]) + c[1000:]])
def test_a_damaged_file_is_named_and_only_its_own_point_is_made_again(checkout, file, job, again, damage):
    path, before = checkout.root / file, (checkout.root / file).read_bytes()
    lose(checkout)
    path.write_bytes(damage(before))
    failed = checkout.snakemake(CUBE)
    assert failed.returncode == 1
    assert f"{job} failed: {file}: damaged" in output(failed) and "delete it and run again" in output(failed)
    path.unlink()
    jobs = plan(checkout)
    assert jobs == again
    done = checkout.snakemake(CUBE)
    assert done.returncode == 0, output(done)
    assert plan(checkout) == {}
    assert not (checkout.root / "owned").exists() and not Path("owned").exists()


def test_a_run_of_other_settings_is_not_evaluated(checkout):
    """As where a cluster's jobs read a configuration that was edited after they had been planned."""
    other = "{training: {toy: {learning_rate: 0.02}}}"
    assert plan(checkout, override=other) == {"train": 4, "evaluate": 1, "cube": 1}
    done = checkout.snakemake(CUBE, "--rerun-triggers", "input", "--forcerun", "evaluate", override=other)
    assert done.returncode == 1
    words = "trained with other settings: training.learning_rate is 0.01, must be 0.02; delete it and run again"
    assert words in output(done)


def test_a_changed_recipe_evaluates_again_where_snakemake_knows_nothing_of_the_runs(checkout):
    """As where run files were copied in: they are not trained again by themselves, but neither are they accepted."""
    files = [str(path.relative_to(checkout.root)) for path in (checkout.root / RUNS).glob("*.nc")]
    assert checkout.snakemake("--cleanup-metadata", *files).returncode == 0
    assert plan(checkout) == {}
    other = "{training: {toy: {learning_rate: 0.02}}}"
    assert plan(checkout, override=other) == {"evaluate": 1, "cube": 1}
    failed = checkout.snakemake(CUBE, override=other)
    assert failed.returncode == 1
    assert "trained with other settings: training.learning_rate is 0.01, must be 0.02" in output(failed)


def test_a_configuration_edited_while_jobs_run_trains_again_what_it_changes(tmp_path):
    checkout = small(tmp_path)
    process = checkout.start(CUBE)
    for _ in range(3000):
        if list((tmp_path / "results/toy/logs").rglob("L*.log")):
            break
        time.sleep(0.1)
    edited = kills.STUDY.replace("learning_rate: 0.01", "learning_rate: 0.02")
    (tmp_path / "config/toy.yaml").write_text(edited)
    assert process.wait(timeout=300) == 0
    assert '"learning_rate": 0.01' in read_dataset(tmp_path / RUN).attrs["config"]
    assert plan(checkout) == {"train": 4, "evaluate": 1, "cube": 1}
    (tmp_path / "config/toy.yaml").write_text(kills.STUDY)
    assert plan(checkout) == {}


def test_clocks_that_disagree_train_nothing_again(checkout):
    day = 86_400
    for file, shift in ((RUN, -day), (RUN, day), (EVALUATION, -day), (CUBE, -day)):
        path = checkout.root / file
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + shift * 10**9))
        assert "train" not in plan(checkout)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert plan(checkout) == {}
    lose(checkout)
    os.utime(checkout.root / RUN, (time.time() + day,) * 2)
    failed = checkout.snakemake(CUBE)
    assert failed.returncode == 1 and "clock skew" in output(failed)
    os.utime(checkout.root / RUN)
    assert checkout.snakemake(CUBE).returncode == 0
    assert plan(checkout) == {}


@NEEDS_MOUNTS
@pytest.mark.parametrize("kind", ["runs/softmax_difficult", "checkpoints", "evaluations", "cubes"])
def test_a_full_disk_is_named_and_nothing_finished_is_lost(checkout, kind):
    folder = checkout.root / "results/toy" / kind
    finished = {path: path.read_bytes() for path in (checkout.root / RUNS).glob("*.nc")}
    trains = kind in ("checkpoints", "runs/softmax_difficult")
    lose(checkout, *([RUN] if trains else []))
    if trains:
        finished.pop(checkout.root / RUN)
    folder.mkdir(exist_ok=True)
    keep = checkout.root / "keep"
    shutil.copytree(folder, keep)
    # only processes inside see the small disk, so one of them lists what stays on it
    inside = (
        'folder=$0 keep=$1; shift; mount -t tmpfs -o size=256k none "$folder" && cp -rp "$keep/." "$folder" && '
        'dd if=/dev/zero of="$folder/filler" bs=4k 2>/dev/null; '
        '"$@"; status=$?; find "$folder" -name ".*.tmp*" >"$keep/left"; exit $status'
    )
    prefix = ["unshare", "--mount", "sh", "-c", inside, folder, keep]
    failed = checkout.snakemake(CUBE, prefix=prefix)
    assert failed.returncode == 1
    assert "No space left on device" in output(failed) or "the disk is full" in output(failed), output(failed)
    assert (keep / "left").read_text() == ""
    assert {path: path.read_bytes() for path in (checkout.root / RUNS).glob("*.nc")}.items() >= finished.items()
    done = checkout.snakemake(CUBE)
    assert done.returncode == 0, output(done)
    assert plan(checkout) == {}


@NEEDS_MOUNTS
def test_a_read_only_results_folder_is_named(checkout):
    lose(checkout, RUN)
    finished = {path: path.read_bytes() for path in (checkout.root / "results").rglob("*.nc")}
    bind = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", bind, checkout.root / "results"]
    failed = checkout.snakemake(CUBE, prefix=prefix)
    assert failed.returncode == 1
    assert "Read-only file system" in output(failed) and "results/toy" in output(failed)
    assert {path: path.read_bytes() for path in (checkout.root / "results").rglob("*.nc")} == finished
    assert checkout.snakemake(CUBE).returncode == 0


def test_odd_names_reach_no_shell(checkout):
    for name in ("$(touch owned)", "a b", "a;b", "../up", "-n", "a'b", "a\nb"):
        done = checkout.snakemake("--dry-run", override=f"study: {json.dumps(name)}")
        assert done.returncode == 1 and "study: found" in output(done), output(done)
    odd = checkout.root / "config/odd; touch owned $(touch owned) '.yaml"
    odd.write_text(kills.STUDY)
    lose(checkout)
    command = checkout.command(CUBE, layers=(str(odd.relative_to(checkout.root)),))
    done = subprocess.run(command, cwd=checkout.root, env=checkout.environment, capture_output=True, text=True)
    assert done.returncode == 0, output(done)
    assert (checkout.root / CUBE).exists()
    assert not list(checkout.root.rglob("owned"))


def test_a_key_given_twice_is_refused(checkout):
    done = checkout.snakemake("--dry-run", override="device: cpu\ndevice: cuda\n")
    assert done.returncode == 1
    assert "config/override.yaml: cannot be read as YAML: the key 'device' stands twice" in output(done)
    assert "line 2" in output(done) and "Traceback" not in output(done)
