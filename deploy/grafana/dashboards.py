"""What is on each dashboard. Read top to bottom: what is slow now, where, since when, and who waits for whom."""

from panels import (ANNOTATIONS, BAD_LIMITS, CALL, GPU, HOST, OWNER, VARIABLES, Dashboard, bars, busy, heatmap, lines,
                    named, observed_share, or_zero, quantile, rate, ratio, shortened, stat, table, threads, top, total,
                    waiting)

CALLS = "gpuperf_function_calls_total"
SLOW = "gpuperf_function_slow_calls_total"
ERRORS = "gpuperf_function_errors_total"
SECONDS = "gpuperf_function_duration_seconds_sum"
DURATION = "gpuperf_function_duration_seconds"
OLDEST = "gpuperf_function_oldest_in_flight_seconds"
IN_FLIGHT = "gpuperf_function_in_flight_calls"
BYTES = "gpuperf_function_bytes_total"
KERNEL = "gpuperf_kernel_duration_seconds"
LATENCY = "gpuperf_kernel_launch_latency_seconds"
STEP = "gpuperf_step_seconds"
BUSY = "gpuperf_gpu_busy_seconds_total"

WHO_WAITS = ("GPU busy and threads waiting: the GPU is the bottleneck, look at its kernels. GPU idle and few threads waiting: the host is "
             "the bottleneck, it launches too late. GPU idle and threads waiting: something else blocks, such as another rank, a copy, "
             "a lock or a call that hangs.")
IN_CALLS = "Threads inside probed calls, on average; nested calls count in each. Counted when a call returns."


def memory_held(selector):
    return f'gpuperf_memory_live_bytes{{{selector},kind=~"device|async|virtual|array"}}'


def slow_rate(width, selector, steps=(0.1, 1)):
    return stat("Slow calls", "cps", width, "Calls per second that reached their function's threshold.",
                total("", SLOW, selector), steps)


def error_share(width, selector):
    return stat("Calls with errors", "percentunit", width, "Share of calls that returned an error. Codes that mean not ready do not count.",
                f"({or_zero(total('', ERRORS, selector))}) / {total('', CALLS, selector)}", (0.001, 0.01))


def oldest(width, selector):
    return stat("Oldest call in flight", "s", width, "Age of the oldest call that has not returned. A call that hangs shows here before it shows in any duration.",
                f"max({OLDEST}{{{selector}}})", (60, 300))


def overhead(width, selector):
    return stat("Costs at most", "percentunit", width, "Highest share of a process's time that probes, launch hooks and CUPTI take.",
                or_zero(f"max(gpuperf_overhead_ratio{{{selector}}})"), (0.01, 0.02))


def troubled_gpus(width):
    return stat("GPUs in trouble", "short", width, "GPUs that are lost, or throttled because of temperature or power supply.",
                or_zero(f"count((gpuperf_gpu_up{{{HOST}}} == 0) or (max by (job, instance, gpu, uuid) "
                        f"(gpuperf_gpu_throttled{{{HOST},{BAD_LIMITS}}}) == 1))"), (1,))


def gpu_busy_lines(width):
    return lines("GPU busy", "percentunit", width, f"Share of time with a kernel, copy or graph of an injected process on each GPU. {WHO_WAITS}",
                 (busy(BUSY, HOST), "{{instance}} GPU {{gpu}}"), reach=1)


def waiting_lines(width, by, selector):
    legend = "{{" + by.split(", ")[-1] + "}}"
    return threads("Threads waiting for the GPU", width, f"Threads inside synchronising calls, on average. {WHO_WAITS}",
                 (top(10, waiting(by, selector)), legend))


def latency_lines(width, selector):
    return lines("From launch to start on the GPU", "s", width,
                 "Time from a launch call to its kernel's start. Microseconds: the GPU waits for the host. Milliseconds: work queues on the GPU.",
                 *((quantile(share, "", LATENCY, selector), f"p{share * 100:g}") for share in (0.5, 0.99)))


def threads_in_calls(width, by, selector):
    title = {"function": "function", "comm": "process"}[by]
    return threads(f"Threads inside calls by {title}", width, IN_CALLS,
                   (top(10, named(by, total(by, SECONDS, selector))), "{{" + by + "}}"))


