"""The training engine: what every kind of model here is trained by, on the Trainer of transformers.

Recipes, batches by tokens, checkpoints that can be trusted, logs and progress. The layers above say
what the model and the data are.
"""

try:
    import transformers as _transformers  # noqa: F401  # only to tell what is missing
    import yaml as _yaml  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"adasparse.training needs {error.name}: pip install 'adasparse[translation]'.",
        name=error.name,
    ) from error

from adasparse.training.batches import RunningNumbers, TokenBatches
from adasparse.training.checkpoints import (
    average_checkpoints,
    checkpoints,
    is_intact,
    latest_intact,
)
from adasparse.training.folder import check_folder, prepare_folder
from adasparse.training.monitor import BestModel, TrainingLog, read_log
from adasparse.training.processes import first_decides
from adasparse.training.progress import ProgressBar, alpha_picture
from adasparse.training.recipe import check_recipe, read_recipe, write_recipe
from adasparse.training.run import run_training
from adasparse.training.session import recipe_arguments, train_session
from adasparse.training.trainer import EngineMixin, Scorer, TrainingStopped, training_arguments

__all__ = [
    "BestModel",
    "EngineMixin",
    "ProgressBar",
    "RunningNumbers",
    "Scorer",
    "TokenBatches",
    "TrainingLog",
    "TrainingStopped",
    "alpha_picture",
    "average_checkpoints",
    "check_folder",
    "check_recipe",
    "checkpoints",
    "first_decides",
    "is_intact",
    "latest_intact",
    "prepare_folder",
    "read_log",
    "read_recipe",
    "recipe_arguments",
    "run_training",
    "train_session",
    "training_arguments",
    "write_recipe",
]
