"""Cases of the attention benchmark, each with the bar it should reach."""

from adasparse.bench.calls import ADASPLASH, PACKAGE
from adasparse.bench.case import Case
from adasparse.bench.gemm import GemmCase
from adasparse.bench.memory import MemoryCase
from adasparse.bench.timed_case import TimedCase

CASES: tuple[Case, ...] = (
    TimedCase(name="n64", batch=8, length=64, bars=(1.5, 0.8)),
    TimedCase(name="n512", length=512, bars=(3.5, 1.6)),
    TimedCase(name="n2048", length=2048, bars=(7.0, 2.8)),
    TimedCase(name="n4096", length=4096, bars=(9.0, 3.5)),
    TimedCase(name="n8192", length=8192, bars=(11.0, 4.0)),
    TimedCase(name="causal", title="α = 1.5, causal", length=4096, is_causal=True, bars=(8.0, 3.2)),
    TimedCase(name="wide", length=4096, head_dim=128, bars=(9.0, 3.5)),
    *(
        TimedCase(
            name=f"bfloat16-n{length}",
            title="α = 1.5, bfloat16",
            length=length,
            dtype="bfloat16",
            bars=bars,
        )
        for length, bars in ((512, (1.5, 1.0)), (2048, (4.0, 2.0)), (4096, (6.0, 2.5)))
    ),
    TimedCase(
        name="translation",
        title="α = 1.5, translation",
        batch=128,
        length=24,
        head_dim=32,
        is_padded=True,
        dropout_p=0.1,
        bars=(1.2, 0.8),
    ),
    *(
        TimedCase(
            name=f"learned-n{length}",
            title="learned α per head",
            batch=batch,
            length=length,
            alpha=None,
            bars=bars,
        )
        for batch, length, bars in (
            (8, 64, (1.0, 0.6)),
            (1, 512, (1.7, 1.1)),
            (1, 2048, (2.3, 1.5)),
            (1, 4096, (2.8, 1.8)),
        )
    ),
    TimedCase(name="softmax", title="α = 1", length=2048, alpha=1.0, bars=(0.8, 0.7)),
    TimedCase(name="package", length=2048, baseline=PACKAGE, bars=(60.0, 60.0)),
    MemoryCase(name="memory", shape=(1, 8, 16384, 64), bar=1.0),
    GemmCase(name="gemm", shape=(1, 8, 4096, 64), size=2048, bar=0.65),
)

#: Larger sizes, in half precision unless another dtype is asked for, and no bars: no one has
#: measured these kernels on a GPU yet. The baseline takes FlashAttention where PyTorch has it.
GPU_CASES: tuple[Case, ...] = (
    *(
        TimedCase(
            name=f"{name}-n{length}",
            title=title,
            batch=max(1, 32768 // length),
            num_heads=16,
            length=length,
            alpha=alpha,
            is_causal=is_causal,
        )
        for name, title, alpha, is_causal in (
            ("gpu", "α = 1.5", 1.5, False),
            ("gpu-causal", "α = 1.5, causal", 1.5, True),
            ("gpu-learned", "learned α per head", None, False),
        )
        for length in (1024, 4096, 16384, 65536)
    ),
    TimedCase(name="gpu-d128", batch=8, num_heads=16, length=4096, head_dim=128),
    TimedCase(name="gpu-sparsemax", title="α = 2", batch=8, num_heads=16, length=4096, alpha=2.0),
    TimedCase(name="gpu-softmax", title="α = 1", batch=8, num_heads=16, length=4096, alpha=1.0),
    TimedCase(
        name="gpu-translation",
        title="α = 1.5, translation",
        batch=1024,
        length=24,
        head_dim=32,
        is_padded=True,
        dropout_p=0.1,
    ),
    *(
        TimedCase(
            name=f"gpu-adasplash-n{length}",
            batch=max(1, 32768 // length),
            num_heads=16,
            length=length,
            baseline=ADASPLASH,
        )
        for length in (1024, 4096, 16384)
    ),
    MemoryCase(name="gpu-memory", shape=(1, 16, 65536, 64)),
)
