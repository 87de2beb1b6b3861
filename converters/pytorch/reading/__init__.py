"""Reading of the two recordings of a rank into columns, in memory independent of the size of the files.

`identify(path)` determines kind and rank of a file, mostly from its beginning; `read_host(path)` and
`read_device(path)` read it; `read_linked(path)` reads a file in which an older linker merged both ("ET+").
Each of the three takes `progress`, which receives the number of bytes of the file that have been read.
"""

from converters.pytorch.reading.execution_trace import read_host
from converters.pytorch.reading.files import Identity, identify, read_linked
from converters.pytorch.reading.kineto_timeline import read_device

__all__ = ["Identity", "identify", "read_device", "read_host", "read_linked"]
