import sys

# `python -m` puts the working folder first: a json.py between somebody's clips would be imported and run.
if not sys.flags.safe_path:
    del sys.path[0]

from ctsan.cli import main

main()
