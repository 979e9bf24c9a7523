"""The command that analyzes runs."""

import gzip
import json

import pytest
import typer
from typer.testing import CliRunner

from adasparse.analysis.figures import paper
from adasparse.cli.analyze import analyze
from support.sample_models import SOURCE, TARGET, dense, sparse, tokenizer

app = typer.Typer()
app.command()(analyze)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs and the sentences."""
    folder = tmp_path_factory.mktemp("analyze")
    for name, model in (("a", dense("marian")), ("b", sparse("marian"))):
        model.float().save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
    (folder / "source.txt").write_text("\n".join([*SOURCE, "", "x"]) + "\n", encoding="utf-8")
    with gzip.open(folder / "target.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join([*TARGET, "y", ""]) + "\n")
    return folder


def run(*arguments):
    return CliRunner().invoke(app, [str(x) for x in arguments])


def data(folder):
    return "--data", folder / "source.txt", "--data", folder / "target.txt.gz"


def test_two_runs_are_analyzed(folder, tmp_path):
    result = run(folder / "a", folder / "b", *data(folder), "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "In the encoder, 2 layers of 4 heads" in result.output
    assert "Not drawn: alpha_trajectories." in result.output
    measures = json.loads((tmp_path / "out" / "measures.json").read_text(encoding="utf-8"))
    assert measures["sentences"] == len(SOURCE)
    assert (tmp_path / "out" / "figures" / "merging_heads.svg").is_file()
    assert "merging_heads.csv" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_json_is_printed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("adasparse.analysis.figures.style.render", lambda *_: b"<svg/>")
    result = run(folder / "b", *data(folder), "--out", tmp_path, "--sentences", 2, "--json")
    found = json.loads(result.stdout)
    assert found["sentences"] == 2
    assert [x["name"] for x in found["runs"]] == ["b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--data", "none.txt"], "no file none.txt"),
        (["--data", "{0}/source.txt"], "with targets"),
        (["--data", "{0}/source.txt", "--data", "{0}"], "two text files"),
        (["--data", "{0}"], "manifest.json"),
        (["--data", "{0}/source.txt", "--data", "{0}/a/config.json"], "as many lines"),
        (["--data", "{0}/a/model.safetensors"], "must be UTF-8"),
        (
            ["--data", "{0}/source.txt", "--data", "{0}/target.txt.gz", "--source-lang", "xx"],
            "'xx'",
        ),
    ],
)
def test_mistakes_are_told_without_a_traceback(folder, tmp_path, change, message):
    arguments = [x.format(folder) for x in change]
    result = run(folder / "a", *arguments, "--out", tmp_path / "x")
    assert result.exit_code == 1
    assert "Error: " in result.output
    assert message in result.output.replace("\n", " ")
    assert not (tmp_path / "x").exists()


def test_a_folder_without_a_model_is_told(folder, tmp_path):
    result = run(folder, *data(folder), "--out", tmp_path / "x")
    assert result.exit_code == 1
    assert "must have a config.json" in result.output


def damaged(whole):
    """Ways to damage a gzip file: in its header, in its middle, in its checksum; cut anywhere."""
    yield from (whole[:size] for size in (3, 12, len(whole) // 2, len(whole) - 1))
    yield from (
        whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in (2, 20, len(whole) - 6)
    )


@pytest.mark.parametrize("number", range(7))
def test_a_damaged_gzip_file_is_told(folder, tmp_path, number):
    """A cut file once ended in nothing but "Aborted."."""
    path = tmp_path / "x.gz"
    path.write_bytes(list(damaged((folder / "target.txt.gz").read_bytes()))[number])
    result = run(folder / "a", "--data", folder / "source.txt", "--data", path, "--out", tmp_path)
    assert result.exit_code == 1
    assert "must be a whole gzip file" in result.output and "Traceback" not in result.output


def test_a_line_that_is_no_sentence_is_refused_at_once(folder, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text(f"Ja.\n{'x' * 10_000_000}\n", encoding="utf-8")
    result = run(folder / "a", "--data", path, "--out", tmp_path / "x")
    assert result.exit_code == 1
    assert "may have 100,000 characters; line 2 of" in result.output
    assert "has 10,000,000. Split it" in result.output.replace("\n", " ")


def test_a_long_sentence_is_drawn_in_bounds(folder, tmp_path, monkeypatch):
    """250 words once took 7 GB and 215 seconds."""
    pictures = ("merging_heads", "interrogation_heads", "sparsity_extremes")
    monkeypatch.setattr(paper, "FIGURES", [x for x in paper.FIGURES if x.name in pictures])
    path = tmp_path / "long.txt"
    path.write_text(f"{' '.join(SOURCE * 9)}\n{SOURCE[0]}\n", encoding="utf-8")
    out = tmp_path / "out"
    result = run(folder / "b", "--data", path, "--data", path, "--out", out)
    assert result.exit_code == 0, result.output
    table = (out / "figures" / "sparsity_extremes.csv").read_text(encoding="utf-8")
    assert "first 64 of" in table and table.count("\n") <= 1 + 2 * 64 * 64
    assert (out / "figures" / "sparsity_extremes.png").stat().st_size < 2_000_000
