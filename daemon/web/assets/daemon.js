// The daemon's own health: what it cannot do, what it lost, what it costs.

import {read} from './api.js';
import {empty, facts, h, put} from './dom.js';
import {bytes, count, duration, moment, num, percent, shortName} from './format.js';
import {LiveTable} from './table.js';

const about = h('div.panel'), problems = h('div.panel'), drops = h('div.panel');
const TONES = {attached: 'good', 'entry only': 'good', failed: 'bad', 'symbol missing': 'warn', suspended: 'warn'};
const probeState = (r) => shortName(r.state, 'PROBE_STATE_');

const probes = new LiveTable([
  {name: 'Function', value: (r) => r.function, node: (r) => [h('span.mono', {}, r.function), h('span.category', {}, r.category)]},
  {name: 'State', value: probeState, node: (r) => h(`span.state.${TONES[probeState(r)] || 'plain'}`, {}, probeState(r))},
  {name: 'Library', value: (r) => r.library, text: (r) => r.library || '–', wide: true},
  {name: 'Cost of a hit', number: true, value: (r) => num(r.cost_ns), text: (r) => num(r.cost_ns) ? duration(r.cost_ns) : '–'},
  {name: 'Slow over', number: true, value: (r) => num(r.slow_threshold_ns), text: (r) => num(r.slow_threshold_ns) ? duration(r.slow_threshold_ns) : 'never'},
  {name: 'Why', value: (r) => r.reason, text: (r) => r.reason, wide: true},
], {key: (r) => `${r.category}/${r.function}/${r.symbol}/${r.library}/${r.offset_bytes}`, sort: 'State', descending: false});

const processes = new LiveTable([
  {name: 'Process', value: (r) => r.comm, text: (r) => `${r.comm} (${r.pid})`},
  {name: 'Pod', value: (r) => r.pod, text: (r) => [r.namespace, r.pod].filter(Boolean).join('/') || '–'},
  {name: 'Calls', number: true, value: (r) => num(r.calls), text: (r) => count(r.calls)},
  {name: 'Slow', number: true, value: (r) => num(r.slow_calls), text: (r) => count(r.slow_calls)},
  {name: 'Cost of gpuperf', number: true, value: (r) => num(r.overhead_ratio), text: (r) => percent(r.overhead_ratio)},
  {name: 'Session', value: (r) => r.session_state, text: (r) => r.session_state || 'not injected'},
], {key: (r) => `${r.pid}/${r.start_boot_ns}`, sort: 'Calls'});

function showAbout(status) {
  const upNs = Date.now() * 1e6 - num(status.start_unix_ns);
  put(about, h('h2', {}, `gpuperfd ${status.version}`), facts([['Process', `${status.pid}, up ${duration(upNs)}, since ${moment(status.start_unix_ns)}`], ['Kernel', status.kernel],
    ['Probes by', status.mechanism === 'none' ? 'none: nothing can be probed' : status.mechanism], ['Configuration', status.config_path], ['Metrics', h('a', {href: '/metrics'}, `${status.metrics_address}/metrics`)],
    ['Store', status.store_path ? `${status.store_path}, ${bytes(status.store_bytes)}` : 'none: slow calls are kept in memory only'],
    ['CPU', `${duration(status.cpu_ns)}, ${percent(num(status.cpu_ns) / upNs)} of one CPU since the start`], ['Memory', bytes(status.resident_bytes)],
    ['Cost to workloads', num(status.overhead_ratio) ? `an estimated ${percent(status.overhead_ratio)} of process ${status.overhead_pid}` : 'none measured']]));
}

// '' = nothing is demanded.
function describeDemand(status) {
  const raised = status.overhead_demand_percent ? `Overhead budgets are raised to ${percent(status.overhead_demand_percent / 100)}` : 'No overhead budget';
  const words = {OVERHEAD_DEMAND_STAND_DOWN: 'Nothing is probed or recorded', OVERHEAD_DEMAND_DETAIL: raised}[status.overhead_demand] || '';
  return words && num(status.overhead_demand_remaining_ns) ? `${words} for another ${duration(status.overhead_demand_remaining_ns)}` : words;
}

function showProblems(status) {
  put(problems, h('h2', {}, 'What does not work'), status.problems.length ? status.problems.map((p) => h('div.problem', {}, h('b', {}, p.subject), `: ${p.message}`, p.hint ? h('p.dim', {}, p.hint) : null))
    : h('p.good', {}, 'Everything works.'),
    describeDemand(status) ? h('p.warn', {}, `${describeDemand(status)}: ${status.overhead_demand_reason}`) : null,
    status.suspensions.length ? [h('h3', {}, 'Suspended by the overhead budget'), status.suspensions.map((s) => h('p', {}, h('span.mono', {}, s.function),
      ` took ${percent(s.share_ratio)} of ${s.comm}${s.pid ? ` (${s.pid})` : ''}; its calls are estimated, the next time in ${duration(s.remaining_ns)}`))] : null);
  put(drops, h('h2', {}, 'What was lost'), status.drops.length ? h('div.scroll', {}, h('table', {}, h('tbody', {}, status.drops.map((d) => h('tr', {}, h('td', {}, `${d.stage}: ${d.reason.replaceAll('_', ' ')}`),
    h('td.number.warn', {}, count(d.count)), h('td.wide.dim', {}, d.meaning)))))) : h('p.good', {}, 'Nothing.'));
}

const noProcess = empty('No process has called a probed function yet');
const processPanel = h('div.panel', {}, h('h2', {}, 'Processes'), processes.node, noProcess);
const node = h('div', {}, h('div.two', {}, about, h('div', {}, problems, drops)), processPanel, h('div.panel', {}, h('h2', {}, 'Probes'), probes.node));

async function refresh(status) {
  const [list, running] = await Promise.all([read('probes', {'page.limit': 2000}), read('processes', {'page.limit': 500})]);
  showAbout(status);
  showProblems(status);
  probes.show(list.probes);
  processes.show(running.processes.filter((p) => !p.exited));
  noProcess.hidden = running.processes.length > 0;
}

export const daemonView = {name: 'daemon', title: 'Daemon', node, refresh};
