"""Figures of what heads do, each with the numbers that it shows."""

from adasparse.analysis.draw.dispersion import dispersion_by_length
from adasparse.analysis.draw.heads import HeadPicture, head_pictures, positional_confidence
from adasparse.analysis.draw.lengths import accuracy_by_length
from adasparse.analysis.draw.statistics import (
    AlphaHistory,
    alpha_histogram,
    alpha_trajectories,
    density_histogram,
    head_density,
    head_diversity,
)
from adasparse.analysis.draw.style import NumberedFigure, render, save_figure

__all__ = [
    "AlphaHistory",
    "HeadPicture",
    "NumberedFigure",
    "accuracy_by_length",
    "alpha_histogram",
    "alpha_trajectories",
    "density_histogram",
    "dispersion_by_length",
    "head_density",
    "head_diversity",
    "head_pictures",
    "positional_confidence",
    "render",
    "save_figure",
]