def slow_by(width, by, title, selector):
    return lines(f"Slow calls by {title}", "cps", width, "Slow calls per second: shows since when, and whether one is affected or all.",
                 (top(10, named(by, total(by, SLOW, selector))), "{{" + by + "}}"))


def slow_functions(width, labels, selector):
    by = ", ".join(labels)
    only_slow = f"and on ({by}) ({total(by, SLOW, selector)} > 0)"
    return table("Functions with slow calls now", width, "Most slow calls first. oldest: age of the oldest call in flight. Click a name for details.", labels, {
        "slow/s": ("cps", f"topk(50, {total(by, SLOW, selector)} > 0)"),
        "calls/s": ("cps", f"{total(by, CALLS, selector)} {only_slow}"),
        "slow share": ("percentunit", f"{ratio(by, SLOW, CALLS, selector)} > 0"),
        "p99": ("s", f"{quantile(0.99, by, DURATION, selector)} {only_slow}"),
        "oldest": ("s", f"max by ({by}) ({OLDEST}{{{selector}}}) {only_slow}")})


FLEET = [
    ("Now", 4, [
        stat("Hosts up", "short", 4, "Hosts whose gpuperfd was scraped.", f'sum(up{{{HOST}}})'),
        stat("Hosts down", "short", 4, "Hosts whose gpuperfd could not be scraped.", or_zero(f"count(up{{{HOST}}} == 0)"), (1,)),
        slow_rate(4, HOST), oldest(4, HOST), troubled_gpus(4),
        stat("Alerts firing", "short", 4, "Alerts of deploy/prometheus/gpuperf-alerts.yaml that fire.",
             or_zero(f'count(ALERTS{{alertname=~"Gpuperf.*",alertstate="firing",{HOST}}})'), (1,))]),
    ("What is slow, where, since when", 8, [slow_by(12, "function", "function", HOST), slow_by(12, "instance", "host", HOST)]),
    ("", 9, [slow_functions(24, ("instance", "function"), HOST)]),
    ("Who waits for whom", 8, [
        lines("GPU busy by host", "percentunit", 8, f"Mean over the GPUs of a host that injected processes use. {WHO_WAITS}",
              (f"avg by (instance) ({observed_share(BUSY, HOST)})", "{{instance}}"), reach=1),
        waiting_lines(8, "instance", HOST), latency_lines(8, HOST)]),
    ("Hosts", 9, [table("Hosts", 24, "One row per host; click it for details. oldest: age of the oldest call in flight.", ("instance",), {
        "slow/s": ("cps", total("instance", SLOW, HOST)),
        "errors/s": ("cps", f"{total('instance', ERRORS, HOST)} or sum by (instance) (up{{{HOST}}} * 0)"),
        "oldest": ("s", f"max by (instance) ({OLDEST}{{{HOST}}})"),
        "GPU busy": ("percentunit", f"avg by (instance) ({observed_share(BUSY, HOST)})"),
        "GPU memory": ("percentunit", f"sum by (instance) (gpuperf_gpu_memory_used_bytes{{{HOST}}}) / "
                                      f"sum by (instance) (gpuperf_gpu_memory_capacity_bytes{{{HOST}}})"),
        "processes": ("short", f"sum by (instance) (gpuperf_processes{{{HOST}}})"),
        "cost": ("percentunit", f"max by (instance) (gpuperf_overhead_ratio{{{HOST}}})"),
        "drops/s": ("cps", total("instance", "gpuperf_dropped_total", HOST))})]),
]

