"""Which conversation a message belongs to, and when that starts anew.

Pure: no files, no clock (`now` is passed in), no randomness. Only the rules of time zones are looked
up, by name, in the database that Python brings or finds.
"""
