"""Which layer wins: platform and type, platform, type, default."""

from itertools import chain, combinations

from rekindle.routing.overrides import at
from rekindle.types import Layered, Place, Policy

# From the nearest to the farthest.
PLACES: tuple[Place, ...] = (("telegram", "group"), ("telegram", None), (None, "group"))


def test_of_any_set_of_layers_the_nearest_wins() -> None:
    subsets = chain.from_iterable(combinations(range(3), size) for size in range(4))
    for chosen in subsets:
        layers = Layered(Policy(hour=20), {PLACES[n]: {"hour": n} for n in chosen})
        assert at(layers, "telegram", "group").hour == min(chosen, default=20)


def test_each_field_comes_from_the_nearest_layer_that_sets_it() -> None:
    layers = Layered(
        Policy("both", 1, 1, "UTC"),
        {
            (None, "group"): {"mode": "idle", "hour": 2, "idle_minutes": 2},
            ("telegram", None): {"hour": 3, "idle_minutes": 3},
            ("telegram", "group"): {"idle_minutes": 4},
        },
    )
    assert at(layers, "telegram", "group") == Policy("idle", 4, 3, "UTC")
    assert at(layers, "telegram", "dm") == Policy("both", 3, 3, "UTC")
    assert at(layers, "slack", "group") == Policy("idle", 2, 2, "UTC")


def test_other_places_have_the_default_and_upper_case_makes_no_difference() -> None:
    layers = Layered(Policy(), {place: {"hour": 9} for place in PLACES})
    assert at(layers, "slack", "dm") == Policy()
    assert at(layers, "Telegram", "dm").hour == 9
