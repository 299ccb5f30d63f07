"""Which layer wins: platform and type, platform, type, default."""

from itertools import chain, combinations

from rekindle.routing.overrides import apply_overrides
from rekindle.types import Overridable, OverrideScope, ResetPolicy

# From the nearest to the farthest.
PLACES: tuple[OverrideScope, ...] = (("telegram", "group"), ("telegram", None), (None, "group"))


def test_of_any_set_of_layers_the_nearest_wins() -> None:
    subsets = chain.from_iterable(combinations(range(3), size) for size in range(4))
    for chosen in subsets:
        layers = Overridable(ResetPolicy(hour=20), {PLACES[n]: {"hour": n} for n in chosen})
        assert apply_overrides(layers, "telegram", "group").hour == min(chosen, default=20)


def test_each_field_comes_from_the_nearest_layer_that_sets_it() -> None:
    layers = Overridable(
        ResetPolicy("both", 1, 1, "UTC"),
        {
            (None, "group"): {"mode": "idle", "hour": 2, "idle_minutes": 2},
            ("telegram", None): {"hour": 3, "idle_minutes": 3},
            ("telegram", "group"): {"idle_minutes": 4},
        },
    )
    assert apply_overrides(layers, "telegram", "group") == ResetPolicy("idle", 4, 3, "UTC")
    assert apply_overrides(layers, "telegram", "dm") == ResetPolicy("both", 3, 3, "UTC")
    assert apply_overrides(layers, "slack", "group") == ResetPolicy("idle", 2, 2, "UTC")


def test_other_places_have_the_default_and_upper_case_makes_no_difference() -> None:
    layers = Overridable(ResetPolicy(), {place: {"hour": 9} for place in PLACES})
    assert apply_overrides(layers, "slack", "dm") == ResetPolicy()
    assert apply_overrides(layers, "Telegram", "dm").hour == 9
