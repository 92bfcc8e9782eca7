"""What a run says before it starts and while it lasts: what, why and how long, from times that were recorded."""

import logging
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from checkout import ROOT, TOY

from inverse_depth.config import load_study
from inverse_depth.outlook import Job, Outlook, closing, left, plan, words_for
from inverse_depth.times import Times, job_times, read_seconds

NEVER = SimpleNamespace(
    forced=False, missing_output=set(), incomplete_output=set(), params_changed=None, input_changed=False,
    updated_input=set(), updated_input_run=set(),
)  # fmt: skip


def study(*layers):
    """Return the toy study under more layers of configuration."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.yaml" for number in range(1 + len(layers))]
        for path, text in zip(paths, (TOY, *layers), strict=True):
            path.write_text(text)
        return load_study(ROOT / "config/paper.yaml", *paths)


def record(results, study, job, seconds):
    """Leave a benchmark, as Snakemake does, and the study's configuration beside it."""
    path = results / study.study / "benchmarks" / f"{job}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"s\th:m:s\tcpu_time\n{seconds}\t0:00:12\t1.5\n")
    (results / study.study / "config.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
    return path


def expected(results, study, job):
    return Times(results, study).expected(results / study.study / "benchmarks" / f"{job}.tsv")


def test_a_training_takes_what_the_same_one_took_at_its_depth_or_between_depths(tmp_path):
    toy = study()
    assert expected(tmp_path, toy, "train/softmax_difficult/L1_a0_b0_k2_s0-1") is None
    record(tmp_path, toy, "train/linear_easy/L1_a2_b1_k1_s0", 1000.0)  # another model
    assert expected(tmp_path, toy, "train/softmax_difficult/L1_a0_b0_k2_s0-1") is None
    record(tmp_path, toy, "train/softmax_difficult/L1_a0_b0_k2_s0-1", 10.0)
    assert expected(tmp_path, toy, "train/softmax_difficult/L1_a0_b0_k2_s0-1") == 10
    assert expected(tmp_path, toy, "train/softmax_difficult/L2_a0_b0_k2_s0-1") == 20  # in proportion, beyond
    grid = "[{depths: [1, 2, 3, 9], spectra: [[0, 0]], target_sizes: [2], seeds: [[0, 1]]}]"
    deeper = study(f"experiments: {{softmax_difficult: {{grid: {grid}}}}}")
    record(tmp_path, deeper, "train/softmax_difficult/L9_a0_b0_k2_s0-1", 50.0)
    assert expected(tmp_path, deeper, "train/softmax_difficult/L3_a0_b0_k2_s0-1") == pytest.approx(20)  # between


def test_times_of_another_study_count_where_its_settings_are_the_same(tmp_path):
    record(tmp_path, study("study: earlier"), "train/softmax_easy/L1_a0_b0_k1_s0", 12.0)
    record(tmp_path, study("study: earlier"), "evaluate/softmax_easy/a0_b0_k1", 3.0)
    record(tmp_path, study("study: earlier"), "cubes/softmax_easy", 1.0)
    (tmp_path / "broken/benchmarks").mkdir(parents=True)
    assert expected(tmp_path, study(), "train/softmax_easy/L1_a0_b0_k1_s0") == 12
    assert expected(tmp_path, study(), "evaluate/softmax_easy/a0_b0_k1") == 3
    assert expected(tmp_path, study(), "cubes/softmax_easy") is None
    assert expected(tmp_path, study("training: {toy: {batch_size: 9}}"), "train/softmax_easy/L1_a0_b0_k1_s0") is None
    assert expected(tmp_path, study("training: {toy: {batch_size: 9}}"), "evaluate/softmax_easy/a0_b0_k1") == 3


def test_another_job_takes_what_it_took_before_or_what_its_stage_takes(tmp_path):
    record(tmp_path, study(), "fits/softmax_easy", 2.0)
    record(tmp_path, study(), "fits/linear_easy", 4.0)
    assert expected(tmp_path, study(), "fits/softmax_easy") == 2
    assert expected(tmp_path, study(), "fits/single_stream") == 3
    assert expected(tmp_path, study(), "theory/polynomials") is None


@pytest.mark.parametrize("text", ["", "s\n", "s\tx\n1\n", "h:m:s\n0:00:12\n", "s\nfast\n"])
def test_a_benchmark_that_is_not_whole_tells_nothing(tmp_path, text):
    (tmp_path / "b.tsv").write_text(text)
    assert read_seconds(tmp_path / "b.tsv") is None


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "-5", "1e308", "-", "NA", "12 s"])
def test_a_benchmark_that_holds_no_time_is_no_record(tmp_path, seconds):
    for job in ("train/softmax_easy/L1_a0_b0_k1_s0", "fits/softmax_easy"):
        record(tmp_path, study(), job, seconds)
        assert expected(tmp_path, study(), job) is None
    assert job_times(tmp_path / study().study / "benchmarks") == {}


@pytest.mark.parametrize(
    ("jobs", "at_once", "words"),
    [
        ([90.0, 20.0], 2, "about 90 s with 2 at a time"),  # no shorter than the longest
        ([60.0] * 40, 4, "about 10 min with 4 at a time"),
        ([60.0, None], 1, "about 60 s with 1 at a time and 1 job whose time is not known yet"),
        ([None, None], 3, "2 jobs whose time is not known yet"),
        ([], 3, "seconds"),
    ],
)
def test_time_in_words(jobs, at_once, words):
    assert left([Job("train", "x", "", True, seconds) for seconds in jobs], at_once) == words


