import dataclasses
import math
from collections import Counter

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from adasparse.translation.score import Scorer, score

REFERENCES = [
    "A man is riding a red bicycle down the street .",
    "Two dogs play in the snow , near a house .",
    "A woman in a blue dress is singing on a stage .",
    "Children are running across the green field .",
] * 10
SYSTEM = [text.replace("is ", "was ") for text in REFERENCES]
OTHER = [text.replace("a ", "the ") for text in REFERENCES]


def plain_bleu(hypotheses, references):
    """BLEU by its definition, of text whose words are split by spaces."""
    logs, sizes = [], [0, 0]
    for order in range(1, 5):
        matches = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            found, wanted = (
                Counter(zip(*(words[start:] for start in range(order)), strict=False))
                for words in (hypothesis.split(), reference.split())
            )
            matches += sum((found & wanted).values())
            total += sum(found.values())
        logs.append(math.log(matches / total))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        sizes[0] += len(hypothesis.split())
        sizes[1] += len(reference.split())
    brevity = min(0.0, 1 - sizes[1] / sizes[0])
    return 100 * math.exp(brevity + sum(logs) / 4)


def test_bleu_is_its_definition():
    assert score(SYSTEM, REFERENCES).bleu == pytest.approx(plain_bleu(SYSTEM, REFERENCES))
    short = [text[:-10] for text in SYSTEM]
    found = score(short, REFERENCES, tokenize="none").bleu
    assert found == pytest.approx(plain_bleu(short, REFERENCES))


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu(lowercase):
    hypotheses = [text.lower() for text in OTHER]
    found = score(hypotheses, REFERENCES, lowercase=lowercase, metrics=["bleu", "chrf", "chrf++"])
    for name, metric in (
        ("bleu", BLEU(lowercase=lowercase, force=True)),
        ("chrf", CHRF(lowercase=lowercase)),
        ("chrf++", CHRF(lowercase=lowercase, word_order=2)),
    ):
        assert found.values[name] == metric.corpus_score(hypotheses, [REFERENCES]).score
    assert (found.bleu, found.chrf) == (found.values["bleu"], found.values["chrf"])


def test_the_result_tells_how():
    found = score(SYSTEM, [REFERENCES, OTHER], lowercase=True).to_dict()
    assert set(found) == {"bleu", "chrf", "signatures", "sentences"}
    assert found["sentences"] == 40
    version = f"version:{sacrebleu.__version__}"
    assert found["signatures"] == {
        "bleu": f"nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|{version}",
        "chrf": f"nrefs:2|case:lc|eff:yes|nc:6|nw:0|space:no|{version}",
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        score(SYSTEM, REFERENCES).sentences = 3


def test_a_scorer_serves_many_systems():
    scorer = Scorer(REFERENCES, metrics=["bleu"])
    for system in (SYSTEM, OTHER, REFERENCES):
        assert scorer(system).values == {"bleu": score(system, REFERENCES).bleu}


def test_several_references_all_count():
    mixed = [*SYSTEM[:20], *OTHER[20:]]
    assert score(mixed, [SYSTEM, OTHER]).bleu == pytest.approx(100)


def test_empty_sentences_are_scored():
    found = score(["", *SYSTEM[1:]], ["", *REFERENCES[1:]])
    assert found.bleu == pytest.approx(score(SYSTEM[1:], REFERENCES[1:]).bleu)
    assert score([""] * 40, REFERENCES).bleu == 0


def test_tokenized_text_gives_no_warning(caplog):
    score([f"{text} ." for text in SYSTEM] * 10, REFERENCES * 10)
    assert not caplog.records


def test_numbers_of_sentences_must_agree():
    with pytest.raises(ValueError, match="as many sentences as the references, 40; got 39"):
        score(SYSTEM[1:], REFERENCES)
    with pytest.raises(ValueError, match=r"All references must .* got \[40, 39\]"):
        score(SYSTEM, [REFERENCES, OTHER[1:]])
    with pytest.raises(ValueError, match=r"other must have as many sentences .* 40; got 39"):
        Scorer(REFERENCES).compare({"system": SYSTEM, "other": OTHER[1:]})


def test_wrong_arguments_are_refused():
    for nothing in ([], [[]]):
        with pytest.raises(ValueError, match="At least one reference"):
            score([], nothing)
    with pytest.raises(TypeError, match="got one string"):
        score(["a"], "a")
    with pytest.raises(ValueError, match=r"metrics must be some of bleu, chrf, chrf\+\+; got"):
        score(SYSTEM, REFERENCES, metrics=["ter"])
    with pytest.raises(ValueError, match=r"tokenize must be one of 13a, .*; got 'moses'"):
        score(SYSTEM, REFERENCES, tokenize="moses")
    with pytest.raises(ValueError, match="at least two systems; got 1"):
        Scorer(REFERENCES).compare({"one": SYSTEM})
    for samples in (0, 10**6 + 1, 10**23):  # the last used to be an OverflowError
        with pytest.raises(ValueError, match=f"samples must be from 1 to 1,000,000; got {samples}"):
            Scorer(REFERENCES).compare({"one": SYSTEM, "two": OTHER}, samples=samples)


def test_a_clear_difference_is_significant():
    near = [*SYSTEM[:-1], OTHER[-1]]
    systems = {"system": SYSTEM, "other": OTHER, "near": near, "same": list(SYSTEM)}
    found = Scorer(REFERENCES, metrics=["bleu"]).compare(systems, samples=300)
    assert found.baseline == "system"
    assert list(found.systems) == list(systems)
    p_values = {name: result["bleu"].p_value for name, result in found.systems.items()}
    assert p_values["system"] is None
    assert p_values["other"] < 0.01
    assert p_values["near"] > 0.1
    assert p_values["same"] == 1
    for name, hypotheses in systems.items():
        result = found.systems[name]["bleu"]
        assert result.score == pytest.approx(score(hypotheses, REFERENCES).bleu)
        assert abs(result.mean - result.score) < 3 * result.ci
    assert "bs:300|seed:12345" in found.signatures["bleu"]


def test_a_comparison_is_the_same_every_time():
    scorer = Scorer(REFERENCES)
    first, again = (scorer.compare({"a": SYSTEM, "b": OTHER}, samples=50) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert set(first.to_dict()["systems"]["b"]) == {"bleu", "chrf"}