ON_HOST = [
    ("Now", 4, [
        slow_rate(4, HOST), error_share(4, HOST), oldest(4, HOST), troubled_gpus(4),
        stat("Processes", "short", 4, "Running processes that called a probed function.", f"sum(gpuperf_processes{{{HOST}}})"),
        overhead(4, HOST)]),
    ("Who waits for whom", 8, [
        gpu_busy_lines(8), waiting_lines(8, "instance, comm", HOST),
        latency_lines(8, HOST)]),
    ("What is slow", 10, [slow_by(8, "function", "function", HOST), threads_in_calls(8, "function", HOST),
                         threads_in_calls(8, "comm", HOST)]),
    ("Steps of inference and training", 8, [
        lines("Steps", "cps", 6, "Steps per second by phase. gpuperfctl steps names the processes.", (total("function, phase", STEP + "_count", HOST), "{{function}} {{phase}}")),
        lines("p99 of steps", "s", 6, "99 % of the steps of a phase were shorter.", (quantile(0.99, "function, phase", STEP, HOST), "{{function}} {{phase}}")),
        lines("Tokens", "cps", 6, "Tokens per second that steps worked on, by phase: prefill reads prompts, decode generates.",
              (total("function, phase", "gpuperf_step_tokens_total", HOST), "{{function}} {{phase}}")),
        lines("Processes that hang", "short", 6, "In a step, or in training between steps, for 10 times the p99.",
              (f"sum by (instance, where) (gpuperf_step_stalled_processes{{{HOST}}})", "{{instance}} {{where}}"))]),
    ("Requests of inference servers", 8, [
        lines("Time to the first part", "s", 8, "From the last byte of a request until the first part of the answer: of a stream, the time to the first token. Needs requests.enabled. gpuperfctl requests list --slow names the step that clients waited for.",
              *((quantile(q, "instance", "gpuperf_request_first_write_seconds", HOST), f"{{{{instance}}}} p{q * 100:.0f}") for q in (0.5, 0.99))),
        lines("Time from part to part", "s", 8, "Of a stream, the time between tokens.",
              *((quantile(q, "instance", "gpuperf_request_gap_seconds", HOST), f"{{{{instance}}}} p{q * 100:.0f}") for q in (0.5, 0.99))),
        lines("Requests", "cps", 8, "Answers begun per second, and requests whose client waited for 10 times the median.",
              (total("instance", "gpuperf_request_first_write_seconds_count", HOST), "{{instance}}"),
              (total("instance", "gpuperf_slow_requests_total", HOST), "{{instance}} slow"))]),
    ("Pods and processes", 8, [table(
        "Pods and processes", 24, "Most time in calls first. threads: average number of threads in calls. oldest: age of the oldest call in flight. Click a name for details.", ("instance", "namespace", "pod", "comm"), {
            "threads": ("short", total("instance, namespace, pod, comm", SECONDS, HOST)),
            "calls/s": ("cps", total("instance, namespace, pod, comm", CALLS, HOST)),
            "slow/s": ("cps", total("instance, namespace, pod, comm", SLOW, HOST)),
            "oldest": ("s", f"max by (instance, namespace, pod, comm) ({OLDEST}{{{HOST}}})"),
            "GPU memory": ("bytes", f"sum by (instance, namespace, pod, comm) ({memory_held(HOST)})")})]),
    ("GPUs", 7, [
        lines("SM clock", "hertz", 6, "Clock of the multiprocessors. If it is lower than usual, see Clocks throttled.",
              (f'gpuperf_gpu_clock_hertz{{{GPU},clock="sm"}}', "{{instance}} GPU {{gpu}}")),
        lines("Temperature", "celsius", 6, "Of the chip.", (f"gpuperf_gpu_temperature_celsius{{{GPU}}}", "{{instance}} GPU {{gpu}}")),
        lines("Clocks throttled", "percentunit", 6, "Share of time by reason, idle excluded.",
              (top(10, f'max by (instance, gpu, reason) (avg_over_time(gpuperf_gpu_throttled{{{GPU},reason!="idle"}}[$__rate_interval]))'),
               "{{instance}} GPU {{gpu}} {{reason}}"), reach=1),
        lines("GPU memory in use", "percentunit", 6, "Of all processes, without what the driver reserves.",
              (f"gpuperf_gpu_memory_used_bytes{{{GPU}}} / gpuperf_gpu_memory_capacity_bytes{{{GPU}}}", "{{instance}} GPU {{gpu}}"), reach=1)]),
]

