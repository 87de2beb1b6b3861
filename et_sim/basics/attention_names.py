"""Names of kernels of attention, which shapes of traces, devices and descriptions of software share."""

ATTENTION_KERNELS = ("flash-1", "flash-2", "flash-3", "cudnn")
