"""The warden, by the name that units of every release start."""

import sys

from moorage.root.warden.warden import main

if __name__ == "__main__":
    main(sys.argv[1:])
