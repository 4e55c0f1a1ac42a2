"""The studio: a page in the browser to plan tables and release them, served to this machine alone (hdmm[studio])."""
