"""Which passes of micro-batches a run has, and when: as text, as a picture, and how long ranks are idle."""
