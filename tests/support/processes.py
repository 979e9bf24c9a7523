"""Scripts run by several processes that find each other, as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def run_processes(script: Path, *arguments: str, count: int = 2, timeout: int = 500) -> list[str]:
    """Run a script in ``count`` processes of one thread each; return what each one prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
    }
    runs = [
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        outputs = []
        for run in runs:
            output, errors = run.communicate(timeout=timeout)
            assert run.returncode == 0, errors[-3000:]
            outputs.append(output)
        return outputs
    finally:
        for run in runs:
            run.kill()
