"""Processor time of commands, against another commit: `python -m tests.benchmarks.starting COMMIT`.

Both versions run in turns. A ratio is the time of this checkout by that of the other: 0.7 means that it needs
30 % less. Of `serve` the time until it listens counts.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks.against import HERE, checkout

if TYPE_CHECKING:
    from pathlib import Path

STORY = "scenarios/weather.yaml"
COMMANDS: dict[str, list[str]] = {
    "--version": ["--version"],
    "--help": ["--help"],
    "validate": ["validate", STORY],
    "run": ["run", STORY],
    "serve": ["serve", "agents.weather:WeatherAgent", "--listen", "ws://127.0.0.1:0"],
}


def seconds(root: Path, words: list[str]) -> float:
    """Run a command in a checkout; return its processor time and that of its children."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each run compiles all sources anew
    command = [sys.executable, "-m", "lmos_actors", *words]
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            if words[0] == "serve" and '"listening"' in line:
                process.send_signal(signal.SIGKILL)  # so that its end does not count
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, -signal.SIGKILL):
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str]) -> None:
    """Print the ratios of all commands; the first round warms up and does not count."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.starting", description=__doc__)
    parser.add_argument("commit", metavar="COMMIT", help="the version before")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    options = parser.parse_args(arguments)
    with checkout(options.commit) as before:
        for name, words in COMMANDS.items():
            found: list[tuple[float, float]] = []
            for number in range(-1, options.rounds):
                order = (before, HERE) if number % 2 else (HERE, before)
                used = {root: seconds(root, words) for root in order}
                if number >= 0:
                    found.append((used[HERE], used[before]))
            now, then = (median(times) for times in zip(*found, strict=True))
            ratios = " ".join(f"{ours / theirs:.2f}" for ours, theirs in found)
            print(f"{name:<12}{now / then:>6.2f}   {then:.2f} s to {now:.2f} s   {ratios}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
