"""Names of kernels of attention and products, which traces, devices and descriptions of software share."""

ATTENTION_KERNELS = ("flash-1", "flash-2", "flash-3", "cudnn")
FULL_SUMS = "full-sums"  # of a product: sums are kept in fp32 throughout