def test_the_plan_names_stages_with_reasons_and_times():
    jobs = [
        Job("train", "softmax_easy", "not made yet", True, 30.0),
        Job("train", "softmax_easy", "settings changed", True, None),
        Job("fig1", "", "not made yet", False, None),
        Job("table1", "", "not made yet", False, None),
    ]
    assert plan("toy", jobs, 2, 3, 14).splitlines() == [
        "The study toy: 3 of 14 points are trained. To run:",
        "     2 train (softmax_easy): 1 not made yet, 1 settings changed; about 30 s of work and 1 whose time is not "
        "known yet",
        "     2 figures and tables: not made yet; seconds each",
        "In all about 30 s with 2 at a time and 1 job whose time is not known yet.",
    ]


@pytest.mark.parametrize(
    ("done", "cubes", "words"),
    [
        (0, True, "0 of 14 points are trained here; its cubes came without their models. To run:"),
        (0, False, "0 of 14 points are trained. To run:"),
        (3, True, "3 of 14 points are trained. To run:"),
    ],
)
def test_the_plan_says_when_cubes_came_without_their_models(done, cubes, words):
    assert plan("toy", [], 2, done, 14, cubes).splitlines()[0] == f"The study toy: {words}"


@pytest.mark.parametrize(
    ("ended", "layers", "words"),
    [
        ({"fig1", "all"}, ["quick"], ["results/toy/figures/", "results/toy/tables/", "make report STUDY=quick"]),
        ({"figures"}, ["quick", "mine"], ['make report STUDY="quick mine"']),
        ({"all"}, [], ["make report"]),
        ({"report"}, ["quick"], ["results/toy/report.html"]),
        ({"archive"}, ["quick"], ["make verify ARCHIVE=results/toy/inverse-depth-toy.zip"]),
    ],
)
def test_a_run_ends_with_where_its_results_are(ended, layers, words):
    said = closing("toy", ended, layers)
    assert len(said.splitlines()) <= 2 and all(one in said for one in words)
    assert ("STUDY" in said) == (bool(layers) and "make report" in said)
    assert closing("toy", {"fig1"}, layers) == ""


def test_the_files_that_a_target_gathers_are_not_listed():
    outlook = Outlook(workflow=None, study=study(), points={})
    shown = [
        outlook.brief(logging.makeLogRecord(record))
        for record in (
            {"event": "job_info", "output": []},
            {"event": "job_info", "output": ["figures/fig1.png"]},
            {"event": "job_error", "output": []},
            {"msg": "anything else"},
        )
    ]
    assert shown == [False, True, True, True]


def changed(*values):
    return SimpleNamespace(only_old=set(values[:1]), only_new=set(values[1:]))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ({"forced": True}, "cut short last time, or asked for again"),
        ({"missing_output": {"x"}, "updated_input_run": {"y"}}, "not made yet"),
        ({"incomplete_output": {"x"}, "missing_output": {"x"}}, "cut short last time, or asked for again"),
        ({"params_changed": changed("'0123456789abcdef'", "'fedcba9876543210'")}, "code changed"),
        ({"params_changed": changed("['0123456789abcdef', '0123456789abcdef']")}, "code changed"),
        ({"params_changed": changed("{'batch_size': 1}", "{'batch_size': 2}")}, "settings changed"),
        ({"updated_input": {"x"}}, "older than what it is made from"),
        ({"updated_input": {"x"}, "updated_input_run": {"x"}}, "what it is made from will change"),
    ],
)
def test_reasons_in_words(reason, words):
    assert words_for(SimpleNamespace(**vars(NEVER) | reason)) == words


def test_words_that_cannot_be_said_stop_nothing(capsys):
    Outlook(workflow=None, study=study(), points={}).emit(
        logging.makeLogRecord({"name": "unheard", "event": "run_info"})
    )
    assert "AttributeError" in capsys.readouterr().err


def test_the_progress_of_a_study_counts_what_is_there_and_not_to_be_made_again(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    for name in ("there.nc", "again.nc"):
        Path(name).touch()

    def job(output):
        return SimpleNamespace(
            rule=SimpleNamespace(name="train"), wildcards_dict={"experiment": "softmax_easy"}, output=[output],
            benchmark="results/toy/benchmarks/train/softmax_easy/L1_a0_b0_k1_s0.tsv",
        )  # fmt: skip

    waiting = {3: job("again.nc"), 7: job("absent.nc")}
    dag = SimpleNamespace(
        needrun_jobs=waiting.values,
        jobid=lambda one: next(number for number, each in waiting.items() if each is one),
        reason=lambda _: SimpleNamespace(**vars(NEVER) | {"missing_output": {"x"}}),
    )
    limits = {"_cores": SimpleNamespace(value=2), "_nodes": SimpleNamespace(value=2**63)}
    outlook = Outlook(
        SimpleNamespace(dag=dag, global_resources=limits, rules=[SimpleNamespace(name="train")]),
        study(),
        {"there.nc": 5, "again.nc": 2, "absent.nc": 1},
    )
    record(tmp_path / "results", study(), "train/softmax_easy/L1_a0_b0_k1_s0", 40.0)
    with caplog.at_level(logging.INFO):
        for event in ({"event": "run_info"}, {"event": "job_finished", "job_id": 3}, {"event": "progress"}):
            outlook.emit(logging.makeLogRecord({"name": "snake", **event}))
    begun, after = caplog.messages
    assert begun.startswith("The study toy: 5 of 8 points are trained.")
    assert "2 train (softmax_easy): not made yet; about 80 s of work" in begun
    assert after == "The study toy: 7 of 8 points trained; left: about 40 s with 2 at a time"
