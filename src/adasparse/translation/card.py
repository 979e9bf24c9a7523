"""Model card of a translation model."""

from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.measure import current_alpha
from adasparse.training import Results
from adasparse.translation.data import PreparedData
from adasparse.translation.recipe import TranslationRecipe

_ATTENTION = {
    "softmax": "softmax attention",
    "entmax": "entmax attention, the same α in all heads",
    "adaptive": "adaptively sparse attention, one learned α per head",
}
_SETTINGS = (
    *("encoder_layers", "decoder_layers", "width", "heads", "ffn", "dropout", "label_smoothing"),
    *("max_steps", "batch_tokens", "accumulate", "optimizer", "learning_rate"),
    *("alpha_lr_factor", "warmup_steps", "seed"),
)


def model_card(
    model: PreTrainedModel, recipe: TranslationRecipe, data: PreparedData, results: Results
) -> str:
    """Return the text of ``README.md``: data, settings, scores and the alpha of every head."""
    source, target = data.source_lang, data.target_lang
    scores = results["candidates"][results["model"]]
    settings = "\n".join(f"| {name} | {getattr(recipe, name)} |" for name in _SETTINGS)
    counts = f"{len(data.train):,} sentence pairs to train on, {len(data.dev):,} for development"
    return f"""---
library_name: transformers
pipeline_tag: translation
tags: [adasparse, entmax, translation]
---

# Translation {source} → {target}

A Transformer with {_ATTENTION[recipe.attention]}, trained with adasparse from {counts}.

```python
import adasparse.integrations.huggingface
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```

## Scores on development data

| model | loss | BLEU | chrF |
| --- | ---: | ---: | ---: |
| {results["model"]} | {scores["loss"]:.4f} | {scores["bleu"]:.2f} | {scores["chrf"]:.2f} |

sacreBLEU on cased text, {recipe.eval_beam} beam(s), after step {results["step"]}.

## Settings

| setting | value |
| --- | --- |
| attention | {recipe.attention} |
{settings}
{_alpha_section(current_alpha(model))}"""


def _alpha_section(alpha: Mapping[str, Tensor]) -> str:
    if not alpha:
        return ""
    heads = max(len(values) for values in alpha.values())
    lines = [
        "",
        "## α by head",
        "",
        "| attention | " + " | ".join(f"head {i + 1}" for i in range(heads)) + " |",
        "| --- |" + " ---: |" * heads,
    ]
    for name, values in alpha.items():
        lines.append(f"| {name} | " + " | ".join(f"{x:.3f}" for x in values.tolist()) + " |")
    return "\n".join(lines) + "\n"
