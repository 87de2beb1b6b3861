"""Names of kernels that traces, devices and descriptions of software share."""

ATTENTION_KERNELS = ("flash-1", "flash-2", "flash-3", "cudnn")
DECODE_ATTENTION, LATENT_ATTENTION = FEW_QUERIES = ("decode_attention", "latent_attention")  # kinds
FP8_CACHE = "fp8-cache"  # of attention: cached keys and values have 8 bits
FULL_SUMS = "full-sums"  # of a product: sums are kept in fp32 throughout
STRIDED = "strided"  # of an element-wise operation: it computes the place of every number
