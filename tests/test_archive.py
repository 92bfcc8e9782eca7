"""The archive of a study: what it holds, that it is valid, and that a changed or hostile one is refused."""

import hashlib
import io
import json
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import requests
import yaml
from synthetic import linear_difficult_laws, make_cube, make_selection, softmax_laws

from inverse_depth import unpacking
from inverse_depth import verify as verification
from inverse_depth.archive import CRATE, PROVENANCE, SUMS, write_archive
from inverse_depth.artifacts import ARTIFACTS, render
from inverse_depth.config import load_study
from inverse_depth.fits import FIT_COLUMNS, fit_cube
from inverse_depth.illustration import illustration_dataset
from inverse_depth.provenance import attributes
from inverse_depth.readme import FIT_MEANINGS
from inverse_depth.storage import write_dataset, write_frame, write_text
from inverse_depth.verify import ArchiveError, verify

ROOT = Path(__file__).parents[1]
DEPTHS = (1, 2, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study that holds some of its files: two cubes, fits, a measurement, and what can be made of them."""
    folder = tmp_path_factory.mktemp("results")
    study = load_study(ROOT / "config/paper.yaml", ROOT / "config/quick.yaml")
    write_text(yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False), folder / "config.yaml")
    laws = softmax_laws()
    settings = {"dimension": 16, "context_length": 64}
    cubes = {
        "softmax_difficult": make_cube(laws, DEPTHS),
        "linear_difficult": make_cube(linear_difficult_laws(), DEPTHS),
    }
    for name, cube in cubes.items():
        described = attributes(f"Losses of {name}", settings) | {"device": "cpu", "training_commits": "abc"}
        write_dataset(cube.assign_attrs(described), folder / f"cubes/{name}.nc")
    fits = fit_cube(cubes["softmax_difficult"], study.experiments["softmax_difficult"].fit)
    write_frame(fits, folder / "fits/softmax_difficult.csv")
    write_dataset(make_selection(), folder / "measurements/selection.nc")
    write_dataset(illustration_dataset(seed=19), folder / "illustration/contexts.nc")
    for name in ("fig2", "fig5", "fig6", "fig13", "table4", "depth_share"):
        artifact = ARTIFACTS[name]
        suffixes = ("pdf", "png") if artifact.kind == "figure" else ("csv", "md", "tex")
        outputs = [folder / f"{artifact.kind}s/{name}.{suffix}" for suffix in suffixes]
        render(name, {argument: folder / path for argument, path in artifact.inputs.items()}, outputs)
    return folder


def write(results, path):
    write_archive(results, sorted(p for p in results.rglob("*") if p.is_file()), ROOT, path)
    return path


@pytest.fixture(scope="module")
def archive(results, tmp_path_factory):
    pytest.importorskip("rocrate")
    return write(results, tmp_path_factory.mktemp("archive") / "study.zip")


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, folder, change, relist=True):
    """The archive with its contents changed, the check sums made to fit unless told otherwise."""
    held = contents(path)
    change(held)
    if relist:
        lines = (f"{hashlib.sha256(held[name]).hexdigest()}  {name}\n" for name in sorted(held) if name != SUMS)
        held[SUMS] = "".join(lines).encode()
    with zipfile.ZipFile(folder / "changed.zip", "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return folder / "changed.zip"


def test_a_sound_archive_passes_and_says_what_was_checked(archive):
    lines = []
    verify(archive, lines.append)
    made_again = [line.partition(":")[0] for line in lines if "equal data" in line]
    assert sorted(made_again) == ["depth_share", "fig13", "fig2", "fig5", "fig6", "table4"]
    assert "fits/softmax_difficult.csv: fitted again from its cube, equal numbers" in lines
    assert lines[-1].startswith("not checked: whether training, evaluation and theory give these data")
    assert "12 images of figures and printed forms of tables, and CITATION.cff, " in lines[-1]
    assert lines[-1].endswith("requirements.lock, were only summed")


def test_the_same_study_gives_the_same_bytes(results, archive, tmp_path):
    assert write(results, tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    with zipfile.ZipFile(archive) as held:
        assert held.namelist() == sorted(held.namelist())
        assert {entry.date_time[:3] for entry in held.infolist()} == {(1980, 1, 1)}


def test_it_holds_what_a_reader_needs(results, archive):
    held = contents(archive)
    files = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    own = {"README.md", "CITATION.cff", "LICENSE-CODE.txt", "LICENSE-DATA.txt", "requirements.lock", "environment.yml"}
    assert files | own | {SUMS, PROVENANCE, CRATE} <= set(held)
    readme = held["README.md"].decode()
    assert all(f"`{name}`" in readme for name in held)
    for variable in ("loss", "shared_error", "disagreement", "seconds", "percentile", *FIT_COLUMNS):
        assert re.search(rf"^\| `?{variable}`? \|", readme, re.MULTILINE), variable
    provenance = json.loads(held[PROVENANCE])
    figure = provenance["artifacts"]["fig6"]
    for one in figure["inputs"].values():
        assert one["sha256"] == hashlib.sha256(held[one["file"]]).hexdigest()
    assert provenance["datasets"]["cubes/softmax_difficult.nc"]["training_commits"] == "abc"
    assert b"CC BY 4.0" in held["LICENSE-DATA.txt"] and b"MIT" in held["LICENSE-CODE.txt"]


def test_every_column_of_the_fits_has_a_meaning():
    assert list(FIT_MEANINGS) == FIT_COLUMNS


# The authors are a group without a page, a registry's number or an address.
RO_CRATE_PAGES = ("https://w3id.org/ro/crate/", "https://www.researchobject.org/ro-crate/")
UNKNOWN_AUTHORS = {"ro-crate-1.2_86.2", "ro-crate-1.2_89.0", "ro-crate-1.2_90.1", "ro-crate-1.2_93.0"}


def test_the_crate_is_valid(archive, monkeypatch, tmp_path):
    """By roc-validator, required and recommended rules; pages that it asks for get the context that rocrate ships."""
    rocrate = pytest.importorskip("rocrate")
    monkeypatch.setenv("HOME", str(tmp_path))  # it keeps a cache there
    services = pytest.importorskip("rocrate_validator.services")
    from rocrate_validator.models import Severity
    from urllib3 import HTTPResponse

    context = (Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_bytes()
    asked = set()

    def send(adapter, request, **_):
        asked.add(request.url)
        headers = {"Content-Type": "application/ld+json"}
        body = HTTPResponse(io.BytesIO(context), headers, 200, preload_content=False)
        return adapter.build_response(request, body)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    settings = {"rocrate_uri": str(archive), "requirement_severity": Severity.RECOMMENDED}
    found = services.validate(services.ValidationSettings(**settings))
    assert [issue.message for issue in found.get_issues() if issue.severity == Severity.REQUIRED] == []
    assert {issue.check.identifier for issue in found.get_issues()} == UNKNOWN_AUTHORS
    assert all(url.startswith(RO_CRATE_PAGES) for url in asked), asked


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/etc/passwd", "absolute"),
        ("../outside.nc", "leads out"),
        ("cubes/../../outside.nc", "leads out"),
        ("C:\\outside.nc", "absolute"),
        ("\\\\host\\share.nc", "absolute"),
        ("folder/", "only plain files"),
        ("cubes/../extra.nc", "plainest form"),
        ("./extra.nc", "plainest form"),
        ("cubes//extra.nc", "plainest form"),
        ("cubes/./extra.nc", "plainest form"),
        ("cubes/extra.nc.", "plainest form"),
        (" extra.nc", "plainest form"),
        (".hidden", "plainest form"),
        ("extra\n.nc", "plainest form"),
        ("extr\u00e4.nc", "plainest form"),
        ("extra\u0308.nc", "plainest form"),
        ("extra\uff0enc", "plainest form"),
        ("Config.YAML", "differs from another only in case"),
        ("config.yaml/extra.nc", "lies in what is itself a file"),
    ],
)
def test_a_name_that_leads_out_is_refused_before_anything_is_written(archive, tmp_path, name, words):
    path = rewritten(archive, tmp_path, lambda held: held.update({name: b""}))
    with pytest.raises(ArchiveError, match=words) as caught:
        unpacking.unpack(path, tmp_path / "root")
    assert repr(name) in str(caught.value)
    assert not (tmp_path / "root").exists()


def test_links_and_repeats_and_absurd_sizes_are_refused(tmp_path, monkeypatch):
    link = zipfile.ZipInfo("cubes/link.nc")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ArchiveError, match="only plain files"):
        unpacking.unpack(tmp_path / "link.zip", tmp_path / "root")
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.csv", "1")
        archive.writestr("a.csv", "2")
    with pytest.raises(ArchiveError, match="twice"):
        unpacking.unpack(tmp_path / "twice.zip", tmp_path / "root")
    monkeypatch.setattr(unpacking, "MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.nc", b"\0" * 1001)
    with pytest.raises(ArchiveError, match="1001 bytes when unpacked: at most 1000"):
        unpacking.unpack(tmp_path / "bomb.zip", tmp_path / "root")
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", 0)
    with pytest.raises(ArchiveError, match="1 entries: at most 0"):
        unpacking.unpack(tmp_path / "bomb.zip", tmp_path / "root")
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(ArchiveError, match="cannot be read as a zip"):
        unpacking.unpack(tmp_path / "text.zip", tmp_path / "root")


def zipped(path, name="cubes/a.nc", content=b"0" * 10_000, method=zipfile.ZIP_DEFLATED, change=lambda entry: None):
    """A zip of one file; `change` edits what the zip says of it."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)
        change(archive.infolist()[0])
    return path


def says(**fields):
    return lambda entry: [setattr(entry, name, value) for name, value in fields.items()]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"method": zipfile.ZIP_BZIP2}, "compressed by method 12"),
        ({"method": zipfile.ZIP_LZMA}, "compressed by method 14"),
        ({"change": says(compress_type=93)}, "compressed by method 93"),
        ({"change": says(flag_bits=0x1)}, "is encrypted"),
        ({"change": says(flag_bits=0x41)}, "is encrypted"),
        ({"change": says(external_attr=0o120777 << 16)}, "only plain files"),
        ({"change": says(external_attr=0o010644 << 16)}, "only plain files"),
        ({"change": says(file_size=10_000_000)}, "deflate shortens at most 1032 times"),
        ({"name": "a.csv", "content": bytes(2**26 + 1)}, "at most 67108864 are allowed but for .nc"),
    ],
)
def test_an_entry_of_another_kind_is_named_and_refused(tmp_path, how, words):
    path = zipped(tmp_path / "odd.zip", **how)
    with pytest.raises(ArchiveError, match=words) as caught:
        unpacking.unpack(path, tmp_path / "root")
    assert repr(how.get("name", "cubes/a.nc")) in str(caught.value)
    assert not (tmp_path / "root").exists()


