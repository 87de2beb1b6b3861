"""From a step to months: failures, checkpoints and spares of a long job, drawn at random.

`job_file` reads the description, `step` simulates the step (with `copies` in memory and writes to `storage`
beside it), `arrivals` draws failures, `months` follows many months at once, and `figures` sums them up.
`formulas` holds closed forms.
"""
