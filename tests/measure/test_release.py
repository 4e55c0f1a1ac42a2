"""Releases on disk: they are read back unchanged, and a file that lies is refused (F1, F2, F4)."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hdmm
from hdmm import ZCDP, ApproxDP, Domain, FileError, Ledger, PureDP, Strategy, StrategyError, Unit, Workload, from_array
from hdmm.base.exceptions import NoiseError
from hdmm.measure.measure import measure
from hdmm.measure.measurement import noise_weight
from hdmm.measure.release import Release, load_release
from hdmm.privacy.conversion import rho_down
from hdmm.privacy.guarantee import Noise, Privacy
from tests.io.test_io import undigested
from tests.support.effort import tries
from tests.support.families import FAMILIES, PLANE, asks

every = pytest.mark.parametrize("name", FAMILIES)
PRIVACIES = [PureDP("0.5"), ZCDP("0.125"), ApproxDP(1, "1e-9")]


def released(name: str, privacy: Privacy, *, unit: Unit | None = None, ledger: Ledger | None = None) -> Release:
    domain = FAMILIES[name].domain
    x = np.random.default_rng(0).integers(0, 50, size=domain.shape)
    return measure(FAMILIES[name], from_array(domain, x), privacy, ledger=ledger, unit=unit)


@every
@pytest.mark.parametrize("privacy", PRIVACIES, ids=str)
def test_a_release_comes_back_as_it_was(name: str, privacy: Privacy, tmp_path: Path) -> None:
    release = released(name, privacy, unit=Unit(2, "replace"))
    back = load_release(release.save(tmp_path / "release"))
    assert (back.privacy, back.unit, back.scales, back.receipt) == (privacy, Unit(2, "replace"), release.scales, None)
    assert back.domain == release.domain
    for one, two in zip(release.measurements, back.measurements, strict=True):
        assert two.dtype == np.int64
        assert (one == two).all()
        assert not two.flags.writeable
    w = asks(FAMILIES[name])
    one, two = release.answer(w), back.answer(w)
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.stddev, two.stddev)
    assert back.error(w) == release.error(w)


def test_the_receipt_comes_back_and_the_ledger_knows_it(tmp_path: Path) -> None:
    for number, (privacy, cap) in enumerate(
        [(PureDP("0.5"), PureDP("0.5")), (PureDP("1/3"), ZCDP(1)), (ZCDP("1/7"), ZCDP(1)), (PRIVACIES[2], ZCDP(1))]
    ):
        ledger = Ledger(tmp_path / f"{number}.db", dataset="people", cap=cap)
        release = released("product", privacy, ledger=ledger)
        back = load_release(release.save(tmp_path / f"release-{number}"))
        assert back.receipt == release.receipt
        assert back.receipt is not None
        assert ledger.verify(back.receipt) == 3


@pytest.mark.parametrize(
    "privacy",
    [
        PureDP(Fraction(1, 3**100)),
        PureDP("1e-3"),
        PureDP(Fraction(10**30 + 1, 10**30)),
        ZCDP(Fraction(1, 7**40)),
        ApproxDP(1, Fraction(1, 10**100)),
        PureDP(30),
    ],
    ids=str,
)
def test_privacy_of_any_length_comes_back(privacy: Privacy, tmp_path: Path) -> None:
    try:
        release = released("identity", privacy)
    except NoiseError:
        release = released("identity", PureDP(1))  # too much noise to measure, not too long to write
        privacy = release.privacy
    assert load_release(release.save(tmp_path / "r")).privacy == privacy


def test_the_error_is_of_the_strategy_as_measured() -> None:
    release = released("product", PureDP(1))
    w = asks(FAMILIES["product"])
    assert release.error(w) == pytest.approx(np.sum(release.answer(w).stddev ** 2))
    with pytest.raises(StrategyError, match="does not support"):
        released("the total", PureDP(1)).error(Workload.marginals(PLANE, k=1))


def test_the_weight_of_noise_is_one_over_its_deviation() -> None:
    """Against the variance of the discrete distributions, summed up."""
    for scale in (Fraction(1, 3), Fraction(5), Fraction(1000)):
        for noise in (Noise.LAPLACE, Noise.GAUSSIAN):
            r = hdmm.strategy.lattice.resolution(scale, noise)
            s = float(scale * r ** (1 if noise == Noise.LAPLACE else 2))
            z = np.arange(-60_000, 60_001, dtype=float)
            p = np.exp(-np.abs(z) / s) if noise == Noise.LAPLACE else np.exp(-(z**2) / (2 * s))
            deviation = math.sqrt(float(np.sum(p * z**2) / np.sum(p))) / r
            assert 1 / noise_weight(scale, r, noise) == pytest.approx(deviation, rel=1e-9)


def test_a_release_in_words() -> None:
    assert repr(released("identity", PureDP(1))) == (
        "Release(12 measurements over 12 cells, ε = 1 (pure differential privacy))"
    )


Edit = Callable[[dict[str, Any]], None]


def set_at(*path: str | int, to: object) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        here: Any = content
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = to

    return edit


RECEIPT = {
    "sequence": 3,
    "dataset": "d",
    "parameter": "epsilon",
    "amount": "1/2",
    "balance": "0",
    "hash": "00",
    "timestamp": "now",
}
LIES: dict[str, Edit] = {
    "a smaller epsilon": set_at("privacy", to={"epsilon": "0.49"}),
    "an epsilon as a fraction that is smaller": set_at("privacy", to={"epsilon": "49/100"}),
    "another kind of noise": set_at("privacy", to={"rho": "1/1000"}),
    "a delta": set_at("privacy", to={"epsilon": "1/2", "delta": "1/1000000"}),
    "two kinds at once": set_at("privacy", to={"epsilon": "1/2", "rho": "1/2"}),
    "epsilon of 0": set_at("privacy", to={"epsilon": "0"}),
    "epsilon not a number": set_at("privacy", to={"epsilon": "nan"}),
    "epsilon a float": set_at("privacy", to={"epsilon": 0.5}),
    "epsilon below 0": set_at("privacy", to={"epsilon": "-1"}),
    "epsilon too long": set_at("privacy", to={"epsilon": "1" * 5000}),
    "epsilon of many digits": set_at("privacy", to={"epsilon": "1" * 4000}),
    "no privacy": set_at("privacy", to=None),
    "a smaller scale": set_at("scales", 0, to="1"),
    "a scale a little smaller": set_at("scales", 0, to="8388607/2097152"),
    "a scale of 0": set_at("scales", 0, to="0"),
    "a scale over 0": set_at("scales", 0, to="1/0"),
    "a scale below 0": set_at("scales", 0, to="-4"),
    "a huge scale": set_at("scales", 0, to="9" * 4000),
    "a tiny scale": set_at("scales", 0, to="1/" + "9" * 4000),
    "a scale too long": set_at("scales", 0, to="9" * 100_000),
    "a scale in other digits": set_at("scales", 0, to="٣"),
    "a scale with a sign in it": set_at("scales", 0, to="1_0"),
    "half a fraction": set_at("scales", 0, to="4/"),
    "a scale that is a number": set_at("scales", 0, to=4),
    "scales for other blocks": set_at("scales", to=["4", "4", "4"]),
    "no scales": set_at("scales", to=[]),
    "scales not a list": set_at("scales", to={"0": "4"}),
    "a smaller unit": set_at("unit", to={"rows": 0, "neighbours": "add-remove"}),
    "a unit of half a row": set_at("unit", to={"rows": 0.5, "neighbours": "add-remove"}),
    "a unit that is true": set_at("unit", to={"rows": True, "neighbours": "add-remove"}),
    "a larger unit than was protected": set_at("unit", to={"rows": 2, "neighbours": "add-remove"}),
    "replacing, which was not protected": set_at("unit", to={"rows": 1, "neighbours": "replace"}),
    "unknown neighbours": set_at("unit", to={"rows": 1, "neighbours": "none"}),
    "more in the unit": set_at("unit", to={"rows": 1, "neighbours": "add-remove", "x": 1}),
    "a key too many": set_at("resolution", to=1),
    "a receipt of a smaller debit": set_at("receipt", to={**RECEIPT, "amount": "49/100"}),
    "a receipt of an account that cannot be": set_at("receipt", to={**RECEIPT, "parameter": "delta"}),
    "a receipt of rho for less": set_at("receipt", to={**RECEIPT, "parameter": "rho", "amount": "1/9"}),
    "a receipt of a number too long": set_at("receipt", to={**RECEIPT, "amount": "9" * 5000}),
    "a balance too long": set_at("receipt", to={**RECEIPT, "balance": "9" * 5000}),
    "a receipt without a hash": set_at("receipt", to={k: v for k, v in RECEIPT.items() if k != "hash"}),
    "a receipt numbered true": set_at("receipt", to={**RECEIPT, "sequence": True}),
    "a receipt numbered 0": set_at("receipt", to={**RECEIPT, "sequence": 0}),
    "a receipt that is a text": set_at("receipt", to="paid"),
    "a domain of another size": set_at("strategy", "domain", "attributes", 0, "values", "last", to=9),
    "a strategy of no kind": set_at("strategy", "kind", to="Anything"),
    "a weight of 0": set_at("strategy", "blocks", "rows", 0, 0, to=0.0),
    "a factor left out": set_at("strategy", "blocks", "rows", 0, 1, to=[[0, 0]]),
}


def edited(folder: Path, edit: Edit) -> None:
    path = folder / "release.json"
    envelope = json.loads(path.read_text())
    edit(envelope["content"])
    path.write_text(json.dumps(envelope))


def refused(folder: Path, match: str | None = None) -> None:
    start = time.process_time()  # whatever else the machine does
    with pytest.raises(FileError, match=match) as caught:
        load_release(folder)
    assert time.process_time() - start < 5
    assert len(str(caught.value)) < 2000
    assert caught.value.__context__ is None or caught.value.__suppress_context__  # one error is printed, not two


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return released("product", PureDP("0.5")).save(tmp_path / "release")


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused(name: str, folder: Path) -> None:
    """F4, F2: what was spent is computed from factors and noise, and is no more than what is declared."""
    load_release(folder)
    edited(folder, LIES[name])
    refused(folder)


def test_a_true_receipt_passes(folder: Path) -> None:
    edited(folder, set_at("receipt", to=RECEIPT))
    assert load_release(folder).receipt is not None
    edited(folder, set_at("receipt", to={**RECEIPT, "parameter": "rho", "amount": "1/8", "balance": "9/2"}))
    assert load_release(folder).receipt is not None


def test_weights_in_a_file_are_not_believed(folder: Path) -> None:
    """They follow from the noise: a file cannot make its answers look better than they are."""
    before = load_release(folder).answer(asks(FAMILIES["product"])).stddev
    edited(folder, set_at("strategy", "blocks", "rows", 0, 0, to=1e6))
    assert (load_release(folder).answer(asks(FAMILIES["product"])).stddev == before).all()


def test_parts_of_a_combination_have_noise_of_their_own(tmp_path: Path) -> None:
    parts = [released("marginals", PureDP(epsilon)) for epsilon in (1, 3)]
    both = hdmm.combine(parts, same_rows=True)
    assert load_release(both.save(tmp_path / "both")).scales == both.scales


@pytest.mark.parametrize("privacy", PRIVACIES, ids=str)
def test_weights_that_contradict_the_noise_are_refused(privacy: Privacy, tmp_path: Path) -> None:
    """No receipt vouches for them; of one block, the only weight says nothing."""
    folder = released("marginals", privacy).save(tmp_path / "release")
    rows = json.loads((folder / "release.json").read_text())["content"]["strategy"]["blocks"]["rows"]
    assert len(rows) > 2
    for number, (weight, _) in enumerate(rows):
        for other in (weight * 2, math.nextafter(weight, 2), -weight):
            edited(folder, set_at("strategy", "blocks", "rows", number, 0, to=other))
            refused(folder, "damaged" if other > 0 else None)
        edited(folder, set_at("strategy", "blocks", "rows", number, 0, to=weight))
        load_release(folder)
    both = hdmm.combine([released("marginals", privacy) for _ in range(2)], same_rows=True).save(tmp_path / "both")
    load_release(both)
    edited(both, set_at("strategy", "blocks", "rows", 1, 0, to=0.9))
    edited(both, set_at("strategy", "blocks", "rows", 2, 0, to=0.8))
    refused(both, "damaged")


def test_larger_factors_are_a_larger_loss(folder: Path) -> None:
    """F4: a strategy whose factors were changed spends more than the file says."""
    undigested(folder, "release")
    envelope = json.loads((folder / "release.json").read_text())
    for name in envelope["arrays"]:
        array = np.load(folder / f"{name}.npy")
        if name != "measurements" and array.ndim == 1:
            np.save(folder / f"{name}.npy", array + 1)
    refused(folder, "spend")


def test_factors_of_floats_are_no_release(folder: Path) -> None:
    undigested(folder, "release")
    envelope = json.loads((folder / "release.json").read_text())
    for name in envelope["arrays"]:
        array = np.load(folder / f"{name}.npy")
        if name != "measurements":
            np.save(folder / f"{name}.npy", array.astype(float))
    refused(folder, "are not integers")


def test_a_plans_strategy_is_no_release(tmp_path: Path, folder: Path) -> None:
    hdmm.optimize(Workload.marginals(PLANE, k=1), restarts=1).save(tmp_path / "plan")
    refused(tmp_path / "plan", r"plan\.json")
    with pytest.raises(FileError):
        hdmm.load_plan(folder)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, dtype=np.int64),
        np.zeros((1, 5), dtype=np.int64),
        np.zeros(5, dtype=np.int32),
        np.zeros(5),
        np.array([], dtype=np.int64),
        np.array([None, "x"], dtype=object),
    ],
    ids=str,
)
def test_measurements_of_another_kind_are_refused(array: np.ndarray, folder: Path) -> None:
    """F1."""
    np.save(folder / "measurements.npy", array, allow_pickle=True)
    refused(folder)


def test_measurements_that_are_missing_or_cut_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "cut")
    content = (folder / "measurements.npy").read_bytes()
    (tmp_path / "cut" / "measurements.npy").write_bytes(content[:-8])
    refused(tmp_path / "cut")
    (folder / "measurements.npy").unlink()
    refused(folder, "missing")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a":NaN}', '{"a":1,"a":2}', "[" * 10_000, "\0"])
def test_json_of_no_kind_is_refused(text: str, folder: Path) -> None:
    """F2."""
    (folder / "release.json").write_text(text)
    refused(folder)


def test_a_scale_of_a_thousand_blocks_is_read_once(tmp_path: Path) -> None:
    domain = Domain({f"a{i}": 2 for i in range(45)})
    w = Workload.marginals(domain, k=2)
    strategy = Strategy.direct(w)
    data = hdmm.from_table(domain, pd.DataFrame({name: [0, 1] for name in domain.names}))
    release = measure(strategy, data, PureDP(1), ledger=None)
    assert load_release(release.save(tmp_path / "r")).answer(w).values.shape == (w.queries,)


NASTY = [
    None,
    True,
    -1,
    0,
    1,
    2**63,
    10**30,
    0.5,
    -0.0,
    1e308,
    "",
    "x",
    "1/3",
    "\u0663",
    "9" * 5000,
    [],
    {},
    [[]],
    [1, "a"],
]


def paths(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, inner in items for path in paths(inner, (*here, key)))]


@pytest.mark.parametrize("name", ["product", "marginals", "direct", "merged, not neighbours", "tree"])
def test_any_value_anywhere_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """F1, F2: FileError or a release that still spends no more than it says; never another exception."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    folder = released(name, PureDP("0.5"), ledger=ledger).save(tmp_path / "release")
    original = (folder / "release.json").read_text()
    places = [path for path in paths(json.loads(original)) if path]
    generator = np.random.default_rng(0)
    for path in places:
        for k in generator.choice(len(NASTY), size=tries(6), replace=False):
            envelope = json.loads(original)
            set_at(*path, to=NASTY[k])(envelope)
            (folder / "release.json").write_text(json.dumps(envelope))
            try:
                back = load_release(folder)
            except FileError:
                continue
            assert back.privacy.noise == Noise.LAPLACE
            assert isinstance(back.privacy, PureDP)
            assert (
                hdmm.strategy.lattice.Lattice(back.strategy).loss(back.scales, Noise.LAPLACE, back.unit)
                <= back.privacy.epsilon
            )


