"""Which tokens are what."""

import numpy as np
import pytest

from adasparse.analysis.tokens.annotations import annotate
from adasparse.analysis.tokens.interrogatives import (
    INTERROGATIVES,
    guess_language,
    interrogatives_of,
    is_question,
)
from support.token_rows import from_tokens


def annotated(*tokens, language="en", counts=None):
    row = from_tokens(*tokens)
    numbers = dict(zip(tokens, row.ids, strict=True))
    given = {numbers[token]: n for token, n in (counts or {}).items()}
    return annotate(row, counts=given, interrogatives=INTERROGATIVES[language])


def at(mark):
    return np.flatnonzero(mark).tolist()


def test_the_final_question_mark_and_interrogatives_are_found():
    found = annotated("▁Where", "▁is", "▁it", "?", "▁Wh", "o", "?", '"', "</s>")
    assert at(found.interrogative) == [0, 4, 5]
    assert at(found.question) == [6]
    assert at(found.special) == at(found.end) == [8]
    assert at(found.punctuation) == [3, 6, 7]


def test_statements_have_no_question_mark():
    assert at(annotated("▁what", "▁", ".", "</s>").question) == []
    assert at(annotated("▁?", "▁yes", "</s>").question) == []


def test_japanese_questions_end_in_a_particle():
    found = annotated("▁彼", "は", "どこ", "です", "か", "。", "</s>", language="ja")
    assert at(found.interrogative) == [2]
    assert at(found.question) == [4]
    assert at(annotated("▁何時", "だ", "？", language="ja").interrogative) == [0]


def test_the_rarest_tokens_are_those_seen_least():
    found = annotated(
        "▁a", "▁b", "▁c", "▁d", "</s>", counts={"▁a": 9, "▁b": 2, "▁c": 2, "▁d": 3, "</s>": 1}
    )
    assert at(found.rare) == [1, 2]
    assert at(annotated("</s>").rare) == []


def test_questions_are_told_by_their_end():
    assert all(
        map(
            is_question,
            ["Who?", "Wer ? ", 'He said "Who?"', "何ですか。", "何 で す か 。", "誰？"],
        )
    )
    assert not any(map(is_question, ["Who.", "", "?!x", "犬だ。"]))


def test_the_language_is_that_of_most_questions():
    assert guess_language(["Was ist das?", "Wo bist du?", "Who?", "Wer."]) == "de"
    assert guess_language(["What was that?", "How?"]) == "en"
    assert guess_language(["Ce este asta?", "Unde este?"]) == "ro"
    assert guess_language(["何 で す か 。"]) == "ja"
    assert guess_language(["Ja.", "Kommst du?"]) is None


def test_unknown_languages_are_named():
    assert interrogatives_of({"source": None})["source"] == frozenset()
    with pytest.raises(ValueError, match=r"one of \['cs', 'de'.*got \['xx'\]"):
        interrogatives_of({"source": "xx"})
