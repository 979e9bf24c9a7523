"""Translation with adaptively sparse attention: from text files to BLEU."""

from importlib.util import find_spec

for _name in ("sacrebleu", "tokenizers", "transformers"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            f"adasparse.translation needs {_name}: pip install 'adasparse[translation]'.",
            name=_name,
        )
