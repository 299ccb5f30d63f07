"""Finds the conversation that a message belongs to, and when it is reset.

Pure: no files, no clock (`now` is passed in), no randomness. Only time zones are looked up, by name, in
the database that Python ships or finds.
"""
