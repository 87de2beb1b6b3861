"""The entry point of `python -m recorder`."""

import sys

from recorder.cli import main

sys.exit(main())
