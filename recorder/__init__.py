"""Record a distributed PyTorch program without its devices: `et-record` runs it once for each role of rank.

The modules of this package need no PyTorch; those of `recorder.process`, which run beside the user's program,
do. `et_sim` never imports either.
"""
