"""The examples run, and what they print is what a release of that plan gives."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from examples import adult, earnings, places

import hdmm

QUICK = ["--seconds", "1"]


def test_adult_without_data_says_so_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    adult.main(QUICK)
    printed = capsys.readouterr().out
    assert "No --data FOLDER with adult.csv.gz and adult-domain.json" in printed
    assert "3,807 counts in 10 tables over 240,000 cells" in printed
    expected, actual = (float(line[21:].split()[0]) for line in printed.splitlines()[3:6:2])
    assert "expected" in printed.splitlines()[3]
    assert "actual" in printed.splitlines()[5]
    assert 0.8 < actual / expected < 1.2  # 3,807 counts: the ratio is some percent off 1, hardly ever 20


def test_adult_reads_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["age,education,race,sex,hours", "74,15,4,1,19", "0,0,0,0,0", "0,0,0,1,0", "75,0,0,1,0"]
    (tmp_path / "adult.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    (tmp_path / "adult-domain.json").write_text(json.dumps({"domain": adult.SIZES}))
    assert adult.adult(tmp_path).marginal(["sex"]).tolist() == [1, 2]  # age 75 is outside
    adult.main(["--data", str(tmp_path), *QUICK])
    assert "made-up" not in capsys.readouterr().out
    (tmp_path / "adult-domain.json").write_text(json.dumps({"domain": {"age": 3}}))
    with pytest.raises(SystemExit, match="describes"):
        adult.adult(tmp_path)


def test_the_actual_error_is_the_distance_to_the_truth() -> None:
    data = adult.made_up()
    w = hdmm.Workload.marginals(adult.DOMAIN, [("race", "sex"), ("sex",)])
    release = hdmm.optimize(w, restarts=1).measure(data, adult.EPSILON, ledger=None)
    answers = release.answer(w)
    truth = np.concatenate([data.marginal(names).ravel() for names in (["race", "sex"], ["sex"])])
    assert adult.actual_rmse(answers, data) == pytest.approx(np.sqrt(np.mean((answers.values - truth) ** 2)))


def test_places_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    places.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "50 counts of places; 40 tracts"
    assert printed[1].split()[1] == printed[2].split()[-1]
    assert printed[3] == "married children: 0, 7 counts without noise"


def test_earnings_are_near_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    earnings.main()
    printed = capsys.readouterr().out
    assert "Women and men in each sector, in percent of the row" in printed
    means = [line.split() for line in printed.splitlines() if "mean of pay" in line]
    truth = dict(re.findall(r"^(\w+): the true mean, ([\d.]+), is", printed, re.MULTILINE))
    assert [row[0] for row in means] == list(truth) == list(earnings.MIDDLES)
    for row in means:  # of 2,500 people each: an error of 4 has a chance of 2e-7, by the interval of that level
        assert abs(float(row[4]) - float(truth[row[0]])) < 4
        assert abs(float(truth[row[0]]) - earnings.MIDDLES[row[0]] - 1) < 0.2  # half are men, who earn 2 more
    assert sum("its interval" in line for line in printed.splitlines()) == 4
