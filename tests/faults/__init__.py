"""Faults put into a release: every call that changes the disk is where a process may be killed, stopped or refused."""