WORKLOAD = [
    ("Now", 4, [
        stat("Calls", "cps", 4, "Probed calls per second.", total("", CALLS, OWNER)),
        slow_rate(4, OWNER), error_share(4, OWNER), oldest(4, OWNER),
        stat("GPU memory held", "bytes", 4, "Allocated on GPUs and not released.",
             or_zero(f"sum({memory_held(OWNER)})")),
        overhead(4, HOST + ',pod=~"$pod",comm=~"$comm"')]),
    ("Where its time goes", 10, [
        threads_in_calls(8, "function", OWNER), slow_by(8, "function", "function", OWNER),
        lines("p99 by function", "s", 8, "99 % of calls were shorter. The ten functions with the highest p99.",
              (top(10, quantile(0.99, "function", DURATION, OWNER)), "{{function}}"))]),
    ("Who waits for whom", 8, [
        waiting_lines(8, "comm, function", OWNER),
        threads("Waits for GPU work", 8, "Average number of threads and streams (stream_event) that wait, as CUPTI reports for injected processes.",
              (total("sync", "gpuperf_gpu_sync_seconds_total", OWNER), "{{sync}}")),
        latency_lines(8, OWNER)]),
    ("What it does", 8, [
        lines("Bytes by direction", "Bps", 8, "As requested by the calls. plain: allocated, filled by memset or sent.",
              (total("direction", BYTES, OWNER), "{{direction}}")),
        lines("Matrix products", "flops", 8, "Floating-point operations per second of successful GEMMs, as requested by the calls.",
              (top(10, total("comm", "gpuperf_function_flops_total", OWNER)), "{{comm}}")),
        lines("Kernels with the most GPU time", "percentunit", 8, "Of injected processes; 100 % is one GPU kept busy.",
              (shortened(top(10, total("kernel_name", KERNEL + "_sum", OWNER))), "{{kernel}}"), stack=True)]),
    ("What goes wrong", 10, [
        lines("Errors by code", "cps", 8, "Calls per second that returned an error.", (top(10, total("function, error", ERRORS, OWNER)), "{{function}} {{error}}")),
        lines("Calls in flight", "short", 8, "Calls that have not returned. If the value stays up, a call hangs.",
              (top(10, f"sum by (function) ({IN_FLIGHT}{{{OWNER}}})"), "{{function}}")),
        lines("Calls that never returned", "cps", 8, "Calls ended by longjmp, an exception, or the end of their thread or process.",
              (f"topk(10, {total('function', 'gpuperf_function_abandoned_total', OWNER)})", "{{function}}"))]),
]

FUNCTION = [
    ("Now", 4, [
        stat("Calls", "cps", 4, "Calls per second.", total("", CALLS, CALL)),
        stat("p50", "s", 4, "Half of the calls were shorter.", quantile(0.5, "", DURATION, CALL)),
        stat("p99", "s", 4, "99 % of the calls were shorter.", quantile(0.99, "", DURATION, CALL)),
        slow_rate(4, CALL), error_share(4, CALL), oldest(4, CALL)]),
    ("How long calls take", 9, [
        heatmap("Durations", "s", 12, "Calls per second by duration. Two bands mean two kinds of calls, such as cached and uncached.", DURATION, CALL),
        lines("Quantiles of durations", "s", 12, "Quantiles of all calls that the variables choose.",
              *((quantile(share, "", DURATION, CALL), f"p{share * 100:g}") for share in (0.5, 0.9, 0.99, 0.999)))]),
    ("Since when", 8, [
        lines("p99, now and before", "s", 12, "Compared with the same time a day and a week ago.",
              *((quantile(0.99, "", DURATION, CALL).replace("$__rate_interval]", f"$__rate_interval]{offset}"), legend)
                for offset, legend in (("", "now"), (" offset 1d", "a day ago"), (" offset 1w", "a week ago")))),
        lines("Slow share", "percentunit", 12, "Share of the calls that reached the threshold.", (top(10, ratio("function", SLOW, CALLS, CALL)), "{{function}}"))]),
    ("Where", 8, [
        lines("p99 by host", "s", 8, "If one host stands out, the cause is on that host.", (top(10, quantile(0.99, "instance", DURATION, CALL)), "{{instance}}")),
        lines("p99 by process", "s", 8, "99 % of a command's calls were shorter.", (top(10, named("comm", quantile(0.99, "comm", DURATION, CALL))), "{{comm}}")),
        threads_in_calls(8, "comm", CALL)]),
    ("What it carries, and what goes wrong", 10, [
        lines("Calls by function", "cps", 8, "Calls per second.", (top(10, total("function", CALLS, CALL)), "{{function}}")),
        lines("Bytes by direction", "Bps", 8, "As requested by the calls.", (total("direction", BYTES, CALL), "{{direction}}")),
        lines("Errors by code", "cps", 8, "Calls per second that returned an error.", (top(10, total("error", ERRORS, CALL)), "{{error}}"))]),
]

