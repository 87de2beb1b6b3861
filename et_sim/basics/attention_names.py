"""Names of attention kernels, shared by shapes of traces, devices and descriptions of software."""

ATTENTION_KERNELS = ("flash-1", "flash-2", "flash-3", "cudnn")
