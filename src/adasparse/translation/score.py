"""BLEU and chrF by sacreBLEU, with their signatures, and tests of differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

__all__ = ["METRICS", "TOKENIZERS", "Comparison", "Scorer", "Scores", "SystemResult", "score"]

#: Largest number of bootstrap resamples.
MOST_SAMPLES = 1_000_000
#: Metrics by name. The last counts pairs of words, too.
METRICS = ("bleu", "chrf", "chrf++")
#: Tokenizers of BLEU.
TOKENIZERS = tuple(sorted(BLEU.TOKENIZERS))


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one system.

    Args:
        values: Score of each metric, from 0 to 100.
        signatures: Signature of each metric: how it was computed.
        sentences: Number of sentences.
    """

    values: Mapping[str, float]
    signatures: Mapping[str, str]
    sentences: int

    @property
    def bleu(self) -> float:
        """The BLEU score."""
        return self.values["bleu"]

    @property
    def chrf(self) -> float:
        """The chrF score."""
        return self.values["chrf"]

    def to_dict(self) -> dict[str, Any]:
        """The scores by name, the signatures and the number of sentences."""
        return {
            **self.values,
            "signatures": dict(self.signatures),
            "sentences": self.sentences,
        }


@dataclass(frozen=True, kw_only=True)
class SystemResult:
    """One system and metric in a comparison.

    Args:
        score: On all sentences.
        mean: Over the resamples.
        ci: Half the width of the 95% confidence interval around the mean.
        p_value: Probability of so large a difference from the baseline by chance. ``None`` for the
            baseline itself; 1 of a system with the very same output.
    """

    score: float
    mean: float
    ci: float
    p_value: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Systems against a baseline by paired bootstrap resampling.

    Args:
        baseline: Name of the baseline.
        systems: Results by name of the system, the baseline first, and name of the metric.
        signatures: Signature of each metric: how it was computed and resampled.
    """

    baseline: str
    systems: Mapping[str, Mapping[str, SystemResult]]
    signatures: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries."""
        return {
            "baseline": self.baseline,
            "systems": {
                name: {metric: dict(vars(result)) for metric, result in results.items()}
                for name, results in self.systems.items()
            },
            "signatures": dict(self.signatures),
        }


