"""Heads that do one thing are told so, with the number."""

import numpy as np
import pytest

from adasparse.analysis.measures.collect import measure_heads
from adasparse.analysis.measures.roles import head_roles, summarize
from adasparse.analysis.recording.layer_weights import LayerWeights
from adasparse.analysis.recording.storage import ModelHeader, RecordedSentence, Recording
from adasparse.analysis.tokens.reader import TokenRow

TEXT = ("Where", "blow", "ing", "rare", "wind", "?", "</s>")
WORDS = (0, 1, 1, 2, 3, 4, -1)
N = len(TEXT)


def rows():
    """One head for each role, as a matrix."""
    previous = np.eye(N, k=-1)
    previous[0, 0] = 1
    after = np.eye(N, k=1)
    after[-1, -1] = 1
    merging = np.eye(N)
    merging[[1, 2]] = merging[[2, 1]]
    uniform = np.full((N, N), 1 / N)
    question = np.full((N, N), 0.02)
    question[:, 3] = 1 - 6 * 0.02
    question[0] = np.eye(N)[5]
    column = [np.tile(np.eye(N)[j], (N, 1)) for j in (6, 5, 3)]
    return {
        "looks at the previous token": previous,
        "looks at the next token": after,
        "merges the pieces of words": merging,
        "looks at the token itself": np.eye(N),
        "finds the question mark": question,
        "looks at the end of the sentence": column[0],
        "looks at punctuation": column[1],
        "looks at rare words": column[2],
        "looks at everything alike": uniform,
    }


@pytest.fixture(scope="module")
def measures():
    matrices = np.stack(list(rows().values()))
    h = len(matrices)
    row, col = np.nonzero(matrices.reshape(h * N, N))
    layer = LayerWeights.from_entries(
        row=row,
        col=col,
        value=matrices.reshape(h * N, N)[row, col],
        visible=np.full(N, N),
        shape=(h, N, N),
    )
    sentences = []
    for i in range(8):
        ids = (1, 2, 3, 100 + i, 4, 5, 6)
        tokens = TokenRow(
            ids=ids, tokens=TEXT, text=TEXT, is_special=(False,) * 6 + (True,), words=WORDS
        )
        sentences.append(
            RecordedSentence(
                id=i, source_text="Where?", source=tokens, attention={"encoder": (layer,)}
            )
        )
    header = ModelHeader(
        name="made",
        kind="encoder",
        modules={"encoder": ("layer",)},
        alpha={"encoder": ((1.91, *(1.5,) * (h - 1)),)},
        attention="adaptive",
    )
    return measure_heads(Recording(header=header, sentences=sentences), resamples=20)


def test_each_head_has_its_role(measures):
    found = {}
    for role in head_roles(measures):
        found.setdefault(role.head, []).append(role.role.role)
    for head, expected in enumerate(rows()):
        assert expected in found[head], (expected, found[head])
    assert found[0] == ["looks at the previous token"]
    assert found[8] == ["looks at everything alike"]


def test_the_evidence_is_the_number(measures):
    first = head_roles(measures)[0]
    assert (first.layer, first.head, first.strength) == (0, 0, 1.0)
    assert first.role.evidence == "100.0% of its weight"


def test_the_summary_is_in_plain_words(measures):
    summary = summarize(measures)
    assert summary[0].startswith(
        "In the encoder, 1 layers of 9 heads, α lies between 1.50 and 1.91"
    )
    expected = (
        "Encoder layer 1, head 1 looks at the previous token, 100.0% of its weight, α = 1.91."
    )
    assert expected in summary
    few = summarize(measures, per_role=0)
    assert "1 more encoder head does so: 1.1." in few
