#!/usr/bin/env python3
"""What reads hostile input, on inputs that were kept, and fuzzed.

usage: tests/fuzz/run.py [--seconds N] [--target NAME]... [--merge]
  --seconds N     fuzz each target for N seconds, with libFuzzer and the address and undefined-behaviour sanitizers; 7200 with
                  GPUPERF_LONG_TESTS set; without either, only replay what is kept, with the programs of the build folder
  --target NAME   only this one, a file of tests/fuzz/targets; may be repeated
  --merge         after fuzzing, keep what was found: the smallest inputs that reach all the code, in tests/fuzz/corpus/NAME.tar.xz

Kept are regressions and the corpus: good inputs in tests/fuzz/corpus/NAME, those that the target makes itself, and what --merge
packed. Fuzzing builds the targets into build-fuzz (preset `fuzz`, clang) and begins with a replay. What the fuzzer found stays in
build-fuzz/found, so the next run goes on from there; build-fuzz/found/runs.csv has a line for each run. An input that breaks
something is written to build-fuzz/faults; mend it, then move the input to tests/fuzz/regressions.
"""

import argparse
import concurrent.futures
import csv
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/fuzz"
ORDINARY_BUILD = pathlib.Path(os.environ.get("GPUPERF_BUILD", ROOT / "build")).resolve()
BUILD = ROOT / "build-fuzz"
FOUND = BUILD / "found"
FAULTS = BUILD / "faults"
TARGETS = sorted(path.stem for path in (HERE / "targets").glob("*.cpp"))
JOBS = 2
# Inputs that other tests have, too.
MORE_SEEDS = {"config": ["tests/unit/config/good", "tests/unit/config/bad"]}
# Of one input: by the clock, on a machine that may have other things to do; some milliseconds are usual.
LIMITS = ["-timeout=120", "-rss_limit_mb=1024"]
# A sanitizer's report ends the target. What libraries keep for ever is no leak; one report a fault is enough.
ENVIRONMENT = os.environ | {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
FINAL = re.compile(r"^#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+)", re.M)
log_lock = threading.Lock()


def get_cpu_seconds():
    """Of all children that have ended."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def build(targets):
    if shutil.which("clang++") is None:
        sys.exit("tests/fuzz/run.py: clang++ is not installed. Run: deploy/install_packages.sh build tests")
    commands = [["cmake", "--preset", "fuzz"], ["cmake", "--build", BUILD, "--target", *(f"fuzz_{name}" for name in targets)]]
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\ntests/fuzz/run.py: {' '.join(map(str, command))} failed (above)")


def run_target(folder, name, *arguments, **environment):
    """The exit code and the end of what a target of a build folder printed."""
    command = [folder / "tests/fuzz" / f"fuzz_{name}", *arguments]
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT | environment, stdout=output, stderr=subprocess.STDOUT)
        output.seek(max(0, output.seek(0, os.SEEK_END) - 100_000))
        return done.returncode, output.read().decode(errors="replace")


def make_empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def list_seed_folders(build_folder, name):
    """Made by the target itself; kept in git; of other tests."""
    made = make_empty(build_folder / "seeds" / name)
    code, text = run_target(build_folder, name, GPUPERF_SEED_FOLDER=str(made))
    if code != 0:
        raise RuntimeError(f"{name}: its seeds could not be made:\n{text}")
    kept = make_empty(build_folder / "kept" / name)
    archive = get_archive(name)
    if archive.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(kept)
    folders = [made, kept, HERE / "regressions" / name, HERE / "corpus" / name, *(ROOT / more for more in MORE_SEEDS.get(name, []))]
    return [folder for folder in folders if folder.is_dir()]


def replay(name):
    """True when no input that is kept breaks anything."""
    if not (ORDINARY_BUILD / f"tests/fuzz/fuzz_{name}").exists():
        sys.exit(f"tests/fuzz/run.py: {ORDINARY_BUILD} has no fuzz_{name}. Run: cmake --build {ORDINARY_BUILD} --target fuzz_targets")
    code, text = run_target(ORDINARY_BUILD, name, *list_seed_folders(ORDINARY_BUILD, name))
    with log_lock:
        print(text.splitlines()[-1] if code == 0 else text[-8000:], f"{name}: {'ok' if code == 0 else 'FAULT'}", flush=True)
    return code == 0


def fuzz(name, seconds):
    """True when nothing broke."""
    found, faults = FOUND / name, FAULTS / name
    for folder in (found, faults):
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"-artifact_prefix={faults}/", *LIMITS]
    seeds = list_seed_folders(BUILD, name)
    code, text = run_target(BUILD, name, "-runs=0", *options, *seeds)
    if code == 0 and seconds > 0:
        code, text = run_target(BUILD, name, f"-max_total_time={seconds}", "-print_final_stats=1", *options, found, *seeds)
    final = FINAL.findall(text)
    executions, edges, features = final[-1] if final else ("-", "-", "-")
    with log_lock:
        if final:
            with open(FOUND / "runs.csv", "a", newline="") as log:
                csv.writer(log).writerow([name, seconds, executions, edges, features])
        print(f"{name:20} {seconds:6} s  {executions:>12} executions  {edges:>6} edges  {'ok' if code == 0 else 'FAULT'}", flush=True)
        if code != 0:
            print(text[-8000:])
            print(f"{name}: broke (above). The input is in {faults}; replay it: {BUILD}/tests/fuzz/fuzz_{name} FILE", flush=True)
    return code == 0


def get_archive(name):
    return HERE / "corpus" / f"{name}.tar.xz"


def merge(name):
    """Of all inputs, packs the smallest that together reach all the code."""
    with tempfile.TemporaryDirectory() as folder:
        # By edges alone, not by how often each is passed: a tenth of the files.
        code, text = run_target(BUILD, name, "-merge=1", "-use_counters=0", *LIMITS, folder, *list_seed_folders(BUILD, name),
                                FOUND / name)
        if code != 0:
            raise RuntimeError(f"{name}: merge failed:\n{text[-2000:]}")
        inputs = sorted(pathlib.Path(folder).iterdir())
        with tarfile.open(get_archive(name), "w:xz") as packed:
            for path in inputs:
                entry = tarfile.TarInfo(path.name)  # without owner and time: equal inputs make equal archives
                entry.size = path.stat().st_size
                with open(path, "rb") as data:
                    packed.addfile(entry, data)
        print(f"{name}: {len(inputs)} inputs kept, {get_archive(name).stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--seconds", type=int, default=7200 if os.environ.get("GPUPERF_LONG_TESTS") else None)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--merge", action="store_true")
    arguments = parser.parse_args()
    if arguments.merge and arguments.seconds is None:
        parser.error("--merge keeps what fuzzing found: it needs --seconds")
    targets = arguments.target or TARGETS
    if arguments.seconds is not None:
        build(targets)
    built_s = get_cpu_seconds()
    run = replay if arguments.seconds is None else lambda name: fuzz(name, arguments.seconds)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(run, targets))
    print(f"built, {built_s:.0f} s of CPU time; run, {get_cpu_seconds() - built_s:.0f} s", flush=True)
    if arguments.merge:
        for name in targets:
            merge(name)
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
