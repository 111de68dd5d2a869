"""Generate, tune and serve single-launch CUDA kernels for block-FP8 mixture-of-experts decode."""

__version__ = "0.1.0"
