"""What every room uses: errors, files that survive a crash, signals, numbers as they are written.

Nothing here knows of tables, privacy or data. `exceptions` has every error a user can meet; `durable` makes names on
disk survive a loss of power, and `signals` lets Ctrl-C wait while something that was paid for is finished. `rounding`
is arithmetic that rounds one way, and `tolerances` says what counts as rounding elsewhere. `numbers` decides which
digits of a number are shown, and writes them; `templates` fills documents, and `notebook` shows a value as one. `cores`
distributes work on arrays over threads, and `steps` shows how far long work is. Open `exceptions` first.
"""
