"""A specification to start from: from a data dictionary, a schema or a catalogue, never from rows unasked."""
