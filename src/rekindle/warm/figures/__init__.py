"""How sure figures are: rates with intervals, samples, groups, and claims that are put to the test."""
