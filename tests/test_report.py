"""The page of a study: everything that is there is shown, what is not is named, and it needs no other file."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from synthetic import linear_difficult_laws, make_cube, make_fits, softmax_laws

from inverse_depth.account import account
from inverse_depth.artifacts import ARTIFACTS, render
from inverse_depth.config import load_study
from inverse_depth.markup import html_table, read_table, write_table
from inverse_depth.notation import to_html
from inverse_depth.report import study_report
from inverse_depth.storage import write_dataset, write_frame
from inverse_depth.times import duration

ROOT = Path(__file__).parents[1]
DEPTHS = (1, 2, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The quick study, with spectra of the synthetic cubes alone."""
    layer = {"experiments": {"softmax_difficult": {"grid": [
        {"depths": [1, 2, 4, 8, 16, 32], "spectra": [[0, 0], [0, 1], [1, 0]], "target_sizes": [2], "seeds": [[0, 1]]}
    ]}}}  # fmt: skip
    path = tmp_path_factory.mktemp("config") / "layer.yaml"
    path.write_text(yaml.safe_dump(layer))
    return load_study(ROOT / "config/paper.yaml", ROOT / "config/quick.yaml", path)


@pytest.fixture(scope="module")
def cube():
    laws = {key: law for key, law in softmax_laws().items() if key in [(0, 0, 2), (0, 1, 2), (1, 0, 2)]}
    cube = make_cube(laws, DEPTHS).assign_attrs(device="cpu, 1 threads", training_commits="abc; def", commit="abc")
    cube["seconds"].loc[{"L": 32}] = 100.0
    cube["converged"].loc[{"L": 32, "a": 1, "b": 0, "seed": 1}] = 0
    cube["loss"].loc[{"L": 16, "a": 1, "b": 0}] = np.nan
    return cube


@pytest.fixture(scope="module")
def results(tmp_path_factory, cube):
    folder = tmp_path_factory.mktemp("results")
    write_dataset(cube, folder / "cubes/softmax_difficult.nc")
    write_dataset(make_cube(linear_difficult_laws(), DEPTHS), folder / "cubes/linear_difficult.nc")
    write_frame(make_fits(softmax_laws(), DEPTHS), folder / "fits/softmax_difficult.csv")
    for name in ("fig5", "table4"):
        artifact = ARTIFACTS[name]
        suffixes = ("pdf", "png") if artifact.kind == "figure" else ("csv", "md", "tex")
        outputs = [folder / f"{artifact.kind}s/{name}.{suffix}" for suffix in suffixes]
        render(name, {argument: folder / path for argument, path in artifact.inputs.items()}, outputs)
    return folder


@pytest.fixture(scope="module")
def page(results, study):
    return study_report(results, study)


class Balance(HTMLParser):
    """Fails where a tag is not closed, and gathers what the page links to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [attrs[name] for name in ("href", "src") if name in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_other_file(page):
    parsed = Balance()
    parsed.feed(page)
    assert parsed.open == []
    assert len(set(parsed.ids)) == len(parsed.ids)
    anchors = {link[1:] for link in parsed.links if link.startswith("#")}
    assert anchors <= set(parsed.ids)
    others = [link for link in parsed.links if not link.startswith(("#", "data:"))]
    assert others == ["https://arxiv.org/abs/2610.11063"]  # to click on, nothing is loaded from there
    assert "<script" not in page and "@import" not in page and "url(" not in page


def test_what_is_there_is_shown(page, results):
    picture = base64.b64encode((results / "figures/fig5.png").read_bytes()).decode()
    assert picture in page
    assert to_html(ARTIFACTS["fig5"].caption) in page
    assert html_table(read_table(results / "tables/table4.csv")) in page
    assert page.count("<img ") == 1


def test_what_is_missing_is_named(page):
    for name, artifact in ARTIFACTS.items():
        assert (f'id="{name}"' in page) == (name in ("fig5", "table4"))
        assert (f"<li>{artifact.title}: " in page) == (name not in ("fig5", "table4"))
    assert f"{ARTIFACTS['fig6'].title}: could be made, but was not yet" in page
    assert f"{ARTIFACTS['fig4'].title}: not there to make it from: cubes/softmax_easy.nc" in page
    assert "<code>softmax_easy</code>" in page.partition("All of ")[2].partition("there is no cube")[0]


def test_the_account_counts_jobs_once_and_names_points(cube, study):
    found = account(cube, study, "softmax_difficult")
    # at a = 0 both teacher spectra have the same six models; at (1, 0) five depths were run
    assert found.models == 2 * (6 + 5)
    assert (found.points, found.jobs) == (2 * (6 + 6 + 5), 6 + 5)
    assert found.seconds == pytest.approx(1.0 * (5 + 4) + 100.0 * 2)
    assert found.unconverged_models == 1
    assert found.unconverged == ["(a, b) = (1, 0), k = 2: L = 32 (seed 1)"]
    assert found.missing == ["(a, b) = (1, 0), k = 2: L = 16 (seed 0, 1)"]
    flat = cube.copy(deep=True)
    flat["converged"].loc[{"L": 8, "a": 0}] = 0
    again = account(flat, study, "softmax_difficult")
    assert again.unconverged[0] == "(a, b) = (0, 0), (0, 1), k = 2: L = 8 (seed 0, 1)"
    assert again.unconverged_models == 1 + 2
    assert (found.depths, found.seeds, found.steps) == ("1, 2, 4, 8, 16, 32", "0, 1", "14,000")


def test_findings_follow_the_fits(page):
    laws = softmax_laws().values()
    low, high = min(law.exponent for law in laws), max(law.exponent for law in laws)
    assert f"is determined for {len(laws)} of {len(laws)} pairs" in page
    assert f"lies between {low:.2f} and {high:.2f} (depths 1 to 32)" in page


def test_an_empty_study_is_a_page_too(tmp_path, study):
    page = study_report(tmp_path, study)
    assert "There are no cubes yet" in page and "No figure was drawn" in page and "<img" not in page


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("fits L_0 + c L^-alpha, x_test", "fits <i>L</i><sub>0</sub> + c L<sup>−α</sup>, <i>x</i><sub>test</sub>"),
        (r"exponent $\alpha$", "exponent α"),
        ("mean of $j^{-b}$", "mean of j<sup>−b</sup>"),
        ("$(R_1 - L_0) / R_1$", "(<i>R</i><sub>1</sub> − <i>L</i><sub>0</sub>) / <i>R</i><sub>1</sub>"),
        ("1 < 2 & softmax_difficult", "1 &lt; 2 &amp; softmax_difficult"),
    ],
)
def test_mathematics_in_html(text, html):
    assert to_html(text) == html


def test_a_table_comes_back_from_its_file_and_is_escaped(tmp_path):
    notes = ["", "<b> & c: $L_0$ of R_1"]
    frame = pd.DataFrame({"a": [0.0, 1.0], "floor": [2.0, np.nan], "floor_se": [0.01, np.nan], "note": notes})
    write_table(frame, *(tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "tex")))
    table = html_table(read_table(tmp_path / "t.csv"))
    assert "<td>2.00 ± 0.01</td><td></td>" in table
    assert "<td>see note</td><td>1</td>" in table
    assert "<li>&lt;b&gt; &amp; c: <i>L</i><sub>0</sub> of R_1</li>" in table
    assert len(re.findall("<tr>", table)) == 3


@pytest.mark.parametrize(("seconds", "words"), [(42, "42 s"), (660, "11 min"), (36000, "10.0 h")])
def test_times_in_words(seconds, words):
    assert duration(seconds) == words
