"""Attention that stays sharp in long contexts: models, tasks and measures.

Importing this package makes the Auto classes of transformers know the models.
"""

try:
    import transformers as _transformers  # noqa: F401  # only to tell what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "adasparse.longcontext needs transformers: pip install 'adasparse[longcontext]'.",
        name=error.name,
    ) from error

from adasparse._deprecated import moved_names
from adasparse.integrations.calls import AttentionCall, watching
from adasparse.longcontext.config import LongContextConfig
from adasparse.longcontext.length_scores import LengthScore, LengthScores, evaluate_lengths
from adasparse.longcontext.metrics import Correct, count_correct, wilson_interval
from adasparse.longcontext.model import LongContextForCausalLM, LongContextModel
from adasparse.longcontext.tasks import TASKS, Task, TaskBatch, find_task

__all__ = [
    "TASKS",
    "AttentionCall",
    "Correct",
    "LengthScore",
    "LengthScores",
    "LongContextConfig",
    "LongContextForCausalLM",
    "LongContextModel",
    "Task",
    "TaskBatch",
    "count_correct",
    "evaluate_lengths",
    "find_task",
    "watching",
    "wilson_interval",
]

__getattr__ = moved_names(__name__, {"Ladder": "adasparse.longcontext:LengthScores"})
