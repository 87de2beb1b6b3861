"""XPlane profiles of JAX and TensorFlow: planes of devices and of the host, and the HLO of the programs."""