def test_an_entry_that_holds_more_than_it_says_gives_no_more(tmp_path):
    path = zipped(tmp_path / "liar.zip", change=says(file_size=100))
    with pytest.raises(ArchiveError, match="cannot be read as a zip"):
        unpacking.unpack(path, tmp_path / "root")
    assert all(file.stat().st_size <= 100 for file in (tmp_path / "root").rglob("*.nc"))


def test_what_is_no_file_is_no_archive(tmp_path):
    for path in (tmp_path, tmp_path / "absent.zip", Path("/dev/zero")):
        with pytest.raises(ArchiveError, match="no such file"):
            unpacking.unpack(path, tmp_path / "root")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "no archive is named"), ([""], "no archive is named"), (["absent.zip"], "absent.zip is no file")],
)
def test_verify_says_how_to_name_an_archive(arguments, words, capsys):
    assert verification.main(arguments) == 2
    assert f"{words}: make verify ARCHIVE=results/<study>/inverse-depth-<study>.zip" in capsys.readouterr().err


def edited(change):
    """Edit the list of origins of an archive's contents."""

    def apply(held):
        provenance = json.loads(held[PROVENANCE])
        change(provenance)
        held[PROVENANCE] = json.dumps(provenance).encode()

    return apply


def added(name, content):
    """Put a file into an archive's contents, and into its crate's metadata."""

    def apply(held):
        held[name] = content(held)
        crate = json.loads(held[CRATE])
        crate["@graph"].append({"@id": name, "@type": "File"})
        held[CRATE] = json.dumps(crate).encode()

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edited(lambda p: p["artifacts"].pop("fig6")), r"fig6: not listed in provenance\.json"),
        (edited(lambda p: p["artifacts"].clear()), r"depth_share: not listed in provenance\.json"),
        (edited(lambda p: p["artifacts"].update(fig3={})), r"fig3: listed in provenance\.json, but missing"),
        (edited(lambda p: p["datasets"].popitem()), r"\.nc: not listed in provenance\.json"),
        (edited(lambda p: p["datasets"].update({"cubes/x.nc": {}})), r"cubes/x\.nc: listed in .*, but missing"),
        (edited(lambda p: p["fits"].clear()), r"fits/softmax_difficult\.csv: not listed"),
        (edited(lambda p: p["fits"].update({"fits/x.csv": {}})), r"fits/x\.csv: listed in .*, but missing"),
        (edited(lambda p: p.pop("datasets")), "its datasets are NoneType, must be a mapping"),
        (edited(lambda p: p.update(artifacts=[])), "its artifacts are list, must be a mapping"),
        (edited(lambda p: p["artifacts"].update(fig6=3)), "the inputs that it gives of fig6"),
        (edited(lambda p: p["artifacts"]["fig6"]["outputs"].popitem()), "the outputs that it gives of fig6"),
        (
            edited(lambda p: p["artifacts"]["fig6"]["inputs"]["cube"].update(sha256="0" * 64)),
            "the inputs that it gives of fig6",
        ),
        (edited(lambda p: p["datasets"]["cubes/linear_difficult.nc"].update(commit="x")), "the commit that it gives"),
        (lambda held: held.update({PROVENANCE: b"[]"}), r"provenance\.json: holds list, must hold a mapping"),
        (lambda held: held.update({PROVENANCE: b"[" * 100_000}), "."),
        (lambda held: held.update({CRATE: b'{"@graph": [3]}'}), "its @graph must be a list of mappings"),
        (lambda held: held.pop(PROVENANCE), r"provenance\.json: missing"),
        (added("figures/fig3.pdf", lambda held: b"%PDF"), r"figures/fig3\.pdf: of no figure or table"),
        (added("tables/more.csv", lambda held: b"x\n1\n"), r"tables/more\.csv: of no figure or table"),
        (lambda held: held.pop("figures/fig6.json"), r"figures/fig6\.json: missing"),
        (
            added("cubes/linear_easy.nc", lambda held: held["cubes/linear_difficult.nc"]),
            r"cubes/linear_easy\.nc: not listed in provenance\.json",
        ),
        (
            added("fits/linear_easy.csv", lambda held: held["fits/softmax_difficult.csv"]),
            r"fits/linear_easy\.csv: not listed in provenance\.json",
        ),
    ],
)
def test_what_the_list_of_origins_leaves_out_or_invents_is_named(archive, tmp_path, change, words):
    with pytest.raises(ArchiveError, match=words):
        verify(rewritten(archive, tmp_path, change), str)


