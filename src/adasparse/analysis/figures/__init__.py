"""Figures of what heads do, each with the numbers that it shows."""

from adasparse.analysis.figures.alpha_and_density import (
    AlphaHistory,
    alpha_histogram,
    alpha_trajectories,
    density_histogram,
    head_density,
    head_diversity,
)
from adasparse.analysis.figures.dispersion import dispersion_by_length, write_dispersion
from adasparse.analysis.figures.heads import HeadPicture, head_pictures, positional_confidence
from adasparse.analysis.figures.lengths import accuracy_by_length
from adasparse.analysis.figures.style import NumberedFigure, render, save_figure

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
    "write_dispersion",
]
