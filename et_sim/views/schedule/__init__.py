"""Which passes of micro-batches a run has, and when: as data, as text, and how long ranks are idle."""