SLOW_CALLS = [
    ("Now", 4, [
        slow_rate(4, CALL),
        stat("In this range", "short", 4, "Slow calls within the time shown.", f"sum(increase({SLOW}{{{CALL}}}[$__range]))"),
        stat("Share of all calls", "percentunit", 4, "Slow calls among all calls.", ratio("", SLOW, CALLS, CALL), (0.001, 0.01)),
        stat("Functions affected", "short", 4, "Functions with slow calls now.", or_zero(f"count({total('function', SLOW, CALL)} > 0)")),
        stat("Hosts affected", "short", 4, "Hosts with slow calls now.", or_zero(f"count({total('instance', SLOW, CALL)} > 0)")),
        oldest(4, CALL)]),
    ("Which", 9, [slow_functions(24, ("instance", "namespace", "pod", "comm", "function"), CALL)]),
    ("Since when", 10, [slow_by(8, "function", "function", CALL), slow_by(8, "instance", "host", CALL), slow_by(8, "comm", "process", CALL)]),
    ("Most in this range", 8, [
        bars("By function", "short", 12, "Slow calls within the time shown. Why each was slow: gpuperfctl slow list --function NAME, then gpuperfctl slow show ID.",
             f"topk(10, sum by (function) (increase({SLOW}{{{CALL}}}[$__range])) > 0)", "{{function}}"),
        bars("By process", "short", 12, "Slow calls within the time shown.", f"topk(10, {named('comm', f'sum by (comm) (increase({SLOW}{{{CALL}}}[$__range]))')} > 0)", "{{comm}}")]),
    ("What is known of them", 7, [
        lines("Calls in flight", "short", 12, "Calls that have not returned; those over their threshold are slow calls already.",
              (top(10, f"sum by (function) ({IN_FLIGHT}{{{CALL}}})"), "{{function}}")),
        lines("Dropped records", "cps", 12, "Data of slow calls that was dropped, by cause; the calls themselves are always counted. rate_limited: only log lines.",
              (top(10, total("stage, reason", "gpuperf_dropped_total", HOST + ',stage=~"slow|store|watch|log|stacks|symbols"')), "{{stage}} {{reason}}"))]),
]

