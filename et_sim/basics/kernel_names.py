"""Names of kernels that traces, devices and descriptions of software share."""

ATTENTION_KERNELS = ("flash-1", "flash-2", "flash-3", "cudnn")
FULL_SUMS = "full-sums"  # of a product: sums are kept in fp32 throughout
STRIDED = "strided"  # of an element-wise operation: it computes the place of every number
