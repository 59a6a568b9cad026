"""`python -m unistack_aot`: the command line."""

import sys

from unistack_aot.cli.main import main

sys.exit(main())