GPU_NAME = "{{instance}} GPU {{gpu}} {{gpu_instance}}"
KERNELS = [
    ("Now", 4, [
        stat("GPU busy", "percentunit", 4, "Mean share of time that injected processes keep a GPU busy.", f"avg({busy(BUSY)})"),
        stat("Kernels", "cps", 4, "Kernel launches per second, of injected processes.", total("", KERNEL + "_count", HOST)),
        stat("Launch latency p99", "s", 4, "From the launch call to the kernel's start.", quantile(0.99, "", LATENCY, HOST)),
        stat("Power", "watt", 4, "Sum over the selected GPUs.", f"sum(gpuperf_gpu_power_watts{{{GPU}}})"),
        troubled_gpus(4),
        stat("XID errors", "short", 4, "Errors of programs and GPUs that the driver reported since each daemon started.",
             or_zero(f"sum(gpuperf_gpu_xid_errors_total{{{GPU}}})"), (1,))]),
    ("Who waits for whom", 8, [
        gpu_busy_lines(8),
        lines("What GPUs do", "percentunit", 8, "Mean share of time by kind of work; they overlap. Kernels in graphs count as graph, unless they are recorded individually.",
              *((f"avg({rate(f'gpuperf_gpu_{kind}busy_seconds_total', HOST)})", legend) for kind, legend in
                (("", "any"), ("kernel_", "kernels"), ("copy_", "copies and memsets"), ("graph_", "graphs"))), reach=1),
        lines("Utilization by the driver", "percentunit", 8, "Share of the last second during which a kernel of any process ran. If it is higher than GPU busy, some processes are not injected.",
              (f"gpuperf_gpu_utilization_ratio{{{GPU}}}", "{{instance}} GPU {{gpu}}"), reach=1)]),
    ("What the GPUs are busy with", 8, [
        lines("SMs", "percentunit", 6, "From hardware counters (NVML GPM), Hopper and later. Active: an SM has a warp. Low with a busy GPU: kernels too small to fill it.",
              (f"gpuperf_gpu_sm_active_ratio{{{GPU}}}", f"{GPU_NAME} active"),
              (f"gpuperf_gpu_sm_occupancy_ratio{{{GPU}}}", f"{GPU_NAME} occupancy"), reach=1),
        lines("Tensor pipe", "percentunit", 6, "Share of cycles in which the tensor pipes were active. DCGM_FI_PROF_PIPE_TENSOR_ACTIVE.",
              (f'gpuperf_gpu_pipe_active_ratio{{{GPU},pipe="tensor"}}', GPU_NAME), reach=1),
        lines("Memory bandwidth", "percentunit", 6, "Of the peak of the device memory. High with a low tensor pipe: the GPU waits for its memory.",
              (f"gpuperf_gpu_dram_active_ratio{{{GPU}}}", GPU_NAME), reach=1),
        lines("PCIe and NVLink", "Bps", 6, "As the GPU sees it: receive is from the host or another GPU.",
              (f"gpuperf_gpu_pcie_bytes_per_second{{{GPU}}}", f"{GPU_NAME} PCIe {{{{direction}}}}"),
              (f"gpuperf_gpu_nvlink_bytes_per_second{{{GPU}}}", f"{GPU_NAME} NVLink {{{{direction}}}}"))]),
    ("Launches", 8, [
        heatmap("From launch to start on the GPU", "s", 12, "Launches per second by latency. Microseconds: the GPU waits for the host. Milliseconds: work queues on the GPU.", LATENCY, HOST),
        heatmap("Durations of kernels", "s", 12, "Kernels per second by their time on the GPU. Many below 10 us: launches cost more than the work.", KERNEL, HOST)]),
    ("Kernels", 10, [
        lines("Kernels with the most GPU time", "percentunit", 8, "100 % is one GPU kept busy.",
              (shortened(top(10, total("kernel_name", KERNEL + "_sum", HOST))), "{{kernel}}"), stack=True),
        table("Kernels", 16, "The 30 with the most GPU time: 100 % is one GPU kept busy. launch p99: from launch to start on the GPU.", ("kernel_name",), {
            "GPU time": ("percentunit", f"topk(30, {total('kernel_name', KERNEL + '_sum', HOST)})"),
            "launches/s": ("cps", total("kernel_name", KERNEL + "_count", HOST)),
            "mean": ("s", ratio("kernel_name", KERNEL + "_sum", KERNEL + "_count", HOST)),
            "p99": ("s", quantile(0.99, "kernel_name", KERNEL, HOST)),
            "launch p99": ("s", quantile(0.99, "kernel_name", LATENCY, HOST))})]),
    ("Ranks that communicate", 8, [
        lines("Exposed communication", "percentunit", 6, "Share of time in which each GPU ran nothing but kernels of NCCL: sent without computing meanwhile, or waited for a rank.",
              (f"{busy(BUSY, HOST)} - {busy('gpuperf_gpu_busy_without_nccl_seconds_total', HOST)}", "{{instance}} GPU {{gpu}}"), reach=1),
        lines("Ranks that are waited for", "percentunit", 6, "Share of the last 10 s that all other ranks on the host waited for this one alone. gpuperfctl nccl says why.",
              (top(10, f"max by (communicator, rank, cause) (gpuperf_nccl_late_ratio{{{HOST}}} > 0)"), "{{communicator}} rank {{rank}} {{cause}}"), reach=1),
        lines("Time waited", "percentunit", 6, "For the last rank on the host, by recorded kernels.",
              (top(10, total("communicator, rank", "gpuperf_nccl_wait_seconds_total", HOST + ',basis="gpu"')), "{{communicator}} rank {{rank}}"), reach=1),
        lines("Bus bandwidth", "Bps", 6, "By the shortest kernel of the ranks on a host, with the factors of nccl-tests.",
              (top(10, ratio("communicator, operation", "gpuperf_nccl_bus_bytes_total", "gpuperf_nccl_bus_seconds_total", HOST)), "{{communicator}} {{operation}}"))]),
    ("Copies, graphs and memory", 8, [
        lines("Bytes copied", "Bps", 6, "As done by the GPUs, graphs included.", (total("kind", "gpuperf_gpu_copied_bytes_total", HOST), "{{kind}}")),
        lines("Bytes requested", "Bps", 6, "As requested by calls on the host, of all processes.", (total("kind", "gpuperf_memcpy_bytes_total", HOST), "{{kind}}")),
        lines("Graph launches", "cps", 6, "CUDA graphs, each as a whole.", (total("comm", "gpuperf_graph_launches_total", HOST), "{{comm}}")),
        lines("Memory held", "bytes", 6, "Allocated on GPUs and not released. Which stacks hold it: gpuperfctl memory --stacks.", (top(10, f"sum by (comm) ({memory_held(HOST)})"), "{{comm}}"))]),
    ("GPU state", 8, [
        lines("SM clock / maximum", "percentunit", 6, "100 % is the GPU's maximum clock.",
              (f'gpuperf_gpu_clock_hertz{{{GPU},clock="sm"}} / gpuperf_gpu_clock_max_hertz{{{GPU},clock="sm"}}', "{{instance}} GPU {{gpu}}"), reach=1),
        lines("Clocks throttled", "percentunit", 6, "Share of time by reason, for reasons that the GPU measures.",
              (top(10, rate("gpuperf_gpu_throttle_seconds_total", GPU)), "{{instance}} GPU {{gpu}} {{reason}}"), reach=1),
        lines("Power / limit", "percentunit", 6, "At 100 %, the power cap throttles the clocks.",
              (f"gpuperf_gpu_power_watts{{{GPU}}} / gpuperf_gpu_power_limit_watts{{{GPU}}}", "{{instance}} GPU {{gpu}}"), reach=1),
        lines("Temperature", "celsius", 6, "Of the chip.", (f"gpuperf_gpu_temperature_celsius{{{GPU}}}", "{{instance}} GPU {{gpu}}"))]),
    ("", 7, [
        lines("Errors reported by the driver", "short", 8, "By XID, since the daemon started. gpuperfctl gpus explains each.",
              (f"gpuperf_gpu_xid_errors_total{{{GPU}}}", "{{instance}} GPU {{gpu}} XID {{xid}}")),
        lines("Memory errors", "short", 8, "ECC errors since the driver was loaded, and remapped memory rows.",
              (f"sum by (kind) (gpuperf_gpu_ecc_errors_total{{{GPU}}})", "{{kind}}"),
              (f"sum by (kind) (gpuperf_gpu_remapped_rows_total{{{GPU}}})", "rows remapped, {{kind}}")),
        lines("PCIe replays", "cps", 8, "Packets sent again. A steady rate means a bad link.", (rate("gpuperf_gpu_pcie_replays_total", GPU), "{{instance}} GPU {{gpu}}"))]),
]

