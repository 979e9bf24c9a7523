"""``adasparse doctor``: the installation, the backends in use, and a check of their results."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

WRONG, ABSENT = "WRONG RESULTS", "absent"


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show versions, CPU, backends and extras, and check the results; exit code 1 if wrong."""
    import torch

    from adasparse import diagnostics

    report: dict[str, Any] = {
        "versions": diagnostics.versions(),
        "cpu": diagnostics.processor(),
        "kernels": diagnostics.kernels(),
        "backends": diagnostics.backends(),
        "accelerators": diagnostics.accelerators(),
        "threads": torch.get_num_threads(),
        "extras": diagnostics.extras(),
        "self_check": diagnostics.self_check(),
    }
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)
    if not report["self_check"]["ok"]:
        raise typer.Exit(1)


def _show(report: dict[str, Any]) -> None:
    table = Table.grid(padding=(0, 2))
    for section, lines in _lines(report).items():
        table.add_row(f"[bold]{section}[/]")
        for name, value in lines.items():
            style = "red" if value.startswith(WRONG) else "dim" if value == ABSENT else ""
            table.add_row(f"  {name}", Text(value, style=style))
    Console(highlight=False).print(table)


def _threads(kernels: dict[str, Any]) -> str:
    if not kernels["available"]:
        return "-"
    return "those of torch (OpenMP)" if kernels["openmp"] else "started for each call"


def _lines(report: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The report as sections of name and text."""
    cpu, kernels, check = report["cpu"], report["kernels"], report["self_check"]
    backends = report["backends"]
    return {
        "versions": report["versions"],
        "CPU": {
            "model": cpu["model"],
            "cores": str(cpu["cores"]),
            "features": " ".join(cpu["features"]) or "unknown",
            "torch uses": cpu["torch_capability"],
            "threads": str(report["threads"]),
        },
        "compiled kernels": {
            "present": "yes" if kernels["available"] else f"no: {kernels['missing_reason']}",
            "instruction set": kernels["isa"] or "-",
            "available": " ".join(kernels["isas"]) or "-",
            "ADASPARSE_ISA": kernels["isa_override"] or "not set",
            "threads": _threads(kernels),
        },
        "backends": {
            "CPU tensors": f"{backends['cpu']['backend']} ({backends['cpu']['reason']})",
            "GPU tensors": f"{backends['cuda']['backend']} ({backends['cuda']['reason']})",
            "other devices": f"{backends['other']['backend']} ({backends['other']['reason']})",
            "devices": ", ".join(["cpu", *report["accelerators"]]),
        },
        "extras": {name: found or ABSENT for name, found in report["extras"].items()},
        "self check": {
            "result": "fine" if check["ok"] else f"{WRONG}: reinstall adasparse, or report this",
            "largest error": f"weights {check['weight_error']:.1e}, "
            f"gradients {check['gradient_error']:.1e} (relative)",
            "at alpha": ", ".join(f"{alpha:g}" for alpha in check["alphas"]),
        },
    }
