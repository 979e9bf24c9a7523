"""The training engine: one ``fit`` for every kind of model, on the Trainer of transformers.

Recipes, token batches, verified checkpoints, logs and progress. The layers above define jobs: the
model and its data.
"""

try:
    import transformers as _transformers  # noqa: F401  # only to tell what is missing
    import yaml as _yaml  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"adasparse.training needs {error.name}: "
        "pip install 'adasparse[translation]' or 'adasparse[longcontext]'.",
        name=error.name,
    ) from error

from adasparse.training.batches import RunningNumbers, TokenBatches
from adasparse.training.callbacks import BestModel, TrainingLog, read_log
from adasparse.training.checkpoints import (
    average_checkpoints,
    checkpoints,
    is_intact,
    latest_intact,
)
from adasparse.training.distributed import first_decides
from adasparse.training.dry_run import DryRun, dry_run
from adasparse.training.fit import fit
from adasparse.training.job import Rehearsal, TrainingJob
from adasparse.training.progress import ProgressBar, alpha_picture
from adasparse.training.recipe import TrainingRecipe
from adasparse.training.recipe_file import check_recipe, read_recipe, write_recipe
from adasparse.training.results import Results, read_results
from adasparse.training.trainer import EngineMixin, EngineTrainer, Scorer, TrainingStopped

__all__ = [
    "BestModel",
    "DryRun",
    "EngineMixin",
    "EngineTrainer",
    "ProgressBar",
    "Rehearsal",
    "Results",
    "RunningNumbers",
    "Scorer",
    "TokenBatches",
    "TrainingJob",
    "TrainingLog",
    "TrainingRecipe",
    "TrainingStopped",
    "alpha_picture",
    "average_checkpoints",
    "check_recipe",
    "checkpoints",
    "dry_run",
    "first_decides",
    "fit",
    "is_intact",
    "latest_intact",
    "read_log",
    "read_recipe",
    "read_results",
    "write_recipe",
]