HEALTH = [
    ("Now", 4, [
        stat("Daemons up", "short", 4, "Daemons that were scraped.", f"sum(up{{{HOST}}})"),
        stat("Probes attached", "short", 4, "Functions that are probed, counted per file.", f'sum(gpuperf_probes{{{HOST},state=~"attached|entry_only"}})'),
        stat("Probes failed", "short", 4, "Probes that could not be attached: gpuperfctl probes says why.", f'sum(gpuperf_probes{{{HOST},state="failed"}})', (1,)),
        stat("Suspended", "short", 4, "Functions suspended by the overhead budget.", f"sum(gpuperf_suspended_functions{{{HOST}}})", (1,)),
        overhead(4, HOST),
        stat("Drops", "cps", 4, "Data not kept because a limit was reached or input was bad.", total("", "gpuperf_dropped_total", HOST), (0.1, 10))]),
    ("What it costs", 8, [
        lines("Share of processes' time", "percentunit", 8, "Probes, launch hooks and CUPTI; the ten highest.", (f"topk(10, max by (comm, component) (gpuperf_overhead_component_ratio{{{HOST}}}))", "{{comm}} {{component}}"), steps=(0.01,)),
        lines("CPU of the daemon", "percentunit", 8, "Share of one CPU.", (rate("gpuperf_daemon_cpu_seconds_total", HOST), "{{instance}}")),
        lines("Memory of the daemon", "bytes", 8, "Resident.", (f"gpuperf_daemon_resident_bytes{{{HOST}}}", "{{instance}}"))]),
    ("Whether it sees everything", 8, [
        lines("Probes by state", "short", 8, "waiting: no process maps the library.", (f"sum by (state) (gpuperf_probes{{{HOST}}})", "{{state}}")),
        lines("Coverage of suspended functions", "percentunit", 8, "Share of time that each was probed. Functions not shown are probed all the time.",
              (f"gpuperf_function_coverage_ratio{{{HOST}}}", "{{instance}} {{function}}"), reach=1),
        lines("Sessions by state", "short", 8, "Injected processes that are connected.", (f"sum by (state) (gpuperf_sessions{{{HOST}}})", "{{state}}"))]),
    ("What was lost", 8, [
        lines("Drops by cause", "cps", 8, "gpuperfctl status explains each.",
              (top(10, total("stage, reason", "gpuperf_dropped_total", HOST)), "{{stage}} {{reason}}")),
        lines("Records that sessions lost", "cps", 8, "In injected processes. sampled: not kept, because you asked for a sample.", (total("reason", "gpuperf_session_lost_records_total", HOST), "{{reason}}")),
        lines("Clock error of sessions", "s", 8, "Maximum error of GPU timestamps over all sessions.", (f"gpuperf_session_clock_error_seconds{{{HOST}}}", "{{instance}}"))]),
    ("Flight recorder and captures", 7, [
        lines("How far back it reaches", "s", 8, "trace.recorder_seconds, or less if trace.recorder_mib is full.", (f"gpuperf_recorder_span_seconds{{{HOST}}}", "{{instance}}")),
        lines("Memory of the flight recorder", "bytes", 8, "Limited by trace.recorder_mib.", (f"gpuperf_recorder_bytes{{{HOST}}}", "{{instance}}")),
        lines("Captures by state", "short", 8, "failed: gpuperfctl trace list says why.", (f"sum by (state) (gpuperf_captures{{{HOST}}})", "{{state}}"))]),
    ("Scrapes", 8, [
        lines("Samples per scrape", "short", 5, "Limited by metrics.max_series.", (f"scrape_samples_scraped{{{HOST}}}", "{{instance}}")),
        lines("Time per scrape", "s", 5, "Of one scrape, over the network.", (f"scrape_duration_seconds{{{HOST}}}", "{{instance}}")),
        table("Versions", 14, "What runs where.", ("instance", "version", "kernel", "mechanism"),
              {"daemons": ("short", f"sum by (instance, version, kernel, mechanism) (gpuperf_build_info{{{HOST}}})")})]),
]