def relisted(held):
    """Make the list of origins fit the contents again."""
    provenance = json.loads(held[PROVENANCE])
    for origin in provenance["artifacts"].values():
        for one in origin["inputs"].values():
            one["sha256"] = hashlib.sha256(held[one["file"]]).hexdigest()
        for name in origin["outputs"]:
            origin["outputs"][name] = hashlib.sha256(held[name]).hexdigest()
    held[PROVENANCE] = json.dumps(provenance).encode()


def test_fits_that_the_cube_does_not_give_are_found(archive, tmp_path):
    def better(held):
        fits = pd.read_csv(io.BytesIO(held["fits/softmax_difficult.csv"]))
        fits.loc[0, "exponent"] *= 1.001
        held["fits/softmax_difficult.csv"] = fits.to_csv(index=False).encode()
        relisted(held)

    with pytest.raises(
        ArchiveError, match=r"fits/softmax_difficult\.csv: fitted again it holds other numbers.*exponent"
    ):
        verify(rewritten(archive, tmp_path, better), str)


def test_fits_of_other_settings_are_found(archive, tmp_path):
    def shorter(held):
        study = yaml.safe_load(held["config.yaml"])
        study["experiments"]["softmax_difficult"]["fit"]["min_depth"] = 2
        held["config.yaml"] = yaml.safe_dump(study).encode()

    with pytest.raises(ArchiveError, match=r"fits/softmax_difficult\.csv: fitted again it holds other numbers"):
        verify(rewritten(archive, tmp_path, shorter), str)


