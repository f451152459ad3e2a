"""Runs the comparison: ``python -m outrider.loadtest.peers``."""

import sys

from outrider.loadtest.peers.compare import main

sys.exit(main())
