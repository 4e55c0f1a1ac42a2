"""What people start: the command line, the studio, new specifications, the demo.

`cli` parses, calls and prints; `studio` serves a page to this machine alone; `scaffold` writes a specification to
start from; `demo` makes up persons and runs a release of them; `facts` is what programs get, as JSON.
"""
