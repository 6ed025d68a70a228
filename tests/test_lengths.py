import heapq
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import optimize, stats

from sweep.model.distributions import Distribution
from sweep.model.lengths import integer_lengths, lab_lengths, look_up, look_up_of, moments

GOLDEN = Path(__file__).parent / "golden"
ADAPTER = TypeAdapter(Distribution)
WORDS = 2**32

FAMILIES = {
    "constant": {"value": 100},
    "uniform": {"low": 3, "high": 199},
    "empirical": {"values": [5, 300, 5, 20], "weights": [1, 0.5, 2, 3]},
    "geometric": {"mean": 100},
    "exponential": {"mean": 100},
    "lognormal": {"mean": 100, "cv": 1.5},
    "gamma": {"mean": 100, "cv": 0.7},
    "weibull": {"mean": 100, "cv": 2.5},
    "pareto": {"mean": 100, "cv": 1.2},
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def spec_of(distribution, **parameters):
    return ADAPTER.validate_python({"distribution": distribution, **parameters})


def exact(distribution, **parameters):
    return integer_lengths(spec_of(distribution, **parameters))


def fault_of(distribution, **parameters):
    with pytest.raises(ValidationError) as caught:
        spec_of(distribution, **parameters)
    (fault,) = caught.value.errors()
    return fault


def cdf_at(lengths, tokens):
    return np.concatenate([[0.0], lengths.cdf])[np.searchsorted(lengths.values, tokens, side="right")]


def textbook(distribution, mean, cv):
    """The same continuous distribution by scipy.stats, its parameters from its own moments."""
    if distribution == "exponential":
        return stats.expon(scale=mean)
    if distribution == "lognormal":
        return stats.lognorm(s=math.sqrt(math.log(1 + cv**2)), scale=mean / math.sqrt(1 + cv**2))
    if distribution == "gamma":
        return stats.gamma(a=1 / cv**2, scale=mean * cv**2)
    if distribution == "pareto":
        alpha = 1 + math.sqrt(1 + 1 / cv**2)
        return stats.pareto(b=alpha, scale=mean * (alpha - 1) / alpha)

    def distance(log_shape):
        unit = stats.weibull_min(c=math.exp(log_shape))
        return math.log(unit.std() / unit.mean() / cv)

    shape = math.exp(optimize.brentq(distance, math.log(0.1), math.log(200), xtol=1e-14))
    return stats.weibull_min(c=shape, scale=mean / stats.weibull_min(c=shape).mean())


CONTINUOUS = [("exponential", 100.0, 1.0)] + [
    (distribution, mean, cv)
    for distribution in ("lognormal", "gamma", "weibull", "pareto")
    for mean, cv in ((100.0, 0.01), (100.0, 0.25), (100.0, 1.0), (30.0, 4.0), (2000.0, 2.0), (50.0, 20.0))
]


@pytest.mark.parametrize(("distribution", "mean", "cv"), CONTINUOUS)
def test_moments_equal_sums_over_the_survival_function(distribution, mean, cv):
    reference = textbook(distribution, mean, cv)
    assert reference.mean() == pytest.approx(mean)
    assert reference.std() / reference.mean() == pytest.approx(cv)
    parameters = {"mean": mean} if distribution == "exponential" else {"mean": mean, "cv": cv}
    lengths = exact(distribution, **parameters)
    below_cap = np.arange(4096)
    longer = reference.sf(below_cap)  # of min(ceil X, 4096): P(L > k) = P(X > k) for k below 4096
    first, second = longer.sum(), ((2 * below_cap + 1) * longer).sum()
    assert moments(lengths).mean == pytest.approx(first, rel=1e-10)
    assert moments(lengths).cv == pytest.approx(math.sqrt(second / first**2 - 1), rel=1e-8)
    assert lengths.at_cap == pytest.approx(reference.sf(4096), rel=1e-8)
    np.testing.assert_allclose(cdf_at(lengths, below_cap[1:]), reference.cdf(below_cap[1:]), rtol=1e-9, atol=1e-300)


NARROW = [(family, cv) for family in ("lognormal", "gamma", "weibull", "pareto") for cv in (0.01, 0.03, 0.1)]


@pytest.mark.parametrize(("family", "cv"), [*NARROW, ("lognormal", 0.3), ("gamma", 0.3), ("weibull", 0.3)])
def test_rounding_up_adds_half_a_token_to_a_long_mean_and_nothing_to_its_deviation(family, cv):
    whole = moments(exact(family, mean=20_000, cv=cv, max_tokens=2**20))
    assert whole.mean == pytest.approx(20_000.5, rel=1e-7)
    assert whole.cv == pytest.approx(cv, rel=1e-4)


def test_a_geometric_length_has_the_mean_and_cv_of_trials_until_the_first_success():
    p = 1 / 100
    realised = moments(exact("geometric", mean=100, max_tokens=2**20))
    assert realised.mean == pytest.approx(1 / p, rel=1e-12)
    assert realised.cv == pytest.approx(math.sqrt(1 - p), rel=1e-12)
    assert exact("geometric", mean=1).values.tolist() == [1]


def test_discrete_families_have_the_moments_of_their_lists():
    uniform = moments(exact("uniform", low=8, high=40))
    assert uniform.mean == pytest.approx(np.mean(np.arange(8, 41)))
    assert uniform.cv == pytest.approx(np.std(np.arange(8, 41)) / 24)
    assert moments(exact("constant", value=7)) == (7, 0)
    listed = [5] * 6 + [300] + [20] * 6
    empirical = moments(exact("empirical", **FAMILIES["empirical"]))
    assert empirical.mean == pytest.approx(np.mean(listed))
    assert empirical.cv == pytest.approx(np.std(listed) / np.mean(listed))


def test_the_cv_of_lengths_that_are_all_0_is_undefined():
    realised = moments(exact("constant", value=0))
    assert realised.mean == 0
    assert math.isnan(realised.cv)


def test_exponential_128_has_mean_28_4_clipped_at_32_and_15_8_redrawn_above_32():
    steps = [math.exp(-k / 128) for k in range(33)]  # P(X > k)
    clipped = math.fsum(steps[:32])
    redrawn = math.fsum(k * (steps[k - 1] - steps[k]) for k in range(1, 33)) / (1 - steps[32])
    assert (round(clipped, 1), round(redrawn, 1)) == (28.4, 15.8)
    assert moments(exact("exponential", mean=128, max_tokens=32)).mean == pytest.approx(clipped, rel=1e-12)
    again = exact("exponential", mean=128, max_tokens=32, beyond="redraw")
    assert moments(again).mean == pytest.approx(redrawn, rel=1e-12)
    assert again.at_cap == pytest.approx(steps[32], rel=1e-12)


def test_redrawing_keeps_its_shape_where_almost_everything_is_above_the_cap():
    redrawn = exact("exponential", mean=1e30, max_tokens=10, beyond="redraw")
    np.testing.assert_allclose(np.diff(redrawn.cdf, prepend=0), 0.1)  # the density is flat near 0
    assert redrawn.at_cap == 1


def test_a_far_cap_changes_nothing_and_costs_no_values():
    near = exact("gamma", mean=100, cv=0.5, max_tokens=4096)
    far = exact("gamma", mean=100, cv=0.5, max_tokens=2**24)
    np.testing.assert_array_equal(near.values, far.values)
    np.testing.assert_array_equal(near.cdf, far.cdf)


def test_a_tail_probability_below_the_precision_of_1_is_kept_in_at_cap():
    assert exact("exponential", mean=100).at_cap == pytest.approx(math.exp(-40.96), rel=1e-12)


def test_only_distributions_without_an_end_are_capped_at_4096_by_themselves():
    assert exact("exponential", mean=10_000).values[-1] == 4096
    assert exact("uniform", low=1, high=10_000).values[-1] == 10_000
    assert exact("uniform", low=1, high=10_000, max_tokens=100).at_cap == pytest.approx(0.99)
    long_part = {"weight": 0.5, "distribution": "constant", "value": 9000}
    endless = {"distribution": "exponential", "mean": 10}
    assert exact("mixture", parts=[long_part, endless]).values[-1] == 4096
    assert exact("mixture", parts=[long_part, endless | {"max_tokens": 50}]).values[-1] == 9000
    assert exact("mixture", max_tokens=9500, parts=[long_part, endless]).values[-1] == 9000


@pytest.mark.parametrize("cap", [4, 64, 150])
@every_family
def test_a_family_in_a_mixture_is_clipped_and_redrawn_with_the_whole(family, cap):
    part = {"weight": 0.3, "distribution": family, **FAMILIES[family]}
    parts = [part, {"distribution": "uniform", "low": 2, "high": 90}]
    alone = spec_of(family, **FAMILIES[family], max_tokens=2**24)
    tokens = np.arange(1, cap + 1)
    uncut = 0.3 * alone.cdf(tokens) + 0.7 * np.clip((tokens - 1) / 89, 0, 1)
    clipped = exact("mixture", parts=parts, max_tokens=cap)
    redrawn = exact("mixture", parts=parts, max_tokens=cap, beyond="redraw")
    np.testing.assert_allclose(cdf_at(clipped, tokens), [*uncut[:-1], 1], rtol=1e-12)
    np.testing.assert_allclose(cdf_at(redrawn, tokens), uncut / uncut[-1], rtol=1e-12)
    assert clipped.at_cap == pytest.approx(1 - uncut[-1], abs=1e-15)
    assert redrawn.at_cap == clipped.at_cap


@pytest.mark.parametrize("beyond", ["clip", "redraw"])
@every_family
def test_a_part_keeps_to_its_own_cap_inside_the_whole(family, beyond):
    part = {"distribution": family, **FAMILIES[family], "max_tokens": 110, "beyond": beyond}
    alone = integer_lengths(ADAPTER.validate_python(part))
    whole = exact("mixture", parts=[part | {"weight": 0.25}, {"distribution": "constant", "value": 500}])
    tokens = np.arange(1, 500)
    np.testing.assert_allclose(cdf_at(whole, tokens), 0.25 * cdf_at(alone, tokens), rtol=1e-12)
    assert whole.at_cap == pytest.approx(0.25 * alone.at_cap)


def test_a_part_obeys_the_tighter_of_its_own_cap_and_the_whole():
    part = {"weight": 0.5, "distribution": "uniform", "low": 1, "high": 100, "max_tokens": 80}
    whole = {"max_tokens": 50, "parts": [part, {"distribution": "constant", "value": 10}]}
    clipped = exact("mixture", **whole)
    assert cdf_at(clipped, [9, 10, 49, 50]) == pytest.approx([0.045, 0.55, 0.745, 1])
    assert clipped.at_cap == pytest.approx(0.25)
    part["beyond"] = "redraw"  # 1..80, all the same
    assert cdf_at(exact("mixture", **whole), [8, 10, 40, 49, 50]) == pytest.approx([0.05, 0.5625, 0.75, 0.80625, 1])


def test_the_last_weight_is_what_the_others_leave():
    parts = [{"weight": 0.3, "distribution": "constant", "value": 1}, {"distribution": "constant", "value": 2}]
    assert exact("mixture", parts=parts).cdf.tolist() == [0.3, 1]
    parts[0]["weight"] = 1
    assert exact("mixture", parts=parts).values.tolist() == [1]


def test_values_that_cannot_occur_are_left_out_and_equal_ones_are_merged():
    lengths = exact("empirical", values=[9, 2, 9, 0, 4], weights=[1, 1, 1, 1, 0])
    assert lengths.values.tolist() == [0, 2, 9]
    assert lengths.cdf.tolist() == [0.25, 0.5, 1]


@every_family
def test_exact_distributions_rise_to_exactly_1_and_cannot_be_written_to(family):
    lengths = exact(family, **FAMILIES[family])
    assert (np.diff(lengths.values) > 0).all()
    assert (np.diff(lengths.cdf, prepend=0) > 0).all()
    assert lengths.cdf[-1] == 1
    assert not lengths.values.flags.writeable
    assert not lengths.cdf.flags.writeable


def length_of(word, table):
    """The length of a word, found as a kernel finds it: from the guide on, one by one."""
    index = int(table.guide[word >> 16])
    while table.last_word[index] < word:
        index += 1
    return table.values[index]


def assert_inverse_cdf(lengths):
    table = look_up(lengths)
    edges = table.last_word.astype(np.int64)
    words = np.unique(np.concatenate([edges, edges[:-1] + 1, [0, WORDS - 1], np.arange(0, WORDS, 1 << 26)]))
    up_to = np.rint(lengths.cdf * WORDS)  # words that give at most this length
    expected = lengths.values[np.searchsorted(up_to, words, side="right")]
    assert [length_of(int(word), table) for word in words] == expected.tolist()
    assert table.last_word[-1] == WORDS - 1
    assert (table.values.dtype, table.last_word.dtype, table.guide.dtype) == (np.int64, np.uint32, np.uint32)
    assert table.guide.shape == (65536,)


@every_family
def test_look_up_is_the_inverse_cdf_at_every_boundary(family):
    assert_inverse_cdf(exact(family, **FAMILIES[family]))


weighted_values = st.lists(
    st.tuples(st.integers(0, 2**24), st.one_of(st.floats(0, 1), st.floats(1e-12, 1e-8))), min_size=1, max_size=40
).filter(lambda pairs: sum(weight for _, weight in pairs) > 0)


@given(weighted_values)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_look_up_is_the_inverse_cdf_of_any_weighted_list(pairs):
    values, weights = zip(*pairs, strict=True)
    assert_inverse_cdf(exact("empirical", values=values, weights=weights))


def test_the_share_of_words_of_a_length_is_its_probability_to_1_in_2_to_the_32():
    lengths = exact("lognormal", mean=100, cv=1)
    table = look_up(lengths)
    drawn = (table.last_word.astype(np.int64) + 1) / WORDS
    assert np.abs(drawn - cdf_at(lengths, table.values)).max() <= 0.5 / WORDS


@every_family
def test_a_larger_word_never_gives_a_shorter_length(family):
    table = look_up_of(spec_of(family, **FAMILIES[family]))
    assert (np.diff(table.values) > 0).all()
    assert (np.diff(table.last_word.astype(np.int64)) > 0).all()
    assert (np.diff(table.guide.astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("family", ["geometric", "exponential", "lognormal", "gamma", "weibull", "pareto"])
def test_the_same_word_gives_a_longer_request_under_a_longer_mean(family):
    shape = FAMILIES[family]
    short, long = (look_up_of(spec_of(family, **shape | {"mean": mean})) for mean in (100, 130))
    words = np.random.default_rng(5).integers(0, WORDS, 2000)
    shorter, longer = ([length_of(int(word), table) for word in words] for table in (short, long))
    assert (np.array(shorter) <= np.array(longer)).all()


def continuous_steps(lengths, slots):
    ends = [0] * slots
    for tokens in lengths:
        heapq.heapreplace(ends, ends[0] + int(tokens))
    return max(ends)


def test_lab_lengths_are_those_of_the_reference_lab():
    golden = json.loads((GOLDEN / "lab.json").read_text(encoding="utf-8"))
    rows = lab_lengths(0, 0, 5, 200)
    figures = [
        [sum(int(row[i : i + 16].max()) for i in range(0, 200, 16)), continuous_steps(row, 16), int(row.sum())]
        for row in rows
    ]
    assert figures == golden["other_seeds"]["first_five"]
    (famous,) = lab_lengths(30, 7, 1, 200)
    assert famous.sum() == golden["workload"]["output_tokens"]
    assert famous.max() == golden["workload"]["longest"]


def test_the_lab_has_the_moments_of_the_reference_mixture():
    golden = json.loads((GOLDEN / "monte_carlo.json").read_text(encoding="utf-8"))["reference-16"]
    assert moments(exact("lab")).mean == pytest.approx(golden["exact"]["mean_length"], rel=1e-12)
    reference = integer_lengths(ADAPTER.validate_python(golden["output"]))
    np.testing.assert_array_equal(exact("lab").values, reference.values)
    np.testing.assert_allclose(exact("lab").cdf, reference.cdf, rtol=1e-14)


@every_family
def test_a_distribution_is_hashed_pickled_and_written_as_plain_data(family):
    spec = spec_of(family, **FAMILIES[family])
    assert hash(spec) == hash(spec_of(family, **FAMILIES[family]))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert ADAPTER.validate_json(json.dumps(spec.model_dump(mode="json"))) == spec
    mixed = spec_of("mixture", parts=[{"distribution": family, **FAMILIES[family]}])
    assert pickle.loads(pickle.dumps(mixed)) == mixed
    assert ADAPTER.validate_json(json.dumps(mixed.model_dump(mode="json"))) == mixed


def test_every_parameter_has_a_description_and_the_name_of_the_family_is_required():
    for name, schema in ADAPTER.json_schema()["$defs"].items():
        assert schema["description"], name
        assert "distribution" in schema["required"], name
        for field, property_schema in schema["properties"].items():
            assert field == "distribution" or property_schema["description"], (name, field)


UNIFORM = {"distribution": "uniform", "low": 1, "high": 2}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"distribution": "uniform", "low": 40, "high": 8}, "low 40 is above high 8"),
        (
            {"distribution": "uniform", "low": 9, "high": 8, "beyond": "redraw", "max_tokens": 1},
            "low 9 is above high 8",
        ),
        (
            {"distribution": "uniform", "low": 8, "high": 9, "beyond": "redraw", "max_tokens": 7},
            'no length is at most max_tokens 7, so beyond = "redraw" would never end',
        ),
        ({**UNIFORM, "beyond": "redraw"}, 'beyond = "redraw" needs max_tokens here'),
        (
            {"distribution": "pareto", "mean": 9000, "cv": 1, "beyond": "redraw"},
            'no length is at most max_tokens 4096, so beyond = "redraw" would never end',
        ),
        (
            {"distribution": "mixture", "parts": [{"weight": 0.5, **UNIFORM}, {"weight": 0.4, **UNIFORM}]},
            "weights sum to 0.9, not 1",
        ),
        (
            {"distribution": "mixture", "parts": [{"weight": 0.7, **UNIFORM}, {"weight": 0.4, **UNIFORM}, UNIFORM]},
            "weights before the last sum to 1.1, above 1",
        ),
        (
            {"distribution": "mixture", "beyond": "redraw", "max_tokens": 5, "parts": [UNIFORM, UNIFORM]},
            "parts.0 has no weight; only the last part's may be left out",
        ),
        (
            {
                "distribution": "mixture",
                "beyond": "redraw",
                "max_tokens": 5,
                "parts": [{"weight": 0, **UNIFORM}, {"distribution": "constant", "value": 6}],
            },
            'no length is at most max_tokens 5, so beyond = "redraw" would never end',
        ),
        (
            {"distribution": "mixture", "parts": [{"distribution": "exponential", "mean": 5, "beyond": "redraw"}]},
            'beyond = "redraw" needs max_tokens here',
        ),
        ({"distribution": "empirical", "values": [1, 2], "weights": [1]}, "1 weights for 2 values"),
        (
            {"distribution": "empirical", "values": [1, 2], "weights": [0, 0]},
            "weights sum to 0; the sum must be above 0 and finite",
        ),
        (
            {"distribution": "empirical", "values": [1, 2], "weights": [1e308, 1e308]},
            "weights sum to inf; the sum must be above 0 and finite",
        ),
        (
            {"distribution": "gamma", "mean": 100, "cv": 1e-4},
            'cv 0.0001 is below 0.001; for equal lengths use distribution = "constant"',
        ),
    ],
)
def test_parameters_that_do_not_go_together_are_refused_in_words(table, message):
    assert fault_of(**table)["msg"] == f"Value error, {message}"


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ({"distribution": "uniform", "low": True, "high": 8}, "int_type"),
        ({"distribution": "uniform", "low": 1, "high": 8.0}, "int_type"),
        ({"distribution": "uniform", "low": -1, "high": 8}, "greater_than_equal"),
        ({"distribution": "uniform", "low": 1, "high": 2**24 + 1}, "less_than_equal"),
        ({"distribution": "constant", "value": "8"}, "int_type"),
        ({"distribution": "constant", "value": 8, "max_tokens": 0}, "greater_than_equal"),
        ({"distribution": "constant", "value": 8, "valu": 8}, "extra_forbidden"),
        ({"distribution": "constant"}, "missing"),
        ({"distribution": "geometric", "mean": 0.9}, "greater_than_equal"),
        ({"distribution": "exponential", "mean": True}, "float_type"),
        ({"distribution": "exponential", "mean": "100"}, "float_type"),
        ({"distribution": "exponential", "mean": math.nan}, "finite_number"),
        ({"distribution": "exponential", "mean": math.inf}, "finite_number"),
        ({"distribution": "exponential", "mean": 0}, "greater_than"),
        ({"distribution": "exponential", "mean": 1, "beyond": "drop"}, "literal_error"),
        ({"distribution": "lognormal", "mean": 100, "cv": -1}, "greater_than"),
        ({"distribution": "weibull", "mean": 100, "cv": 1001}, "less_than_equal"),
        ({"distribution": "empirical", "values": []}, "value_error"),
        ({"distribution": "empirical", "values": [1, True]}, "int_type"),
        ({"distribution": "empirical", "values": [1], "weights": [-1]}, "greater_than_equal"),
        ({"distribution": "mixture", "parts": []}, "value_error"),
        ({"distribution": "mixture", "parts": [{"weight": 1.1, **UNIFORM}]}, "less_than_equal"),
        ({"distribution": "normal", "mean": 100}, "union_tag_invalid"),
        ({"distribution": "lab", "max_tokens": 5}, "extra_forbidden"),
    ],
)
def test_values_of_the_wrong_kind_or_size_are_refused(table, kind):
    assert fault_of(**table)["type"] == kind


@pytest.mark.parametrize("inner", [{"distribution": "mixture", "parts": [UNIFORM]}, {"distribution": "lab"}])
def test_mixtures_and_the_lab_are_no_parts_of_a_mixture(inner):
    with pytest.raises(ValidationError, match="does not match any of the expected tags"):
        spec_of("mixture", parts=[inner, UNIFORM])


@pytest.mark.parametrize("mean", [5e-324, 1e-3, 1e300])
@pytest.mark.parametrize("cv", [1e-3, 1, 1000])
@pytest.mark.parametrize("family", ["lognormal", "gamma", "weibull", "pareto"])
def test_the_farthest_parameters_still_give_a_distribution(family, mean, cv):
    lengths = exact(family, mean=mean, cv=cv)
    assert lengths.cdf[-1] == 1
    assert 1 <= lengths.values[0] <= lengths.values[-1] <= 4096
    assert 0 <= lengths.at_cap <= 1
