"""A specification to start from: by questions, from a data dictionary, a schema or a catalogue, never from rows."""
