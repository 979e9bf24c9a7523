"""Sentences to analyze, read from prepared folders or text files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adasparse._files import TextFile
from adasparse.analysis.tokens.interrogatives import INTERROGATIVES, guess_language
from adasparse.translation.data import PreparedData

#: Characters of a sentence at most: more are hardly one sentence, and tokenizers may take hours.
MOST_CHARACTERS = 100_000


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """Sentences to analyze.

    Args:
        source: The sentences.
        target: Their translations; None if there are none.
        declared: Languages of ``"source"`` and ``"target"`` as far as the data says.
    """

    source: list[str]
    target: list[str] | None
    declared: Mapping[str, str | None]

    def languages(self, *, source: str | None, target: str | None) -> dict[str, str | None]:
        """Return the language of each side: as given, else as declared, else guessed.

        A declared language counts only if its interrogative words are known.
        """
        found: dict[str, str | None] = {}
        for side, given, texts in (
            ("source", source, self.source),
            ("target", target, self.target or []),
        ):
            declared = self.declared.get(side)
            known = declared if declared in INTERROGATIVES else guess_language(texts)
            found[side] = given or known
        return found


def read_sentences(data: Sequence[str | Path], max_sentences: int) -> Sentences:
    """Return the first sentences that are not empty, on both sides.

    Args:
        data: A prepared folder, whose dev set is used; a text file; or a text file and one with
            its translation. Text files may be gzipped.
        max_sentences: Number of sentences at most.

    Raises:
        ValueError: If files do not match, are no text, or have a line of more than 100,000
            characters among these sentences.
    """
    paths = [Path(path) for path in data]
    if not 1 <= len(paths) <= 2 or (len(paths) == 2 and any(path.is_dir() for path in paths)):
        raise ValueError(
            "data must be a prepared folder, a text file, or two text files; got "
            + ", ".join(map(str, paths))
        )
    declared: dict[str, str | None] = {}
    target: list[str] = []
    if paths[0].is_dir():
        prepared = PreparedData.open(paths[0])
        declared = {"source": prepared.source_lang, "target": prepared.target_lang}
        source, target = prepared.dev_source, prepared.dev_target
    else:
        source, *others = (list(TextFile(path).lines()) for path in paths)
        target = others[0] if others else []
    if target and len(target) != len(source):
        raise ValueError(
            f"Two text files must have as many lines; got {len(source)} in {paths[0]} and "
            f"{len(target)} in {paths[1]}."
        )
    kept = [
        i for i, text in enumerate(source) if text.strip() and (not target or target[i].strip())
    ][:max_sentences]
    if not kept:
        raise ValueError(f"There must be at least one sentence that is not empty in {paths[0]}.")
    for i in kept:
        longest = max(len(source[i]), len(target[i]) if target else 0)
        if longest > MOST_CHARACTERS:
            raise ValueError(
                f"A sentence may have {MOST_CHARACTERS:,} characters; line {i + 1} of "
                f"{' or '.join(map(str, paths))} has {longest:,}. Split it into sentences."
            )
    return Sentences(
        source=[source[i] for i in kept],
        target=[target[i] for i in kept] if target else None,
        declared=declared,
    )
