"""Golden files: numbers and outputs recorded before the code was reorganised. See README.md in this folder."""
