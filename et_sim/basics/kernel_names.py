"""Names of kernels that traces, devices and descriptions of software share."""

ATTENTION_KERNELS = ("flash-1", "flash-2", "flash-3", "cudnn")
DECODE_ATTENTION, LATENT_ATTENTION = FEW_QUERIES = ("decode_attention", "latent_attention")  # kinds
GEMM_BLOCKS = "gemm_blocks"  # a kind
GROUPED_BLOCKS, GROUPED_NARROW = "grouped_gemm_blocks", "grouped_gemm_narrow"  # kinds
OWN_KINDS = (*FEW_QUERIES, GEMM_BLOCKS, GROUPED_BLOCKS, GROUPED_NARROW)  # a device may have constants of them
BLOCK_SCALES = "block-scales"  # of a product: its numbers have scales of blocks
NARROW_WEIGHTS = "narrow-weights"  # of a product: weights have fewer bits than it computes in
FP8_CACHE = "fp8-cache"  # of attention: cached keys and values have 8 bits
FULL_SUMS = "full-sums"  # of a product: sums are kept in fp32 throughout
STRIDED = "strided"  # of an element-wise operation: it computes the place of every number
