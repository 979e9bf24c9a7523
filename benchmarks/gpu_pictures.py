"""Pictures of docs/gpu.md: the passes over blocks of keys, and the lanes of a row.

python benchmarks/gpu_pictures.py
"""

from pathlib import Path

import torch

from adasparse.kernels import reference

FOLDER = Path(__file__).parents[1] / "docs" / "gpu"
BLOCKS, SIZE = 16, 4
INK, PALE, EMPTY = "#3b6ea5", "#a9c3de", "#eeeeee"
STYLE = 'font-family="sans-serif" font-size="11" fill="#777"'


def example() -> torch.Tensor:
    """Scores of a causal head that looks nearby and at a few places: ``(n, n)``."""
    n = BLOCKS * SIZE
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(n, n, generator=generator, dtype=torch.float64) * 0.5
    i, j = torch.arange(n).unsqueeze(-1), torch.arange(n)
    scores = scores + 4 * torch.exp(-(((i - j) / 5.0) ** 2))
    scores[:, 2 * SIZE + 1] += 3.5
    scores[8 * SIZE :, 5 * SIZE] += 3.0
    return scores.masked_fill(j > i, -torch.inf)


def grid(x: int, title: str, colors: list[list[str]]) -> str:
    cell = 9
    paths: dict[str, str] = {}
    for row, line in enumerate(colors):
        for column, color in enumerate(line):
            at = f"M{x + column * cell} {20 + row * cell}"
            paths[color] = paths.get(color, "") + f"{at}h8v8h-8z"
    drawn = "".join(f'<path d="{path}" fill="{color}"/>' for color, path in paths.items())
    return f'<text x="{x}" y="12" {STYLE}>{title}</text>{drawn}'


def passes() -> str:
    alpha = torch.tensor(1.5, dtype=torch.float64)
    weights = reference.entmax_forward(example(), alpha)
    kept = weights.reshape(BLOCKS, SIZE, BLOCKS, SIZE).amax((1, 3)) > 0
    visible = torch.ones(BLOCKS, BLOCKS).tril().bool()
    dense = [[INK if x else EMPTY for x in row] for row in visible.tolist()]
    masked = [
        [INK if k else PALE if v else EMPTY for k, v in zip(*rows, strict=True)]
        for rows in zip(kept.tolist(), visible.tolist(), strict=True)
    ]
    turned = [list(column) for column in zip(*masked, strict=True)]
    titles = ["pass 1: all keys", "pass 2: all, for the mask", "output, dQ: kept", "dK, dV: kept"]
    panels = [
        grid(n * 160, title, colors)
        for n, (title, colors) in enumerate(
            zip(titles, (dense, dense, masked, turned), strict=True)
        )
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 630 170">{"".join(panels)}</svg>\n'
    )


def lanes() -> str:
    """Scores of one row in lanes, with the two greatest of each marked."""
    count, length = 16, 128
    row = torch.randn(length, generator=torch.Generator().manual_seed(5)).exp()
    row = row / row.max()
    parts = [f'<text x="0" y="12" {STYLE}>scores of a row, 16 lanes of 8 keys</text>']
    table = row.reshape(-1, count)
    top = table.topk(2, 0).indices
    for tile in range(length // count):
        for lane in range(count):
            height = 4 + 26 * table[tile, lane].item()
            color = INK if tile in top[:, lane].tolist() else PALE
            x, y = lane * 38 + tile * 4, 50 - height
            parts.append(
                f'<rect x="{x}" y="{y:.1f}" width="3" height="{height:.1f}" fill="{color}"/>'
            )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 610 54">{"".join(parts)}</svg>\n'


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "passes.svg").write_text(passes())
    (FOLDER / "lanes.svg").write_text(lanes())


if __name__ == "__main__":
    main()
