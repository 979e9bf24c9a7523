"""Model cards of long-context models."""

from adasparse.longcontext.recipe import LanguageRecipe, LongContextRecipe, TaskRecipe
from adasparse.training import Results

_SETTINGS = (
    *("attention", "positions", "alpha", "layers", "width", "heads", "ffn", "dropout"),
    *("max_steps", "batch_size", "accumulate", "optimizer", "learning_rate"),
    *("alpha_lr_factor", "warmup_steps", "schedule", "seed"),
)


def task_card(recipe: TaskRecipe, results: Results) -> str:
    """Return the text of ``README.md``: task, settings and scores."""
    scores = results["candidates"][results["model"]]
    low, high = recipe.lengths
    rows = "\n".join(
        f"| {length} | {scores[f'exact_match_{length}']:.1%} "
        f"| {scores[f'token_accuracy_{length}']:.1%} |"
        for length in recipe.dev_lengths
        if f"exact_match_{length}" in scores
    )
    return model_card(
        recipe,
        title=f"The task {recipe.task}",
        summary=f"trained with adasparse on the task {recipe.task} at lengths {low} to {high}",
        scores=f"| length | exact match | right tokens |\n| ---: | ---: | ---: |\n{rows}",
        note=f"{recipe.eval_examples} examples of each length, {results['model']} model, "
        f"after step {results['step']}.",
    )


def language_card(recipe: LanguageRecipe, results: Results) -> str:
    """Return the text of ``README.md``: settings and perplexity."""
    scores = results["candidates"][results["model"]]
    return model_card(
        recipe,
        title="A language model",
        summary=f"trained with adasparse on a text in examples of {recipe.context} tokens",
        scores=f"| loss | perplexity |\n| ---: | ---: |\n"
        f"| {scores['loss']:.4f} | {scores['perplexity']:.2f} |",
        note=f"On held-out text in windows of {recipe.context} tokens, {results['model']} model, "
        f"after step {results['step']}.",
    )


def model_card(
    recipe: LongContextRecipe, *, title: str, summary: str, scores: str, note: str
) -> str:
    """Return the text of ``README.md`` around a table of scores."""
    settings = "\n".join(f"| {name} | {getattr(recipe, name)} |" for name in _SETTINGS)
    return f"""---
library_name: transformers
tags: [adasparse, entmax, long-context]
---

# {title}

A decoder-only model with {recipe.attention} attention and {recipe.positions} positions, {summary}.

```python
import adasparse.longcontext
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("PATH")
```

## Scores on development data

{scores}

{note}

## Settings

| setting | value |
| --- | --- |
{settings}
"""
