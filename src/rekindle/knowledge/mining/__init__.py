"""The parts of mining: call signatures, slots, recoveries from errors, merging."""