class Scorer:
    """Scores any number of systems against the same references, which are analyzed once.

    Args:
        references: Sentences, or several references of each: a sequence of such sequences.
        metrics: Some of ``METRICS``.
        lowercase: Ignore case.
        tokenize: Tokenizer of BLEU, one of ``TOKENIZERS``; by default sacreBLEU's choice.

    Raises:
        ValueError: There are no references, of different numbers, or an unknown name.
    """

    def __init__(
        self,
        references: Sequence[str] | Sequence[Sequence[str]],
        *,
        metrics: Sequence[str] = ("bleu", "chrf"),
        lowercase: bool = False,
        tokenize: str | None = None,
    ) -> None:
        self._references = _as_documents(references)
        self.num_sentences = len(self._references[0])
        unknown = [name for name in metrics if name not in METRICS]
        if unknown or not metrics:
            raise ValueError(f"metrics must be some of {', '.join(METRICS)}; got {list(metrics)}.")
        if tokenize is not None and tokenize not in TOKENIZERS:
            raise ValueError(f"tokenize must be one of {', '.join(TOKENIZERS)}; got {tokenize!r}.")
        self._metrics = {name: self._build(name, lowercase, tokenize) for name in metrics}

    def _build(self, name: str, lowercase: bool, tokenize: str | None) -> Metric:
        if name != "bleu":
            word_order = 2 if name == "chrf++" else 0
            return CHRF(word_order=word_order, lowercase=lowercase, references=self._references)
        try:
            # force: text that looks tokenized is scored without a warning each time.
            return BLEU(
                lowercase=lowercase, tokenize=tokenize, force=True, references=self._references
            )
        except (ImportError, RuntimeError) as error:
            raise ValueError(f"tokenize={tokenize!r} needs another package: {error}") from error

    def __call__(self, hypotheses: Sequence[str]) -> Scores:
        """Scores of one system.

        Raises:
            ValueError: The number of sentences differs from that of the references.
        """
        self._check(hypotheses, "The hypotheses")
        values = {
            name: float(metric.corpus_score(hypotheses, None).score)
            for name, metric in self._metrics.items()
        }
        return Scores(
            values=values,
            signatures={name: str(self._metrics[name].get_signature()) for name in values},
            sentences=self.num_sentences,
        )

    def compare(self, systems: Mapping[str, Sequence[str]], *, samples: int = 1000) -> Comparison:
        """Systems against the first of them, by sacreBLEU's paired bootstrap test.

        The resamples are the same in every run; the environment variable ``SACREBLEU_SEED``
        changes them.

        Args:
            systems: At least two sets of hypotheses by name.
            samples: Number of resamples.

        Raises:
            ValueError: There are too few systems, sentences or samples, or too many samples.
        """
        if len(systems) < 2:
            raise ValueError(f"A comparison needs at least two systems; got {len(systems)}.")
        if not 1 <= samples <= MOST_SAMPLES:
            raise ValueError(f"samples must be from 1 to {MOST_SAMPLES:,}; got {samples}.")
        for name, hypotheses in systems.items():
            self._check(hypotheses, name)
        named = list(systems.items())
        baseline, expected = named[0]
        test = PairedTest(named, self._metrics, None, test_type="bs", n_samples=samples)
        signatures, table = test()
        columns = list(zip(self._metrics, signatures, strict=True))  # our name, sacreBLEU's name
        return Comparison(
            baseline=baseline,
            systems={
                system: {
                    name: _result(table[column][row], is_same=list(output) == list(expected))
                    for name, column in columns
                }
                for row, (system, output) in enumerate(named)
            },
            signatures={name: str(signatures[column]) for name, column in columns},
        )

    def _check(self, hypotheses: Sequence[str], name: str) -> None:
        if len(hypotheses) != self.num_sentences:
            raise ValueError(
                f"{name} must have as many sentences as the references, {self.num_sentences}; "
                f"got {len(hypotheses)}."
            )


def score(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    metrics: Sequence[str] = ("bleu", "chrf"),
    lowercase: bool = False,
    tokenize: str | None = None,
) -> Scores:
    """Scores of one system; the arguments are those of :class:`Scorer`.

    Example:
        >>> round(score(["the cat sat on a mat"], ["the cat sat on the mat"]).bleu, 1)
        53.7
    """
    scorer = Scorer(references, metrics=metrics, lowercase=lowercase, tokenize=tokenize)
    return scorer(hypotheses)


def _as_documents(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """One list per set of references, all of one length, with text in each line."""
    if isinstance(references, str):
        raise TypeError("references must be a sequence of sentences; got one string.")
    is_single = bool(references) and isinstance(references[0], str)
    documents: list[Any] = [list(each) for each in ([references] if is_single else references)]
    lengths = [len(document) for document in documents]
    if not documents or not lengths[0]:
        raise ValueError("At least one reference sentence is needed; got none.")
    if len(set(lengths)) > 1:
        raise ValueError(f"All references must have as many sentences; got {lengths}.")
    # sacreBLEU refuses a sentence without any reference; white space is one without words.
    return [[text or " " for text in document] for document in documents]


def _result(result: Any, *, is_same: bool) -> SystemResult:
    """Return sacreBLEU's result, but never a significant difference of nothing from nothing."""
    p_value = result.p_value
    if p_value is not None:
        p_value = 1.0 if is_same else float(p_value)
    return SystemResult(
        score=float(result.score),
        mean=float(result.mean),
        ci=float(result.ci),
        p_value=p_value,
    )
