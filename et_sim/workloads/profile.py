"""The profile that workloads made here are simulated in, where no machine names another."""

PROFILE = "corrected"  # what is made here has no results of the reference to repeat
