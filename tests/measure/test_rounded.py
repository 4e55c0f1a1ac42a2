"""A release says whether its Gaussian noise was rounded, and so is exactly Gaussian, or discrete as in early versions.

Of the first more is known than its ρ: nothing without the tag, or with one that was added, may claim it (S4, L7).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from hdmm import ZCDP, ApproxDP, Domain, FileError, Ledger, LedgerError, PureDP, Strategy, combine, from_array
from hdmm.measure.measure import measure
from hdmm.measure.release import Release, load_release
from hdmm.privacy import ledger as ledger_module
from hdmm.privacy.conversion import epsilon_up
from hdmm.privacy.gdp import gaussian_epsilon_up
from hdmm.privacy.guarantee import Privacy
from hdmm.privacy.ledger import seen_by
from hdmm.privacy.purpose import read_debit

DELTA = Fraction(1, 10**6)
DATA = from_array(Domain({"age": 3}), [5, 6, 7])
STORED = Path(__file__).parents[1] / "io" / "stored" / "gaussian"


def released(privacy: Privacy, ledger: Ledger | None = None) -> Release:
    return cast(Release, measure(Strategy.identity(DATA.domain), DATA, privacy, ledger=ledger))


def edited(release: Release, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The saved release with its content changed."""
    path = release.save(folder) / "release.json"
    file = json.loads(path.read_text())
    change(file["content"])
    path.write_text(json.dumps(file))
    return folder


def test_what_is_measured_now_keeps_its_exact_guarantee(tmp_path: Path) -> None:
    release = released(ZCDP("0.5"))
    loaded = load_release(release.save(tmp_path / "release"))
    assert loaded.exact_gaussian
    assert loaded.digest == release.digest
    assert loaded.epsilon_at(DELTA) == gaussian_epsilon_up(Fraction(1, 2), DELTA) < ZCDP("0.5").epsilon_at(DELTA)


def test_what_does_not_say_so_has_the_guarantee_of_its_rho(tmp_path: Path) -> None:
    early = load_release(edited(released(ZCDP("0.5")), tmp_path / "release", lambda content: content.pop("noise")))
    assert not early.exact_gaussian
    assert early.epsilon_at(DELTA) == epsilon_up(Fraction(1, 2), DELTA)
    stored = load_release(STORED)
    assert not stored.exact_gaussian
    assert stored.epsilon_at("1e-9") == 1  # as its guarantee says


def test_pure_releases_have_their_epsilon_and_no_tag(tmp_path: Path) -> None:
    release = released(PureDP("0.1"))
    assert release.epsilon_at(DELTA) == Fraction(1, 10)
    saved = edited(release, tmp_path / "release", lambda content: content.update(noise="rounded-gaussian"))
    with pytest.raises(FileError, match="its noise is Gaussian"):
        load_release(saved)


def test_discrete_noise_does_not_have_the_epsilon_and_delta_of_gaussian_noise(tmp_path: Path) -> None:
    saved = edited(released(ApproxDP(1, "1e-6")), tmp_path / "release", lambda content: content.pop("noise"))
    with pytest.raises(FileError, match="its measurements spend"):
        load_release(saved)


def test_an_unknown_noise_is_refused(tmp_path: Path) -> None:
    saved = edited(released(ZCDP(1)), tmp_path / "release", lambda content: content.update(noise="gaussian"))
    with pytest.raises(FileError, match="noise"):
        load_release(saved)


@pytest.mark.parametrize("tagged", [True, False])
def test_no_debit_pays_for_another_noise(tagged: bool, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=ZCDP(9))
    release = replace(released(ZCDP(1)), exact_gaussian=tagged)
    paid = release.charged_again(ledger, "again")
    paid.verify(ledger)
    assert ledger.epsilon_at(DELTA) == paid.epsilon_at(DELTA)
    with pytest.raises(LedgerError, match="paid for another release"):
        replace(paid, exact_gaussian=not tagged).verify(ledger)
    (record,) = [each for each in seen_by(ledger).again().records if each.draft.kind == "debit"]
    assert read_debit(record.draft.text).spends == ("gaussian" if tagged else "rho")


def test_a_debit_of_an_early_version_pays_for_no_rounded_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say for which release it pays, but all Gaussian noise was discrete then."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=ZCDP(9))
    monkeypatch.setattr(ledger_module, "debit_text", lambda purpose, *_: purpose)
    early = replace(released(ZCDP(1), ledger), exact_gaussian=False)
    early.verify(ledger)
    tagged = edited(early, tmp_path / "release", lambda content: content.update(noise="rounded-gaussian"))
    with pytest.raises(LedgerError, match="whose Gaussian noise was discrete"):
        load_release(tagged).verify(ledger)


@pytest.mark.parametrize("tags", [(True, True), (True, False), (False, True), (False, False)])
def test_a_combination_has_what_all_of_its_parts_have(tags: tuple[bool, bool], tmp_path: Path) -> None:
    both = combine([replace(released(ZCDP("0.25")), exact_gaussian=tag) for tag in tags], same_rows=True)
    loaded = load_release(both.save(tmp_path / "both"))
    convert = gaussian_epsilon_up if all(tags) else epsilon_up
    assert loaded.epsilon_at(DELTA) == both.epsilon_at(DELTA) == convert(Fraction(1, 2), DELTA)
