"""``python -m tallystick`` is the command ``tally``."""

import sys

from tallystick.cli import main

if __name__ == "__main__":
    sys.exit(main())
