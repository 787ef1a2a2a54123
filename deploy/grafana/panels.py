"""What the tables of dashboards are made of: a panel, the labels that variables choose, and queries that
several dashboards share."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Panel:
    kind: str         # timeseries, stat, table, heatmap or bargauge
    title: str
    unit: str         # Grafana's name of the unit
    width: int        # of 24 columns
    description: str  # what it is, and what to make of it
    queries: list     # (expression, legend)
    steps: tuple = ()                                        # where it turns orange and red; one: red
    columns: dict = dataclasses.field(default_factory=dict)  # tables: name of each query -> unit; the first sorts
    labels: tuple = ()                                       # tables: labels, in order
    stack: bool = False
    reach: float = 0  # up to where an axis goes at least, so that a little looks little; 0: as far as the values
    decimals: int | None = None  # None: as many as Grafana thinks


@dataclasses.dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    description: str
    variables: list
    rows: list  # (heading or "", height, panels)
    annotations: list


# Selectors by how far the variables narrow down.
HOST = 'job=~"$job",instance=~"$instance"'
OWNER = HOST + ',namespace=~"$namespace",pod=~"$pod",comm=~"$comm"'
CALL = OWNER + ',function=~"$function"'
GPU = HOST + ',gpu=~"$gpu"'

_CALLS = "gpuperf_function_calls_total"
VARIABLES = {
    "datasource": ("datasource", "Data source", "prometheus"),
    "job": ("job", "Job", "label_values(gpuperf_build_info, job)"),
    "instance": ("instance", "Host", 'label_values(gpuperf_build_info{job=~"$job"}, instance)'),
    "namespace": ("namespace", "Namespace", f"label_values({_CALLS}{{{HOST}}}, namespace)"),
    "pod": ("pod", "Pod", f'label_values({_CALLS}{{{HOST},namespace=~"$namespace"}}, pod)'),
    "comm": ("comm", "Process", f'label_values({_CALLS}{{{HOST},namespace=~"$namespace",pod=~"$pod"}}, comm)'),
    "function": ("function", "Function", f"label_values({_CALLS}{{{OWNER}}}, function)"),
    "gpu": ("gpu", "GPU", f"label_values(gpuperf_gpu_info{{{HOST}}}, gpu)"),
}
ANNOTATIONS = [
    ("Alerts", "red", f'ALERTS{{alertname=~"Gpuperf.*",alertstate="firing",{HOST}}}', "{{alertname}} {{instance}} {{function}}"),
    ("Restarts of gpuperfd", "blue", f"resets(gpuperf_daemon_cpu_seconds_total{{{HOST}}}[$__rate_interval]) > 0",
     "gpuperfd restarted on {{instance}}"),
]
# Functions in which a thread waits until the GPU is done. The runtime's call the driver's: never add both up.
WAITS = 'function=~"cu.*Synchronize|device_synchronize"'
# Why clocks are down although nobody asked for it; see deploy/prometheus/gpuperf-alerts.yaml.
BAD_LIMITS = 'reason=~"hw_slowdown|hw_thermal|sw_thermal|power_brake"'


def rate(metric, selector):
    return f"rate({metric}{{{selector}}}[$__rate_interval])"


def total(by, metric, selector):
    return f"sum by ({by}) ({rate(metric, selector)})" if by else f"sum({rate(metric, selector)})"


def top(count, expression):
    """Zeros too: without them a legend goes on telling the last value that was more."""
    return f"topk({count}, {expression})"


def named(by, expression):
    """By comm: a process that ended before its name was read is shown as such, not without a name."""
    return f'label_replace({expression}, "comm", "(ended)", "comm", "")' if by == "comm" else expression


def shortened(expression):
    """By kernel_name: `kernel` is its beginning, which leaves a legend room for values."""
    return f'label_replace({expression}, "kernel", "$1", "kernel_name", "(.{{0,28}}).*")'


def or_zero(expression):
    return f"{expression} or vector(0)"


def quantile(share, by, metric, selector):
    return f"histogram_quantile({share}, {total((by + ', le') if by else 'le', metric + '_bucket', selector)})"


def ratio(by, part, whole, selector):
    return f"{total(by, part, selector)} / {total(by, whole, selector)}"


def observed_share(metric, selector):
    """Share of the time in which all injected processes on the GPU were recorded."""
    return f"{rate(metric, selector)} / ({rate('gpuperf_gpu_observed_seconds_total', selector)} > 0)"


def busy(metric, selector=GPU):
    """Share of time by GPU, under its number where NVML tells it, else under the beginning of its UUID."""
    each = f"({observed_share(metric, HOST)})"
    return (f"sum by (instance, gpu) ({each} * on (job, instance, uuid) group_left (gpu) gpuperf_gpu_info{{{selector}}} "
            f'or label_replace({each} unless on (job, instance, uuid) gpuperf_gpu_info, "gpu", "$1", "uuid", "(?:GPU-)?(.{{0,8}}).*"))')


def waiting(by, selector):
    """Threads that wait for the GPU, on average: the function with most of them, as one may call another."""
    return (f"max by ({by}) ({total(by + ', function', 'gpuperf_function_duration_seconds_sum', selector + ',' + WAITS)})")


def stat(title, unit, width, description, expression, steps=()):
    return Panel("stat", title, unit, width, description, [(expression, "")], steps)


def lines(title, unit, width, description, *queries, steps=(), stack=False, reach=0, decimals=None):
    return Panel("timeseries", title, unit, width, description, list(queries), steps, stack=stack, reach=reach, decimals=decimals)


def threads(title, width, description, *queries):
    """How many threads, on average: mostly parts of one."""
    return lines(title, "short", width, description, *queries, reach=0.1, decimals=3)


def bars(title, unit, width, description, expression, legend):
    return Panel("bargauge", title, unit, width, description, [(expression, legend)])


def heatmap(title, unit, width, description, metric, selector):
    return Panel("heatmap", title, unit, width, description, [(total("le", metric + "_bucket", selector), "{{le}}")])


def table(title, width, description, labels, columns):
    """`columns`: name -> (unit, expression)."""
    return Panel("table", title, "short", width, description, [(expression, "") for _, expression in columns.values()],
                 columns={name: unit for name, (unit, _) in columns.items()}, labels=labels)
