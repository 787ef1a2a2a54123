#!/usr/bin/env python3
"""A real Prometheus scrapes the daemon every 5 s while processes and sessions come and go: no scrape fails, no sample is
out of order or doubled, series stay within their bound, and no counter falls.

usage: scrape_soak_test.py [--minutes N]     default 1; 60 with GPUPERF_LONG_TESTS (tests/run.sh --long)
"""

import argparse
import re
import shutil
import sys
import time
import unittest

import gpuperf_system as gs
from injector_workload import require_fakes

INTERVAL_SECONDS = 5
MAX_SERIES = 100  # sets, the fewest there may be: what comes and goes reaches the bound within a minute
ORDER = ("prometheus_target_scrapes_sample_out_of_order_total", "prometheus_target_scrapes_sample_duplicate_timestamp_total",
         "prometheus_target_scrapes_sample_out_of_bounds_total", "prometheus_target_scrapes_exceeded_sample_limit_total",
         "prometheus_tsdb_out_of_order_samples_total")
# Counters of a host's processes must not fall while the daemon lives, whatever became of the processes.
FALLING = 'resets({{__name__=~"{name}"}}[{minutes:.0f}m]) > 0'
arguments = argparse.Namespace(minutes=60.0 if gs.LONG else 1.0)


class ScrapeSoakTest(unittest.TestCase):
    def setUp(self):
        gs.require_root()
        require_fakes()
        if shutil.which("prometheus") is None:
            self.skipTest("prometheus is not installed (Debian package prometheus)")

    def read_own(self, prometheus):
        """Prometheus's metrics of itself, summed over labels."""
        values = {}
        for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", prometheus.fetch("/metrics"), re.M):
            values[name] = values.get(name, 0) + float(value)
        return values

    def test_scrapes_stay_whole_while_processes_come_and_go(self):
        import monitored_load  # needs control groups: imported once it is known that root runs this
        steps = 0
        with monitored_load.Load(metrics={"max_series": MAX_SERIES}) as load, monitored_load.Prometheus(
                load.daemon.path, [f"127.0.0.1:{load.daemon.port}"], interval=f"{INTERVAL_SECONDS}s") as prometheus:
            begin = time.monotonic()
            while time.monotonic() - begin < arguments.minutes * 60:
                load.step()
                steps += 1
            self.check(prometheus, load.daemon, steps, time.monotonic() - begin)

    def check(self, prometheus, daemon, steps, seconds):
        minutes = seconds / 60 + 2
        self.assertIsNone(daemon.process.poll(), "gpuperfd ended")
        [(_, scrapes)] = prometheus.query(f"count_over_time(up[{minutes:.0f}m])")
        self.assertGreater(scrapes, seconds / INTERVAL_SECONDS / 2)
        self.assertEqual(prometheus.query(f"count_over_time((up == 0)[{minutes:.0f}m:{INTERVAL_SECONDS}s])"), [], "failed scrapes")
        own = self.read_own(prometheus)
        self.assertEqual({name: own[name] for name in ORDER}, dict.fromkeys(ORDER, 0.0))
        [(_, samples)] = prometheus.query(f"max_over_time(scrape_samples_scraped[{minutes:.0f}m])")
        [(_, sets)] = prometheus.query('count(gpuperf_function_calls_total{comm!="other"})')
        self.assertLessEqual(sets, MAX_SERIES)
        [(_, folded)] = prometheus.query('gpuperf_dropped_total{stage="metrics",reason="series_full"}')
        self.assertGreater(folded, 0, "the bound of series was not reached")
        counters = [name for name in prometheus.ask("/api/v1/label/__name__/values")
                    if re.fullmatch(r"gpuperf_\w+_(total|count|sum|bucket)", name)]
        self.assertGreater(len(counters), 20)
        fallen = [row for name in counters for row in prometheus.query(FALLING.format(name=name, minutes=minutes))]
        self.assertEqual(fallen, [], "counters that fell")
        [(_, longest)] = prometheus.query(f"max_over_time(scrape_duration_seconds[{minutes:.0f}m])")
        residents = [prometheus.query(f"avg_over_time(gpuperf_daemon_resident_bytes[{seconds / 4:.0f}s] offset {seconds * back / 4 + 1:.0f}s)")
                     for back in (2, 1, 0)]
        [(_, processes)] = prometheus.query("gpuperf_processes")
        print(f"\n{seconds / 60:.1f} min: {scrapes:.0f} scrapes, none failed; at most {samples:.0f} samples, the longest "
              f"{longest * 1000:.0f} ms; {sets:.0f} sets of labels, {folded:.0f} more folded; {2 * steps} processes came and went, {processes:.0f} ran; {len(counters)} names of "
              f"counters, none fell; gpuperfd's resident memory in the last three quarters: "
              f"{', '.join(f'{value / 2**20:.0f}' for [(_, value)] in residents)} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=arguments.minutes)
    arguments, others = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *others], verbosity=2)