def test_fits_without_their_cube_are_refused(tmp_path):
    (tmp_path / "fits").mkdir()
    (tmp_path / "config.yaml").write_text((ROOT / "config/paper.yaml").read_text())
    with pytest.raises(ArchiveError, match=r"fits/linear_easy\.csv: cannot be fitted again: cubes/linear_easy\.nc or"):
        verification.refit(tmp_path, "fits/linear_easy.csv", tmp_path)


def test_a_changed_file_a_missing_and_an_unlisted_one_are_named(archive, tmp_path):
    path = rewritten(archive, tmp_path, lambda held: held.update({"tables/table4.md": b"x"}), relist=False)
    with pytest.raises(ArchiveError, match=r"tables/table4\.md: its check sum"):
        verify(path, str)
    path = rewritten(archive, tmp_path, lambda held: held.pop("fits/softmax_difficult.csv"), relist=False)
    with pytest.raises(ArchiveError, match=r"fits/softmax_difficult\.csv: missing"):
        verify(path, str)
    path = rewritten(archive, tmp_path, lambda held: held.update({"extra.txt": b"x"}), relist=False)
    with pytest.raises(ArchiveError, match=r"extra\.txt: not listed"):
        verify(path, str)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("cubes/linear_difficult.nc", lambda content: content[:-100], "damaged"),
        ("fits/softmax_difficult.csv", lambda content: content.replace(b"exponent", b"slope", 1), "its columns are"),
        ("config.yaml", lambda content: content.replace(b"depths", b"dephts", 1), "unknown key"),
        ("figures/fig6.json", lambda content: content.replace(b"2.1", b"2.2", 1), "shows other data"),
        ("tables/table4.csv", lambda content: content.replace(b"0.1", b"0.2", 1), "holds other numbers"),
    ],
)
def test_changed_contents_are_found_though_the_sums_fit(archive, tmp_path, name, change, words):
    def apply(held):
        before = held[name]
        held[name] = change(before)
        assert held[name] != before
        relisted(held)

    with pytest.raises(ArchiveError, match=words):
        verify(rewritten(archive, tmp_path, apply), str)


def test_a_damaged_download_is_not_sound(archive, tmp_path, capsys):
    with zipfile.ZipFile(archive) as held:
        entry = next(one for one in held.infolist() if one.compress_type == zipfile.ZIP_DEFLATED)
    content = bytearray(archive.read_bytes())
    name, extra = struct.unpack_from("<HH", content, entry.header_offset + 26)
    content[entry.header_offset + 30 + name + extra] = 0xFF  # no block of deflate begins so
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(content)
    assert verification.main([str(damaged)]) == 1
    assert "damaged.zip is not sound" in capsys.readouterr().err


def test_the_command_ends_in_words(archive, tmp_path):
    command = [sys.executable, "-m", "inverse_depth.verify"]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    broken = rewritten(archive, tmp_path, lambda held: held.update({"extra.txt": b"x"}), relist=False)
    done = subprocess.run([*command, broken], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "is not sound" in done.stderr and "extra.txt" in done.stderr
    assert "Traceback" not in done.stderr
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 2
