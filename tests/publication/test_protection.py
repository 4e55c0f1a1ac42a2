"""What a release guarantees is stated in all ways that hold at once, rounded up, and not beyond what is known of it."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from hdmm import ZCDP, ApproxDP, Domain, GaussianDP, PureDP, Strategy, Unit
from hdmm.apps.cli import run
from hdmm.privacy.conversion import epsilon_up
from hdmm.privacy.gdp import gaussian_epsilon_up
from hdmm.privacy.guarantee import Privacy
from hdmm.publication.outlook import comparable
from hdmm.publication.protection import DELTAS, Protection, as_protective, best_guess, shown_guess, shown_up
from hdmm.publication.publish import publish
from hdmm.publication.report import Report, render
from hdmm.publication.spec import load_spec
from tests.support.spec_cases import SPEC, planned, prepared

ALARMS = np.linspace(0, 1, 41)


@pytest.mark.parametrize("privacy", [GaussianDP("0.5"), ZCDP("0.125")])
def test_gaussian_noise_has_its_exact_pairs(privacy: Privacy) -> None:
    found = Protection.of(privacy, gaussian=True)
    assert (found.mu, found.rho, found.pure) == (0.5, 0.125, None)
    assert found.guess == pytest.approx(norm.cdf(0.25), rel=1e-12)
    for delta, (epsilon, at) in zip(DELTAS, found.pairs, strict=True):
        exact = gaussian_epsilon_up(Fraction(1, 8), delta)
        assert Fraction(repr(epsilon)) >= exact  # as it is written
        assert (epsilon, at) == (pytest.approx(float(exact), rel=1e-15), float(delta))
    misses = [found.misses(each) for each in ALARMS.tolist()]
    np.testing.assert_allclose(misses, norm.cdf(norm.ppf(1 - ALARMS) - 0.5), atol=1e-12)


def test_discrete_noise_has_the_pairs_of_its_rho_and_no_curve() -> None:
    found = Protection.of(ZCDP("0.125"), gaussian=False)
    assert (found.mu, found.guess, found.rho) == (None, None, 0.125)
    assert [e for e, _ in found.pairs] == pytest.approx([float(epsilon_up(Fraction(1, 8), d)) for d in DELTAS])


@pytest.mark.parametrize("epsilon", ["1", "0.3", "0.7"])
def test_a_stated_pair_is_shown_as_it_is_stated(epsilon: str) -> None:
    assert (float(epsilon), 1e-6) in Protection.of(ApproxDP(epsilon, "1e-6"), gaussian=True).pairs


@pytest.mark.parametrize("amount", ["0.3", "0.7", "1.1", "0.05"])
def test_a_short_decimal_is_not_rounded_to_the_next(amount: str) -> None:
    """μ = 0.3 is not 0.301: floats stand for their shortest decimals, some of which are above them."""
    square = Fraction(amount) ** 2
    for privacy in (GaussianDP(amount), ZCDP(square / 2)):
        found = Protection.of(privacy, gaussian=True)
        assert found.mu == float(amount)
        assert Fraction(shown_up(float(amount))) == Fraction(amount)
    assert Protection.of(ZCDP(amount), gaussian=True).rho == float(amount)
    assert Protection.of(PureDP(amount), gaussian=False).pure == float(amount)


def test_the_curve_reaches_both_ends() -> None:
    found = Protection.of(GaussianDP(1), gaussian=True)
    assert [found.misses(each) for each in (0.0, 1e-300, 1e-17, 1.0)] == pytest.approx([1.0, 1.0, 1.0, 0.0])
    assert found.misses(1 - 2**-53) == pytest.approx(norm.cdf(norm.ppf(2**-53) - 1), rel=1e-6)


@pytest.mark.parametrize("privacy", [PureDP(1), GaussianDP("0.2"), ApproxDP(1, "1e-9"), GaussianDP("1e-60"), PureDP(9)])
def test_a_guess_is_right_at_most_as_often_as_is_shown(privacy: Privacy) -> None:
    mpmath.mp.dps = 100
    exact = (
        1 / (1 + mpmath.exp(-mpmath.mpf(str(privacy.epsilon))))
        if isinstance(privacy, PureDP)
        else mpmath.ncdf(mpmath.sqrt(mpmath.mpf(privacy.rho.numerator) / privacy.rho.denominator / 2))
    )
    shown = float(shown_guess(best_guess(privacy)).removesuffix("\xa0%")) / 100
    assert exact <= shown < exact + 0.0011


def test_pure_privacy_has_the_curve_of_two_lines() -> None:
    found = Protection.of(PureDP(1), gaussian=False)
    assert (found.pure, found.rho, found.pairs) == (1.0, 0.5, ())
    corner = 1 / (1 + math.e)
    assert found.misses(corner) == pytest.approx(corner)
    assert found.guess == pytest.approx(1 - corner, rel=1e-9)
    assert Protection.of(PureDP(10**5), gaussian=False).misses(0.5) == 0
    gaussian = Protection.of(GaussianDP(Fraction(found.mu or 0)), gaussian=True)
    assert all(found.misses(each) >= gaussian.misses(each) - 1e-12 for each in ALARMS.tolist())


@pytest.mark.parametrize("privacy", [PureDP("0.01"), PureDP(1), PureDP(30), GaussianDP("1e-9"), GaussianDP(5),
                                     ApproxDP(1, "1e-6"), ZCDP(800), ZCDP("1e-30")], ids=str)  # fmt: skip
def test_the_last_comparison_protects_equally(privacy: Privacy) -> None:
    other = comparable(privacy)[-1]
    assert other.noise != privacy.noise
    assert best_guess(other) == pytest.approx(best_guess(privacy), abs=2e-4)
    assert as_protective(other) == pytest.approx(
        float(privacy.epsilon) if isinstance(privacy, PureDP) else math.sqrt(2 * privacy.rho), rel=2e-3
    )


@pytest.mark.parametrize(
    ("privacy", "cap", "parameter", "says"),
    [
        ('mu = "0.5"', '{ mu = "1" }', "mu_squared", ["μ = 0.5", "ρ = 0.125", "59.9"]),
        ('epsilon = "1"\ndelta = "1e-6"', '{ epsilon = "1", delta = "1e-6" }', "mu_squared", ["μ = 0.237", ">1<"]),
    ],
)
def test_report_and_metadata_state_all_of_it(
    privacy: str, cap: str, parameter: str, says: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, SPEC.replace('epsilon = "0.5"', privacy).replace('{ epsilon = "4" }', cap))
    spec = load_spec("people.toml")
    publish(spec, planned(spec))
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    found = Protection.of(spec.privacy, gaussian=True)
    assert metadata["protection"] == {
        "mu": found.mu,
        "rho": found.rho,
        "epsilon": None,
        "epsilon_at": [{"delta": delta, "epsilon": epsilon} for epsilon, delta in found.pairs],
        "best_guess": found.guess,
    }
    assert metadata["receipt"]["parameter"] == parameter
    page = (tmp_path / "out" / "report.html").read_text()
    section = page[page.index('<h2 id="protection">') : page.index('<h2 id="method">')]
    assert all(each in section for each in (*says, "Pairs of ε and δ", ">10⁻¹²<", "trade-off-title"))


def test_a_report_of_early_noise_claims_no_mu() -> None:
    strategy = Strategy.identity(Domain({"sex": ["M", "F"]}))
    report = Report("t", "people", "2026", ZCDP("0.125"), Unit(), (), 0.95, (), strategy, "Identity")
    page = render(report)
    section = page[page.index('<h2 id="protection">') :]
    assert "μ" not in section
    assert "trade-off" not in section
    assert "discrete Gaussian" in section


@pytest.mark.parametrize(
    ("privacy", "says"),
    [(ApproxDP(1, "1.24e-9"), "plus at most 1.3e-09"), (ApproxDP(1, "1e-9"), "plus at most 1e-09"),
     (PureDP("12.341"), "e^12.4"), (PureDP("12.3"), "e^12.3")], ids=str)  # fmt: skip
def test_what_is_said_of_factor_and_delta_is_rounded_up(privacy: Privacy, says: str) -> None:
    strategy = Strategy.identity(Domain({"sex": ["M", "F"]}))
    assert says in render(Report("t", "people", "2026", privacy, Unit(), (), 0.95, (), strategy, "Identity"))


PRIVACIES = [('rho = "0.5"', '{ rho = "2" }'), ('mu = "1"', '{ mu = "2" }'), ('epsilon = "1"', '{ epsilon = "4" }')]


@pytest.mark.parametrize(("privacy", "cap"), PRIVACIES)
def test_who_plans_and_spends_is_told_the_epsilon(
    privacy: str, cap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ρ = ½ is ε = 6.18 at δ = 10⁻⁹: a margin that is chosen by ρ alone would be chosen blindly."""
    text = SPEC.replace('epsilon = "0.5"', privacy).replace('{ epsilon = "4" }', cap)
    path = str(prepared(tmp_path, text))
    said = {}
    for command in (["check"], ["plan"], ["release", "--yes"]):
        assert run([command[0], path, *command[1:]]) == 0
        said[command[0]] = capsys.readouterr().out
    pure = privacy.startswith("epsilon")
    for each in said.values():
        assert ("ε = 6.18 at δ = 10⁻⁹" in each) is not pure
    others = said["plan"].split("Other guarantees")[1].splitlines()[1:7]
    first = next(line for line in others if "as above" in line)
    assert first.split("as above")[1].split()[0] == ("1.00" if pure else "6.18")
    assert run(["plan", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    least = Protection.of(load_spec(path).privacy, gaussian=True)
    assert facts["protection"]["mu"] == least.mu
    assert [each["epsilon"] for each in facts["protection"]["epsilon_at"]] == [epsilon for epsilon, _ in least.pairs]
    assert facts["budgets"][2]["epsilon"] == pytest.approx(1 if pure else 6.174, abs=1e-3)
    assert facts["other_noise"][-1]["epsilon"] > 0


def test_readers_of_a_publication_are_told_the_epsilon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SPEC.replace('epsilon = "0.5"', 'rho = "0.5"').replace('{ epsilon = "4" }', '{ rho = "2" }')
    folder = publish(spec := load_spec(prepared(tmp_path, text)), planned(spec)).folder
    said = "zero-concentrated differential privacy; ε = 6.18 at δ = 10⁻⁹"
    assert (folder / "report.html").read_text().count(
        said
    ) == 3  # at the top, and twice under Method: in the paragraph to quote and among the facts
    assert said in json.loads((folder / "datapackage.json").read_text())["description"]
    assert run(["show", str(folder)]) == 0
    assert said in capsys.readouterr().out
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    assert run(["report", str(tmp_path / "people.toml"), "--xlsx", "--quiet"]) == 0
    guide = openpyxl.load_workbook(folder / "report.xlsx")["Notes"]
    assert said in next(row[1].value for row in guide.iter_rows() if row[0].value == "Protection")
    early = Report("t", "d", "2026", ZCDP("0.5"), Unit(), (), 0.95, (), Strategy.identity(spec.domain), "Identity")
    assert "ε = 6.48 at δ = 10⁻⁹" in early.guarantee  # of discrete noise no more is known than its ρ
