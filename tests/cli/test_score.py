import gzip
import json

import pytest
from typer.testing import CliRunner

from adasparse.cli.main import app
from adasparse.translation.score import score

REFERENCES = [
    "The cat sat on the mat.",
    "A dog is running.\u2028Fast.",
    "We see three red cars.",
] * 5
SYSTEM = [text.replace("red", "green") for text in REFERENCES]
OTHER = [text.replace("The", "A").replace("is", "was") for text in REFERENCES]


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"hyp.en": SYSTEM, "other.en": OTHER, "test.en": REFERENCES, "short.en": SYSTEM[1:]}
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", newline="\n")
    (tmp_path / "test.en.gz").write_bytes(gzip.compress("\r\n".join(REFERENCES).encode()))
    (tmp_path / "empty.en").touch()
    (tmp_path / "latin.en").write_bytes(b"caf\xe9\n" * 15)


def run(line, **settings):
    return CliRunner().invoke(app, ["score", *line.split()], **settings)


def test_scores_come_with_signatures():
    result = run("--hyp hyp.en --ref test.en")
    expected = score(SYSTEM, REFERENCES)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"BLEU {expected.bleu:.1f} | {expected.signatures['bleu']}",
        f"chrF {expected.chrf:.1f} | {expected.signatures['chrf']}",
    ]


def test_json_is_the_result():
    result = run("--hyp hyp.en --ref test.en.gz --json")
    found = json.loads(result.stdout)
    assert found == score(SYSTEM, REFERENCES).to_dict()
    assert found["sentences"] == 15


def test_options_reach_the_library():
    result = run(
        "--hyp hyp.en --ref test.en --ref other.en --metrics chrf++,bleu --lowercase "
        "--tokenize intl --json"
    )
    assert (
        json.loads(result.stdout)
        == score(
            SYSTEM, [REFERENCES, OTHER], metrics=["chrf++", "bleu"], lowercase=True, tokenize="intl"
        ).to_dict()
    )


@pytest.mark.parametrize("line", ["--hyp - --ref test.en", "--hyp hyp.en --ref -"])
def test_standard_input_is_read(line):
    text = "\n".join(SYSTEM if "hyp -" in line else REFERENCES)
    result = run(f"{line} --json", input=text.encode())
    assert json.loads(result.stdout)["bleu"] == score(SYSTEM, REFERENCES).bleu


@pytest.mark.parametrize(
    ("line", "first", "baseline"),
    [
        ("--hyp hyp.en --baseline other.en", SYSTEM, "other.en"),
        ("--hyp hyp.en --hyp other.en", SYSTEM, "hyp.en"),
    ],
)
def test_systems_are_compared(line, first, baseline):
    line = f"{line} --ref test.en --samples 100"
    found = json.loads(run(f"{line} --json").stdout)
    assert found["bleu"] == score(first, REFERENCES).bleu
    comparison = found["comparison"]
    assert comparison["baseline"] == baseline
    for name, system in (("hyp.en", SYSTEM), ("other.en", OTHER)):
        result = comparison["systems"][name]["bleu"]
        assert result["score"] == pytest.approx(score(system, REFERENCES).bleu)
        assert (result["p_value"] is None) == (name == baseline)
    table = run(line)
    assert table.exit_code == 0
    assert "baseline" in table.stdout
    assert "bs:100|seed:12345" in table.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--hyp short.en --ref test.en", "got 15 in test.en, 14 in short.en"),
        ("--hyp nowhere.en --ref test.en", "There is no file nowhere.en"),
        ("--hyp hyp.en --ref empty.en", "empty.en must have text"),
        ("--hyp latin.en --ref test.en", "latin.en must be UTF-8; line 1"),
        ("--hyp - --ref -", "can be read once"),
        ("--hyp hyp.en --hyp hyp.en --ref test.en", "given once; got hyp.en twice"),
        ("--hyp hyp.en --ref test.en --metrics ter", "metrics must be some of"),
        ("--hyp hyp.en --ref test.en --tokenize moses", "tokenize must be one of"),
        ("--hyp hyp.en --ref test.en --baseline other.en --samples 0", "samples must be from 1"),
    ],
)
def test_mistakes_are_told_without_a_traceback(line, message):
    result = run(line)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
