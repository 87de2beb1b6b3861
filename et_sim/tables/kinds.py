"""What kinds of nodes in the timeline count as, when time is split: the one list that views go by."""

# Of types that are never modelled: they take what is recorded, as the host does.
OPAQUE_KINDS = ("storage", "batch", "checkpoint", "unknown")
MEMORY_KINDS = ("memory_load", "memory_store")
COPY = "copy"  # moves or fills memory of a device: no kernel
NOT_COMMUNICATION = ("compute", COPY, "host", "gap", *MEMORY_KINDS, "metadata", "invalid", *OPAQUE_KINDS)

# Key of the metadata of path.arrow and links.arrow: messages slowed each other, or computing.
SHARED_LINKS = "links-are-shared"

# Key of the metadata of resources.arrow: NPUs of each dimension of a grid, innermost first.
DIMENSION_SIZES = "npus-by-dimension"

CAPACITY = "capacity-bytes"  # key of the metadata of memory.arrow: what there is, where the machine says so
