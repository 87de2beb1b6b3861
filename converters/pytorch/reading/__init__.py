"""Reading the two recordings of a rank into columns, in memory that does not grow with the text of the files.

`identify(path)` says what a file is and of which rank, from its beginning; `read_host(path)` and
`read_device(path)` read it; `read_linked(path)` reads a file in which an older linker merged both ("ET+").

Not here: what the columns mean (`converters.pytorch.columns`).
"""

from converters.pytorch.reading.device import read_device

__all__ = ["read_device"]
