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
    """Show versions, CPU, GPUs, backends and extras, and check the results; 1 if wrong.

    The check runs on the CPU and on each GPU.
    """
    import torch

    from adasparse import diagnostics

    report: dict[str, Any] = {
        "versions": diagnostics.versions(),
        "cpu": diagnostics.processor(),
        "kernels": diagnostics.kernels(),
        "backends": diagnostics.backends(),
        "accelerators": diagnostics.accelerators(),
        "gpus": diagnostics.gpus(),
        "triton": diagnostics.triton(),
        "threads": torch.get_num_threads(),
        "extras": diagnostics.extras(),
        "self_check": diagnostics.self_check(),
        "gpu_checks": diagnostics.gpu_checks(),
    }
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)
    if not all(check["ok"] for check in (report["self_check"], *report["gpu_checks"])):
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
            "int8 dot products": "yes" if kernels["int8"] else "no",
            "ADASPARSE_ISA": kernels["isa_override"] or "not set",
            "threads": _threads(kernels),
        },
        "GPUs": {
            "Triton": _triton_line(report["triton"]),
            **{gpu["device"]: _gpu_line(gpu) for gpu in report["gpus"]},
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
            **{f"{x['device']}, {x['backend']}": _gpu_check(x) for x in report["gpu_checks"]},
        },
    }


def _triton_line(found: dict[str, Any]) -> str:
    version = found["version"] or ABSENT
    if not found["available"]:
        return f"{version}: {found['missing_reason']}"
    return f"{version}, interpreted on the CPU" if found["interpreted"] else version


def _gpu_line(gpu: dict[str, Any]) -> str:
    return f"{gpu['name']}, {gpu['architecture']}, {gpu['memory_gib']} GiB, {gpu['runtime']}"


def _gpu_check(check: dict[str, Any]) -> str:
    if "error" in check:
        return f"{WRONG}: {check['error']}"
    errors = (
        f"weights {check['weight_error']:.1e}, gradients {check['gradient_error']:.1e}, "
        f"attention {check['attention_error']:.1e} and {check['attention_gradient_error']:.1e}"
    )
    return f"fine: {errors}" if check["ok"] else f"{WRONG}: {errors}"