def test_measurements_of_the_right_number_must_be_integers(folder: Path) -> None:
    """F1: floats, which a release never holds."""
    undigested(folder, "release")
    y = np.load(folder / "measurements.npy")
    np.save(folder / "measurements.npy", y.astype(float))
    refused(folder, f"the measurements are not {y.size} integers")
    np.save(folder / "measurements.npy", y[:, None])
    refused(folder, f"the measurements are not {y.size} integers")
    np.save(folder / "measurements.npy", y)
    load_release(folder)


def test_a_receipt_of_an_account_that_cannot_bear_the_release_is_refused(tmp_path: Path) -> None:
    folder = released("product", ZCDP("0.125")).save(tmp_path / "release")
    edited(folder, set_at("receipt", to={**RECEIPT, "parameter": "epsilon", "amount": "100"}))
    refused(folder, "cannot be charged to an account of pure differential privacy")


@pytest.mark.parametrize("early", [True, False])
def test_a_receipt_pays_for_the_rho_that_its_version_bought(early: bool, tmp_path: Path) -> None:
    """Early versions made (1, 10⁻⁹) of the ρ that zCDP asks for; less noise needs a larger debit."""
    asked, rho = ApproxDP(1, "1e-9"), rho_down(Fraction(1), Fraction(1, 10**9))
    data = from_array(Domain({"age": 3}), [5, 6, 7])
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=ZCDP(1))
    release = measure(Strategy.identity(data.domain), data, ZCDP(rho) if early else asked, ledger=ledger)
    release = replace(release, privacy=asked, exact_gaussian=not early)
    saved = release.save(tmp_path / "release")
    assert load_release(saved).receipt == release.receipt
    assert release.receipt is not None
    less = replace(release.receipt, amount=rho * (Fraction(99, 100) if early else 1))
    saved = replace(release, parts=(replace(release.parts[0], receipt=less),)).save(tmp_path / "edited")
    with pytest.raises(FileError, match="smaller debit"):
        load_release(saved)
