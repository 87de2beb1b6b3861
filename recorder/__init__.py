"""Recording of distributed PyTorch programs without their devices: `et-record` runs one rank of each role.

The modules of this package need no PyTorch; those of `recorder.process`, which run beside the user's program,
do. `et_sim` never imports either.
"""
