import io
import json
import math
import sys
import tomllib

import numpy as np
import pytest
from rich.console import Console

from sweep import api, cli
from sweep.commands import fit_text, traffic
from sweep.errors import InputError
from sweep.model.counted import Counted, counted
from sweep.model.distributions import LognormalPart, Mixture
from sweep.model.fitting import _chances, _mixed, fits
from sweep.model.lengths import integer_lengths, look_up_of
from sweep.model.listed import Uniform
from sweep.model.lockstep import draw_lengths
from sweep.model.tails import Exponential, Gamma, Geometric, Lognormal, Pareto, Weibull
from sweep.study import parse_study

FAMILIES = [
    Geometric(mean=100),
    Lognormal(mean=100, cv=1.2),
    Gamma(mean=100, cv=0.6),
    Weibull(mean=100, cv=0.5),
    Pareto(mean=100, cv=1.5),
    Uniform(low=20, high=90),
]
TWO = Mixture(
    parts=(LognormalPart(weight=0.8, mean=20, cv=0.4), LognormalPart(mean=500, cv=0.3)),
    max_tokens=2000,
)
by_name = pytest.mark.parametrize("spec", FAMILIES, ids=lambda spec: spec.distribution)


def drawn(spec, requests=4000):
    return draw_lengths(look_up_of(spec), 1, 0, 1, requests)[0]


def write(path, tokens):
    path.write_text("prompt_tokens,output_tokens\n" + "".join(f"10,{length}\n" for length in tokens))
    return path


def answer(path, **given):
    asked = traffic.Asked(reading={}, **{"slots": [4, 16], **given})
    return fit_text.answer(str(path), asked, Console(file=io.StringIO()))


@by_name
def test_lengths_drawn_from_a_family_are_best_fitted_by_it_within_a_few_per_cent(spec):
    found = {fit.name: fit for fit in fits(counted(drawn(spec)))}
    own = found[spec.distribution]
    assert own.aic <= min(fit.aic for fit in found.values()) + 10  # a richer family may win by chance, not by much
    for key in {"mean", "cv", "low", "high"} & type(spec).model_fields.keys():
        assert getattr(own.spec, key) == pytest.approx(getattr(spec, key), rel=0.2 if key == "cv" else 0.06)


def test_lengths_of_two_kinds_are_fitted_by_two_lognormals_and_nothing_else_comes_near():
    best, second, *_ = fits(counted(drawn(TWO)))
    assert best.name == "two lognormals"
    assert second.aic > best.aic + 1000
    (weight, _), parts = best.spec.weights, best.spec.parts
    assert weight == pytest.approx(0.8, abs=0.03)
    assert [part.mean for part in parts] == [pytest.approx(20, rel=0.05), pytest.approx(500, rel=0.05)]


@pytest.mark.parametrize("spec", [*FAMILIES, TWO], ids=lambda spec: spec.distribution)
def test_the_chances_of_lengths_are_those_that_a_study_draws_by(spec):
    exact = integer_lengths(spec)
    seen = Counted(exact.values, np.ones(len(exact.values), np.int64))
    chances = _mixed(spec, seen) if isinstance(spec, Mixture) else _chances(spec, seen)
    assert chances == pytest.approx(np.diff(exact.cdf, prepend=0.0), rel=1e-6, abs=1e-12)
    assert math.fsum(chances) == pytest.approx(1)


def test_lengths_that_a_limit_cut_do_not_mislead():
    cut = np.minimum(drawn(Exponential(mean=100)), 150)
    best = {fit.name: fit for fit in fits(counted(cut))}["exponential"]
    assert best.spec.mean == pytest.approx(100, rel=0.06)  # their own mean is 78
    assert best.spec.max_tokens == 150


def test_the_best_family_comes_first():
    criteria = [fit.aic for fit in fits(counted(drawn(TWO, 500)))]
    assert criteria == sorted(criteria)


def test_equal_lengths_are_constant():
    (only,) = fits(counted(np.full(10, 7)))
    assert (only.name, only.spec.value, only.log_likelihood) == ("constant", 7, 0)


def test_lengths_of_0_are_refused():
    with pytest.raises(InputError, match="lengths of 0"):
        fits(counted(np.array([0, 1])))


def test_parameters_are_judged_as_they_are_printed():
    for fit in fits(counted(drawn(TWO, 300))):
        table = fit_text.table_of(fit)
        written = tomllib.loads(f"output = {fit_text._toml(table)}")["output"]
        document = {"workload": {"requests": 5, "output": written}, "server": {"slots": 1}}
        spec = parse_study(document, "fit").resolved[0].workload.output
        assert spec == fit.spec


def test_the_multiple_of_each_family_stands_beside_that_of_the_file(tmp_path):
    found = answer(write(tmp_path / "mine.csv", drawn(TWO, 1000)))
    assert list(found.multiples) == ["the file", *(fit.name for fit in found.fits)]
    assert found.multiples["two lognormals"] == pytest.approx(found.multiples["the file"], rel=0.05)
    said = fit_text.text(found)
    assert "gives the file's multiple within" in said
    assert 'output = { distribution = "mixture"' in said


def test_a_file_that_no_family_stands_for_is_said_to_be_one(tmp_path):
    rare = [10] * 300 + [200] * 30 + [3_000] * 3 + [50_000]
    assert "The best family is not the file" in fit_text.text(answer(write(tmp_path / "mine.csv", rare)))


def test_the_page_shows_quantiles_and_is_made_again_from_the_folder_alone(tmp_path):
    path = write(tmp_path / "mine.csv", drawn(TWO, 300))
    answer(path, folder=tmp_path / "page")
    path.unlink()
    page = tmp_path / "page" / "report.html"
    before = page.read_bytes()
    assert b"Best fit: two lognormals" in before
    api.read(tmp_path / "page").report()
    assert page.read_bytes() == before


def test_the_command_prints_json(tmp_path, monkeypatch, capsys):
    path = write(tmp_path / "mine.csv", drawn(TWO, 300))
    monkeypatch.setattr(sys, "argv", ["sweep", "fit", str(path), "--json", "--slots", "4"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["fits"][0]["output"]["distribution"] == "mixture"
    assert found["file"]["multiples"].keys() == {"4"}
