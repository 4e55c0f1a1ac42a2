"""python -m hdmm: the command line."""

from hdmm.cli import main

if __name__ == "__main__":
    main()
