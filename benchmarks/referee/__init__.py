"""Figures of other methods, and proven optima, beside what hdmm.optimize reaches."""
