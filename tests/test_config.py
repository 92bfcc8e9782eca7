"""The schema of the configuration: what it accepts, and that a refusal names the key, the value and what is allowed."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inverse_depth.config import ConfigError, Run, group_id, load_study, parse_study

ROOT = Path(__file__).parents[1]

STUDY = yaml.safe_load(
    """
    study: small
    device: cpu
    control_ratio: 4
    training:
      brief: {parameters: merged, batch_size: 8, learning_rate: 1e-2, first_round: 2, max_steps: 6, tolerance: 0.1}
    experiments:
      first:
        attention: softmax
        task: difficult
        dimension: 4
        context_length: 8
        width: 4
        training: brief
        evaluation_contexts: 256
        grid:
          - {depths: [1, 2], spectra: [[0, 0], [0.25, 1]], target_sizes: [2], seeds: [[0, 1], [2]]}
    theory:
      polynomial_depths: [1, 2]
      floors:
        plain: {dimension: 4, context_length: 8, degree: 2, contexts: 256, spectra: [[0, 0]], target_sizes: [2]}
    """
)
EXPERIMENT = "experiments.first"
GRID = f"{EXPERIMENT}.grid.0"


def changed(key, value):
    """The small study with one value changed, or with the key taken out where the value is ``...``."""
    study = copy.deepcopy(STUDY)
    *parents, last = (int(part) if part.isdigit() else part for part in key.split("."))
    node = study
    for part in parents:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return study


def refusal(key, value):
    with pytest.raises(ConfigError) as caught:
        parse_study(changed(key, value), source="file.yaml")
    first, *lines = str(caught.value).splitlines()
    assert first == "file.yaml is not a valid study:"
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        # unknown and missing keys
        ("stduy", "x", ["stduy: unknown key; did you mean 'study'?", "allowed: control_ratio, device"]),
        (f"{EXPERIMENT}.contxt_length", 8, ["first.contxt_length: unknown key; did you mean 'context_length'?"]),
        (f"{GRID}.depth", [1], ["grid.0.depth: unknown key; did you mean 'depths'?", "seeds, spectra, target_sizes"]),
        ("training.brief.lr", 0.1, ["training.brief.lr: unknown key (allowed: batch_size"]),
        ("theory.floors.plain.n", 3, ["theory.floors.plain.n: unknown key", "context_length, contexts, degree"]),
        ("study", ..., ["study: missing"]),
        (f"{EXPERIMENT}.width", ..., [f"{EXPERIMENT}.width: missing"]),
        # impossible values
        (f"{GRID}.target_sizes", [9], [EXPERIMENT, "k = 9", "at most context_length (8)"]),
        ("theory.floors.plain.target_sizes", [2, 9], ["theory.floors.plain", "k = 9", "at most context_length (8)"]),
        (f"{EXPERIMENT}.dimension", 0, [f"{EXPERIMENT}.dimension: found 0", "greater than or equal to 1"]),
        (f"{GRID}.depths", [0], [f"{GRID}.depths.0: found 0", "greater than or equal to 1"]),
        (f"{GRID}.target_sizes", [0], [f"{GRID}.target_sizes.0: found 0", "greater than or equal to 1"]),
        (f"{EXPERIMENT}.width", 3, [EXPERIMENT, "width is 3", "at least dimension (4)"]),
        (f"{EXPERIMENT}.context_length", 0, ["context_length: found 0", "greater than or equal to 1"]),
        (f"{GRID}.spectra", [[-1, 0]], [f"{GRID}.spectra.0.0: found -1", "greater than or equal to 0"]),
        (f"{GRID}.spectra", [[float("nan"), 0]], ["found nan", "finite"]),
        (f"{EXPERIMENT}.evaluation_contexts", 300, ["found 300", "multiple of 256"]),
        ("training.brief.learning_rate", 0, ["training.brief.learning_rate: found 0", "greater than 0"]),
        ("training.brief.max_steps", 1, ["training.brief", "max_steps is 1", "at least first_round (2)"]),
        (f"{EXPERIMENT}.fit", {"min_depth": 8, "max_depth": 4}, ["max_depth is 4", "at least min_depth (8)"]),
        # repetitions
        (f"{GRID}.spectra", [[0, 0.5], [0.0, 0.5]], [f"{GRID}.spectra", "repeats [0.0, 0.5]"]),
        (f"{GRID}.depths", [1, 2, 1], [f"{GRID}.depths", "repeats 1"]),
        (f"{GRID}.seeds", [[0, 1], [1]], [f"{GRID}.seeds", "repeats 1"]),
        ("theory.floors.plain.spectra", [[1, 0], [1, 0]], ["theory.floors.plain.spectra", "repeats [1.0, 0.0]"]),
        (f"{EXPERIMENT}.grid", STUDY["experiments"]["first"]["grid"] * 2, ["L=1, a=0.0, b=0.0, k=2, seed=0", "twice"]),
        # empty lists and sections
        (f"{GRID}.depths", [], [f"{GRID}.depths: found []", "at least 1 item"]),
        (f"{GRID}.seeds", [[]], [f"{GRID}.seeds.0: found []", "at least 1 item"]),
        (f"{EXPERIMENT}.grid", [], [f"{EXPERIMENT}.grid: found []", "at least 1 item"]),
        ("experiments", {}, ["experiments: found {}", "at least 1 item"]),
        # wrong types
        (f"{GRID}.depths", 4, [f"{GRID}.depths: found 4", "list"]),
        (f"{GRID}.depths", ["1"], [f"{GRID}.depths.0: found '1'", "integer"]),
        (f"{GRID}.depths", [True], [f"{GRID}.depths.0: found True", "integer"]),
        (f"{GRID}.depths", [1.5], [f"{GRID}.depths.0: found 1.5", "integer"]),
        (f"{GRID}.spectra", [0, 1], [f"{GRID}.spectra.0: found 0", "a pair [a, b]"]),
        (f"{GRID}.spectra", [[0, 0, 1]], [f"{GRID}.spectra.0: found [0, 0, 1]", "at most 2 items"]),
        (f"{GRID}.spectra", [["x", 0]], [f"{GRID}.spectra.0.0: found 'x'", "number"]),
        (f"{GRID}.spectra", [[True, 0]], [f"{GRID}.spectra.0.0: found True", "number"]),
        (f"{GRID}.seeds", [0, 1], [f"{GRID}.seeds.0: found 0", "list"]),
        ("experiments", [], ["experiments: found []", "section"]),
        (EXPERIMENT, None, [f"{EXPERIMENT}: found None", "section"]),
        ("device", "gpu", ["device: found 'gpu'", "'auto', 'cpu' or 'cuda'"]),
        (f"{EXPERIMENT}.attention", "linaer", ["attention: found 'linaer'", "'linear' or 'softmax'"]),
        (f"{EXPERIMENT}.context_length", "inf", ["context_length: found 'inf'", "integer", "'infinite'"]),
        # names: no paths, nothing that a shell or a wildcard would read differently
        ("study", "../elsewhere", ["study: found '../elsewhere'", "start with a letter"]),
        ("study", "a/b", ["study: found 'a/b'"]),
        ("study", "", ["study: found ''"]),
        ("study", "x\n", ["study: found 'x\\n'"]),
        ("study", "a" * 49, ["study: found", "at most 48"]),
        ("experiments", {"$(id)": STUDY["experiments"]["first"]}, ["experiments.$(id): found '$(id)'"]),
        ("theory.floors", {"polynomials": STUDY["theory"]["floors"]["plain"]}, ["floors holds 'polynomials'", "taken"]),
        # sections that do not fit together
        (f"{EXPERIMENT}.training", "long", [f"{EXPERIMENT}.training is 'long'", "allowed are brief"]),
        ("training", {}, [f"{EXPERIMENT}.training is 'brief'", "there are no recipes"]),
        (f"{EXPERIMENT}.context_length", "infinite", ["'infinite'", "linear attention on the easy task only"]),
        (f"{EXPERIMENT}.task", "easy", ["target_sizes is [2]", "must be [1]"]),
        (
            EXPERIMENT,
            STUDY["experiments"]["first"] | {"attention": "linear", "variant": "decoupled_values"},
            ["'decoupled_values'", "linear attention allows controlled"],
        ),
        (
            f"{EXPERIMENT}.variant",
            "single_stream",
            ["brief.teacher is 'integrated'", "'single_stream'", "allows sampled"],
        ),
        ("training.brief.warmup", 2, ["warmup is 2", "less than first_round (2)"]),
        ("training.brief.tolerance", 2, ["training.brief.tolerance: found 2", "less than 1"]),
        ("training.brief.max_steps", 10**9, ["max_steps: found 1000000000", "less than or equal to 10000000"]),
    ],
)
def test_refusals_name_key_value_and_what_is_allowed(key, value, words):
    message = refusal(key, value)
    assert all(word in message for word in words), message


def test_linear_attention_on_the_easy_task_needs_the_infinite_context():
    easy = {"attention": "linear", "task": "easy", "grid": [{"depths": [1], "spectra": [[1, 1]], "seeds": [[0]]}]}
    experiment = STUDY["experiments"]["first"] | easy
    assert "must be 'infinite'" in refusal("experiments", {"first": experiment})
    infinite = experiment | {"context_length": "infinite"}
    study = parse_study(changed("experiments", {"first": infinite}))
    assert study.polynomials() == {"dimension": 4, "spectra": [[1.0, 1.0]], "depths": [1, 2]}
    wider = infinite | {"dimension": 8, "width": 8}
    assert "dimensions [4, 8]" in refusal("experiments", {"first": infinite, "second": wider})


def test_every_mistake_is_named_at_once():
    study = changed("device", "gpu")
    study["experiments"]["first"]["grid"][0]["depths"] = []
    del study["study"]
    with pytest.raises(ConfigError) as caught:
        parse_study(study)
    assert all(word in str(caught.value) for word in ("study: missing", "'gpu'", f"{GRID}.depths"))


def test_a_slip_in_the_name_of_a_section_is_recognised():
    study = changed("device", "cpu")
    study["experiments"]["softmax_difficult"] = study["experiments"]["first"]
    study["experiments"] |= {"softmax_dificult": {"width": 8}, "another": {"width": 8}}
    with pytest.raises(ConfigError) as caught:
        parse_study(study)
    lines = str(caught.value).splitlines()
    assert [line for line in lines if "softmax" in line and "dificult" in line] == [
        "  - experiments.softmax_dificult: a section of its own, which lacks keys that must be given; "
        "did you mean 'softmax_difficult'?"
    ]
    assert "  - experiments.another.attention: missing; it must be given" in lines


@pytest.mark.parametrize("value", [[1], "text", None, 3])
def test_a_file_that_holds_no_mapping_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match="section"):
        parse_study(value)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(value))
    with pytest.raises(ConfigError, match=r"study\.yaml: .*mapping"):
        load_study(path)


@pytest.mark.parametrize("content", [b"a: [1", b"\xff\xfe\x00", b"a: &x [*x, *y]", b"\x00"])
def test_an_unreadable_file_is_named(tmp_path, content):
    path = tmp_path / "study.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"study\.yaml"):
        load_study(path)
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        load_study(tmp_path / "absent.yaml")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    ["study", "device", "training", "training.brief", "experiments", EXPERIMENT, f"{EXPERIMENT}.grid", GRID]
    + [f"{GRID}.{name}" for name in ("depths", "spectra", "target_sizes", "seeds")]
    + [f"{EXPERIMENT}.{name}" for name in ("fit", "width", "context_length", "task")]
    + ["theory", "theory.floors", "theory.floors.plain", "theory.polynomial_depths"]
)


@settings(max_examples=300, deadline=None)
@given(keys, values)
def test_whatever_stands_in_a_file_is_accepted_or_refused_in_words(key, value):
    try:
        parse_study(changed(key, value))
    except ConfigError as error:
        assert "is not a valid study:\n  - " in str(error)


def test_the_studies_of_the_repository_are_valid_and_the_quick_one_has_the_same_experiments():
    paper, quick = (
        load_study(ROOT / "config/paper.yaml"),
        load_study(ROOT / "config/paper.yaml", ROOT / "config/quick.yaml"),
    )
    assert (paper.study, quick.study) == ("paper", "quick")
    assert list(paper.experiments) == list(quick.experiments)
    assert {(run.a, run.b) for run in paper.runs("linear_easy").values()} == {
        *((2, b) for b in (0.5, 1, 1.5, 2)),
        *((a, 2) for a in (0.5, 1, 1.5)),
    }
    assert max(run.depth for run in paper.runs("softmax_difficult").values()) == 512


def test_an_override_merges_sections_and_replaces_lists(tmp_path):
    base, override = tmp_path / "base.yaml", tmp_path / "override.yaml"
    base.write_text(json.dumps(STUDY))
    override.write_text(
        "study: other\nexperiments: {first: {grid: [{depths: [4], spectra: [[1, 0]], seeds: [[5]]}]}}\n"
    )
    study = load_study(base, override)
    assert study.study == "other"
    assert study.runs("first") == {"L4_a1_b0_k1_s5": Run("first", 4, 1.0, 0.0, 1, (5,))}
    assert study.experiments["first"].width == 4


def test_runs_are_the_product_of_the_grid_under_names_of_their_own():
    runs = parse_study(STUDY).runs("first")
    assert len(runs) == 2 * 2 * 1 * 2
    assert runs["L2_a0.25_b1_k2_s0-1"] == Run("first", 2, 0.25, 1.0, 2, (0, 1))
    assert set(parse_study(STUDY).groups("first")) == {(0, 0, 2), (0.25, 1, 2)}
    close = parse_study(changed(f"{GRID}.spectra", [[0.1234567, 0], [0.12345678, 0]]))
    assert len(close.runs("first")) == 8


def test_at_a_zero_one_training_serves_all_b_unless_teachers_are_sampled():
    spectra = changed(f"{GRID}.spectra", [[0, 0], [0, 0.5], [1, 0.5]])
    study = parse_study(spectra)
    groups = study.groups("first")
    assert list(groups) == [(0, 0, 2), (0, 0.5, 2), (1, 0.5, 2)]
    assert groups[0, 0, 2] == groups[0, 0.5, 2] and len(study.runs("first")) == 2 * 2 * 2
    points = {name: list(points) for name, points in study.evaluations("first").items()}
    assert points == {"a0_b0_k2": [(0, 0, 2), (0, 0.5, 2)], "a1_b0.5_k2": [(1, 0.5, 2)]}
    settings = study.evaluation_settings("first", "a0_b0_k2")
    assert settings["points"] == [[0, [1, 2]], [0.5, [1, 2]]]
    spectra["training"]["brief"]["teacher"] = "sampled"
    assert len(parse_study(spectra).runs("first")) == 3 * 2 * 2


def test_a_fit_takes_some_depth_of_the_grid():
    for bounds in ({"min_depth": 3}, {"min_depth": 3, "max_depth": 4096}):
        with pytest.raises(ConfigError, match=r"first.*fit takes min_depth 3 to max_depth 4096: .* depths 1, 2$"):
            parse_study(changed("experiments.first.fit", bounds))
    assert parse_study(changed("experiments.first.fit", {"min_depth": 2})).experiments["first"].fit.min_depth == 2


def test_measurements_are_of_models_that_are_trained():
    study = copy.deepcopy(STUDY)
    section = {"experiment": "first", "spectrum": [0, 0], "target_size": 2, "depths": [1, 2], "contexts": 100}
    study["measurements"] = {"selection": section}
    found = parse_study(study)
    assert [run.depth for run in found.measured_runs(found.measurements.selection)] == [1, 1, 2, 2]
    for change, words in [
        ({"experiment": "second"}, "measurements.selection.experiment is 'second': allowed are first"),
        ({"depths": [1, 4]}, "measurements.selection.depths is [1, 4]: experiments."),
        ({"spectrum": [0, 1]}, "measurements.selection.spectrum is [0, 1] with k = "),
        ({"target_size": 3}, " with k = 3: experiments."),
        ({"depths": [1]}, "measurements.selection.depths: found [1]"),
        ({"depth": 1}, "measurements.selection.depth: unknown key; did you mean 'depths'?"),
    ]:
        study["measurements"] = {"selection": section | change}
        with pytest.raises(ConfigError, match=re.escape(words)):
            parse_study(study)


def test_numbers_in_the_notations_of_yaml_mean_the_same():
    assert parse_study(STUDY).training["brief"].learning_rate == 0.01  # YAML 1.1 reads 1e-2 as text
    study = parse_study(changed(f"{GRID}.spectra", [[-0.0, 1]]))
    assert group_id(*next(iter(study.groups("first")))) == "a0_b1_k2"


def test_settings_hold_what_a_result_depends_on_and_nothing_else():
    study = parse_study(STUDY)
    run = study.runs("first")["L2_a0.25_b1_k2_s0-1"]
    training = study.training_settings(run)
    assert json.loads(json.dumps(training)) == training
    for key, value, retrains in [
        ("training.brief.tolerance", 0.2, True),
        (f"{EXPERIMENT}.width", 5, True),
        (f"{EXPERIMENT}.evaluation_contexts", 512, False),
        (f"{EXPERIMENT}.fit", {"max_depth": 8}, False),
        (f"{GRID}.depths", [1, 2, 4], False),
        ("device", "auto", False),
        ("study", "other", False),
        ("control_ratio", 8, False),
    ]:
        other = parse_study(changed(key, value))
        assert (other.training_settings(run) != training) == retrains, key
        same_cube = other.experiment_settings("first") == study.experiment_settings("first")
        assert same_cube == (key in {f"{EXPERIMENT}.fit", "device", "study"}), key
    assert study.evaluation_settings("first", "a0.25_b1_k2")["evaluation_contexts"] == 256


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!timestamp x"])
def test_a_value_that_is_not_what_its_tag_says_is_refused(tmp_path, value):
    path = tmp_path / "odd.yaml"
    path.write_text(f"study: {value}\n")
    with pytest.raises(ConfigError, match=r"odd\.yaml: cannot be read as YAML"):
        load_study(path)


def test_nested_aliases_make_no_long_message(tmp_path):
    lists = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    path = tmp_path / "bomb.yaml"
    path.write_text(f"l0: &l0 [x]\n{lists}study: *l8\n")
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    assert len(str(caught.value)) < 5000
