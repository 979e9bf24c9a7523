"""Scores of translations with the statistics of each sentence."""

from typing import Any

from benchmarks.evidence.trainings import rounded
from sacrebleu.metrics import BLEU, CHRF


def score(hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """Return BLEU and chrF with their signatures, and for each sentence what BLEU adds up."""
    bleu, chrf, by_sentence = BLEU(), CHRF(), BLEU(effective_order=True)
    found = {"bleu": bleu.corpus_score(hypotheses, [references]).score}
    found["chrf"] = chrf.corpus_score(hypotheses, [references]).score
    each = [by_sentence.sentence_score(x, [y]) for x, y in zip(hypotheses, references, strict=True)]
    return {
        **rounded(found, 6),
        "signatures": {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())},
        "statistics": [[x.sys_len, x.ref_len, *x.counts, *x.totals] for x in each],
    }