def make(uid, title, description, variables, rows):
    return Dashboard(uid, title, description, [VARIABLES[name] for name in ["datasource", "job", "instance", *variables]], rows, ANNOTATIONS)


CALLERS = ["namespace", "pod", "comm"]
DASHBOARDS = [
    make("gpuperf-fleet", "gpuperf / Fleet", "What is slow now on which host, and whether GPUs wait for hosts or hosts for GPUs.", [], FLEET),
    make("gpuperf-host", "gpuperf / Host", "One host, or a few: its processes and its GPUs.", ["gpu"], ON_HOST),
    make("gpuperf-workload", "gpuperf / Pod or process", "One workload: where its time goes, what it waits for, what goes wrong.", CALLERS, WORKLOAD),
    make("gpuperf-function", "gpuperf / Function", "One function: how long it takes, where, and since when.", [*CALLERS, "function"], FUNCTION),
    make("gpuperf-slow", "gpuperf / Slow calls", "Which calls are slow, of whom, since when.", [*CALLERS, "function"], SLOW_CALLS),
    make("gpuperf-kernels", "gpuperf / Kernels and GPUs", "What GPUs do, which kernels take their time, and the state of the GPUs.", ["gpu"], KERNELS),
    make("gpuperf-health", "gpuperf / Health and cost of gpuperf", "Whether gpuperf sees everything, what it lost and what it costs.", [], HEALTH),
]
