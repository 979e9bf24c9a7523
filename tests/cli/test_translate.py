import json

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app
from adasparse.translation.decode import translate
from adasparse.translation.runs import load_run
from support.small_language import language_run
from support.small_runs import command, run, small_run
from support.small_tasks import task_run

LINES = ["zwei drei", "", "neun acht sieben", " ", "eins"]


def invoke(*arguments, text=b"", folder=None):
    arguments = ["translate", str(folder or small_run()), *map(str, arguments)]
    return CliRunner().invoke(app, arguments, input=text)


def expected(sentences=LINES, **options):
    model, tokenizer = load_run(small_run())
    return translate(model, tokenizer, sentences, **options)


def best(sentences=LINES, **options):
    return [x[0].text for x in expected(sentences, **options)]


def fails(*arguments, **options):
    result = invoke(*arguments, **options)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_come_back_in_order_and_empty_ones_empty(newline, end):
    result = invoke(text=(newline.join(LINES) + end).encode())
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout == "".join(f"{x}\n" for x in best())
    assert result.stdout.splitlines()[1] == result.stdout.splitlines()[3] == ""


def test_nothing_becomes_nothing():
    assert invoke().stdout == ""
    assert invoke(text=b"\n\n").stdout == "\n\n"


def test_files_follow_each_other(tmp_path):
    for name, text in (("a", "eins\nzwei"), ("b", ""), ("c", "\ndrei\n")):
        (tmp_path / name).write_text(text)
    result = invoke(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert result.stdout.split("\n")[:-1] == best(["eins", "zwei", "", "drei"])


def test_other_separators_of_unicode_are_text():
    text = "zwei\u2028drei\x0bvier\x85fünf\n"
    result = invoke("--json", text=text.encode())
    (line,) = result.stdout.split("\n")[:-1]
    assert json.loads(line)["source"] == text[:-1]


def test_an_output_file_is_written_whole(tmp_path):
    result = invoke("-o", tmp_path / "out.txt", text="\n".join(LINES).encode())
    assert result.stdout == ""
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == best()
    assert [x.name for x in tmp_path.iterdir()] == ["out.txt"]
    (tmp_path / "out.txt").write_text("before")
    fails("-o", tmp_path / "out.txt", text=b"\xff\n")
    assert (tmp_path / "out.txt").read_text() == "before"
    assert "must exist; there is no" in fails("-o", tmp_path / "missing" / "x", text=b"eins\n")


def test_scores_come_before_the_text():
    result = invoke("--scores", "--beam", "2", text="\n".join(LINES).encode())
    rows = [line.split("\t") for line in result.stdout.split("\n")[:-1]]
    for row, (x,) in zip(rows, expected(beam=2), strict=True):
        assert row == [f"{x.score:.4f}", x.text]


def test_the_n_best_have_numbers_and_scores():
    result = invoke("--n-best", "3", "--beam", "4", text="\n".join(LINES).encode())
    rows = [line.split("\t") for line in result.stdout.split("\n")[:-1]]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3 + ["4"] + ["5"] * 3
    for number in "135":
        scores = [float(row[1]) for row in rows if row[0] == number]
        assert scores == sorted(scores, reverse=True)
    found = [x.text for translations in expected(beam=4, n_best=3) for x in translations]
    assert [row[2] for row in rows] == found


def test_json_has_everything():
    result = invoke("--json", "--n-best", "2", text="fünf\n\n".encode())
    lines = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert [line["number"] for line in lines] == [1, 2]
    assert lines[0]["source"] == "fünf"
    found = [{"text": x.text, "score": x.score} for x in expected(["fünf"], n_best=2)[0]]
    assert lines[0]["translations"] == found
    assert lines[1] == {"number": 2, "source": "", "translations": [{"text": "", "score": 0.0}]}


def test_a_newline_in_a_translation_is_a_space(monkeypatch):
    """One line per sentence, whatever the model writes."""
    _, tokenizer = load_run(small_run())
    monkeypatch.setattr(
        type(tokenizer), "batch_decode", lambda self, rows, **options: ["a\nb\r\nc\rd"] * len(rows)
    )
    assert invoke(text=b"eins\nzwei\n").stdout == "a b  c d\n" * 2
    for line in invoke("--json", text=b"eins\n").stdout.splitlines():
        assert json.loads(line)["translations"][0]["text"] == "a b  c d"


LONG = "zwei " * 64


def test_long_lines_are_refused_by_number(tmp_path):
    message = fails(text=f"eins\n{LONG}\nzwei\n{LONG}\n".encode())
    assert "2 sentences are too long for this model: line 2 (" in message
    assert "line 4 (" in message
    assert "--skip-long" in message
    (tmp_path / "a").write_text("eins\n")
    (tmp_path / "b").write_text(f"eins\n{LONG}\n" + f"{LONG}\n" * 9)
    message = fails(tmp_path / "a", tmp_path / "b")
    assert f"10 sentences are too long for this model: line 2 of {tmp_path / 'b'} (" in message
    assert ", ..." in message


def test_long_lines_are_left_empty_if_told_so():
    result = invoke("--skip-long", "--json", text=f"eins\n{LONG}\nzwei\n".encode())
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [x["translations"][0]["text"] for x in lines] == best(["eins", "", "zwei"])
    assert lines[1]["source"] == LONG
    assert result.stderr.startswith("Left empty, too long for this model: line 2 (")


def test_text_must_be_utf_8(tmp_path):
    assert "standard input must be UTF-8; line 3 is not, at its byte 2" in fails(
        text=b"eins\n\nf\xfcnf\n"
    )
    (tmp_path / "latin").write_bytes(b"\xe4")
    assert "latin must be UTF-8; line 1 is not" in fails(tmp_path / "latin")


def test_runs_must_be_there_and_finished(tmp_path):
    message = fails(folder=tmp_path / "missing")
    assert "A run must be a folder with a trained model; there is no" in message
    (tmp_path / "checkpoints").mkdir()
    assert "its training has not ended" in fails(folder=tmp_path)


def test_mistakes_are_told(tmp_path):
    assert "--n-best must be at most --beam, which is 2; got 3" in fails(
        "--n-best", 3, "--beam", 2, text=b"eins\n"
    )
    assert "There is no file" in fails(tmp_path / "missing.txt")
    assert invoke("--beam", 0).exit_code == 2


def test_a_checkpoint_translates_as_well():
    folder = small_run() / "checkpoints" / "checkpoint-12"
    assert invoke(text=b"eins\n", folder=folder).exit_code == 0


@pytest.mark.slow
def test_the_command_itself_says_nothing_but_translations(tmp_path):
    (tmp_path / "text").write_text("\n".join(LINES))
    done = run(command("translate", small_run(), tmp_path / "text"))
    assert done.stdout.split("\n")[:-1] == best()
    assert done.stderr == ""


@pytest.mark.slow
def test_who_has_read_enough_may_go():
    script = " ".join(command("translate", small_run())) + " | head -1"
    done = run(["sh", "-c", f"yes eins | head -20000 | {script}"])
    assert done.stdout.split("\n")[:-1] == best(["eins"])
    assert done.stderr == ""


def test_one_file_for_text_and_attention_is_refused(tmp_path):
    """The attention used to replace the translations."""
    (tmp_path / "link").symlink_to(tmp_path / "x")
    for other in (tmp_path / "x", tmp_path / "link"):
        files = ("--output", tmp_path / "x", "--attention", other)
        message = fails(*files, text=b"zwei\n")
        assert f"--output and --attention must be two files; both are {tmp_path / 'x'}" in message
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["tasks", "lm"])
def test_a_run_of_another_command_is_told(kind):
    """The message of transformers advised to update it."""
    other = {"tasks": task_run, "lm": language_run}[kind]()
    message = fails(text=b"zwei\n", folder=other)
    assert "The run must be one of 'adasparse train', or an encoder-decoder of" in message
    assert "is a LongContextForCausalLM." in message
